//! One key for each thing that a limiter can store, and what is seen of them: for tests of what
//! happens to all of them alike.

use crate::limiter_support::*;
use crate::support::*;

/// A key, the policy under which it was used, and the verdict of a peek: right after
/// [`Shapes::fill`], and three seconds later.
pub(crate) struct Case {
    pub(crate) key: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) now: [i64; 5],
    pub(crate) later: [i64; 5],
}

const fn case(key: &'static str, policy: &'static str, now: [i64; 5], later: [i64; 5]) -> Case {
    Case {
        key,
        policy,
        now,
        later,
    }
}

const BUCKET: &str = "GCRA 10 7 60000";
const OVERDRAFT: &str = "GCRA 5 5 60000";
const FIXED: &str = "FIXEDWINDOW 10 60000";
const SLIDING: &str = "SLIDINGWINDOW 10 60000";
const SHORT: &str = "SLIDINGLOG 5 30000";
/// Of 1,300 entries 10 ms apart 1,100 lie within the window, in several chunks.
const LONG: &str = "SLIDINGLOG 1200 11000";

/// Each shape open, and blocked under the same name with an exclamation mark.
pub(crate) const CASES: [Case; 13] = [
    case(
        "bucket",
        BUCKET,
        [1, 10, 6, 0, 34_286],
        [1, 10, 6, 0, 31_286],
    ),
    case(
        "bucket!",
        BUCKET,
        [0, 10, 0, 20_000, 34_286],
        [0, 10, 0, 17_000, 31_286],
    ),
    case(
        "overdraft",
        OVERDRAFT,
        [0, 5, 0, 228_000, 276_000],
        [0, 5, 0, 225_000, 273_000],
    ),
    case(
        "overdraft!",
        OVERDRAFT,
        [0, 5, 0, 228_000, 276_000],
        [0, 5, 0, 225_000, 273_000],
    ),
    case("fixed", FIXED, [1, 10, 6, 0, 60_000], [1, 10, 6, 0, 57_000]),
    case(
        "fixed!",
        FIXED,
        [0, 10, 0, 20_000, 60_000],
        [0, 10, 0, 17_000, 57_000],
    ),
    case(
        "sliding",
        SLIDING,
        [0, 10, 0, 6500, 119_000],
        [0, 10, 0, 3500, 116_000],
    ),
    case(
        "sliding!",
        SLIDING,
        [0, 10, 0, 20_000, 119_000],
        [0, 10, 0, 17_000, 116_000],
    ),
    case("short", SHORT, [1, 5, 1, 0, 30_000], [1, 5, 1, 0, 27_000]),
    case(
        "short!",
        SHORT,
        [0, 5, 0, 20_000, 30_000],
        [0, 5, 0, 17_000, 27_000],
    ),
    case(
        "long",
        LONG,
        [1, 1200, 100, 0, 11_000],
        [1, 1200, 400, 0, 8000],
    ),
    case(
        "long!",
        LONG,
        [0, 1200, 0, 20_000, 20_000],
        [0, 1200, 0, 17_000, 17_000],
    ),
    case(
        "only!",
        OVERDRAFT,
        [0, 5, 0, 20_000, 20_000],
        [0, 5, 0, 17_000, 17_000],
    ),
];

/// What is seen of all of them.
pub(crate) struct Shapes {
    digest: Reply,
    /// Of each key: RL.INFO, PEXPIRETIME, and the digest of its value.
    seen: Vec<(&'static str, [Reply; 3])>,
}

impl Shapes {
    /// Makes them, over 61 seconds.
    pub(crate) fn fill(server: &Server) -> Shapes {
        let (mut c, clock) = (server.conn(), server.clock());
        let mut both = |call: &str, cost: i64| {
            let (command, numbers) = call.split_once(' ').expect("a policy");
            for block in ["", "!"] {
                let key = match (command, numbers) {
                    ("GCRA", "5 5 60000") => "overdraft",
                    ("GCRA", _) => "bucket",
                    ("FIXEDWINDOW", _) => "fixed",
                    ("SLIDINGWINDOW", _) => "sliding",
                    ("SLIDINGLOG", "5 30000") => "short",
                    _ => "long",
                };
                let line = format!("RL.CHARGE {key}{block} {call} COST {cost}");
                let reply = c.cmd(&words(&line));
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
        };
        both(SLIDING, 8);
        clock.advance_ms(48_000);
        both(SHORT, 2);
        for _ in 0..1300 {
            clock.advance_ms(10);
            both(LONG, 1);
        }
        both(SHORT, 1);
        both(SHORT, 1);
        both(SLIDING, 2);
        both(BUCKET, 4);
        both(OVERDRAFT, 23);
        both(FIXED, 4);
        for case in CASES {
            if case.key.ends_with('!') {
                assert_eq!(cmd!(c, "RL.BLOCK", case.key, 20_000), int(20_000));
            }
        }
        assert_verdicts(server, |case| case.now);
        Shapes::of(server)
    }

    fn of(server: &Server) -> Shapes {
        let mut c = server.conn();
        let seen = CASES.map(|case| {
            let replies = [
                cmd!(c, "RL.INFO", case.key),
                cmd!(c, "PEXPIRETIME", case.key),
                digest_of(&mut c, case.key),
            ];
            (case.key, replies)
        });
        Shapes {
            seen: seen.to_vec(),
            digest: digest(server),
        }
    }

    /// The server has them at the same instant of the clock.
    #[track_caller]
    pub(crate) fn assert_is(&self, server: &Server) {
        let found = Shapes::of(server);
        assert_eq!(found.seen, self.seen);
        assert_eq!(found.digest, self.digest);
        assert_verdicts(server, |case| case.now);
        assert_eq!(counter(server, "rl_keys"), CASES.len() as i64);
    }

    /// The server has the same stored, whatever the clock shows.
    #[track_caller]
    pub(crate) fn assert_stored(&self, server: &Server) {
        assert_eq!(digest(server), self.digest);
        let found = Shapes::of(server);
        for ((key, now), (_, before)) in found.seen.iter().zip(&self.seen) {
            assert_eq!(now[1..], before[1..], "{key}");
        }
    }
}

/// Peeks at every key.
#[track_caller]
pub(crate) fn assert_verdicts(server: &Server, expected: impl Fn(&Case) -> [i64; 5]) {
    let mut c = server.conn();
    for case in &CASES {
        let line = format!("RL.PEEK {} {}", case.key, case.policy);
        assert_eq!(c.cmd(&words(&line)), five(expected(case)), "{line}");
    }
}
