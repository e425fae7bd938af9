//! Every shape of a limiter under a clock that steps back, on a primary and on what a replica
//! becomes.

use crate::limiter_shapes::*;
use crate::limiter_support::*;
use crate::support::*;

/// A call on a key of [`CASES`] that is denied after a step back by an hour, its verdict, and what
/// is then stored, below a block or not: `at` is now. Elapsed time counts as none.
struct Denial {
    key: &'static str,
    cost: i64,
    verdict: [i64; 5],
    below: fn(at: i64) -> Vec<u8>,
}

const fn denial(
    key: &'static str,
    cost: i64,
    verdict: [i64; 5],
    below: fn(at: i64) -> Vec<u8>,
) -> Denial {
    Denial {
        key,
        cost,
        verdict,
        below,
    }
}

fn bucket(at: i64) -> Vec<u8> {
    Bucket::owing(4, at, (10, 7, 60_000)).body()
}

fn overdraft(at: i64) -> Vec<u8> {
    Bucket::owing(23, at, (5, 5, 60_000)).body()
}

fn fixed(at: i64) -> Vec<u8> {
    fixed_window((10, 60_000), at, 4)
}

fn sliding(at: i64) -> Vec<u8> {
    sliding_window((10, 60_000), at, [2, 8])
}

/// Of both logs all that lay ahead is one entry.
fn short(at: i64) -> Vec<u8> {
    log_step((5, 30_000), 0, 0, (at, 4))
}

fn long(at: i64) -> Vec<u8> {
    log_step((1200, 11_000), 200, 0, (at, 1300))
}

fn unused(_: i64) -> Vec<u8> {
    UNUSED.to_vec()
}

const DENIALS: [Denial; 13] = [
    denial("bucket", 7, [0, 10, 6, 8572, 34_286], bucket),
    denial("bucket!", 1, [0, 10, 0, 20_000, 34_286], bucket),
    denial("overdraft", 1, [0, 5, 0, 228_000, 276_000], overdraft),
    denial("overdraft!", 1, [0, 5, 0, 228_000, 276_000], overdraft),
    denial("fixed", 7, [0, 10, 6, 60_000, 60_000], fixed),
    denial("fixed!", 1, [0, 10, 0, 20_000, 60_000], fixed),
    denial("sliding", 1, [0, 10, 0, 7500, 120_000], sliding),
    denial("sliding!", 1, [0, 10, 0, 20_000, 120_000], sliding),
    denial("short", 2, [0, 5, 1, 30_000, 30_000], short),
    denial("short!", 1, [0, 5, 0, 20_000, 30_000], short),
    denial("long", 101, [0, 1200, 100, 11_000, 11_000], long),
    denial("long!", 1, [0, 1200, 0, 20_000, 20_000], long),
    denial("only!", 1, [0, 5, 0, 20_000, 20_000], unused),
];

impl Denial {
    fn policy(&self) -> &'static str {
        let case = CASES.iter().find(|case| case.key == self.key);
        case.expect("a case for each").policy
    }

    fn peek(&self) -> String {
        format!("RL.PEEK {} {} COST {}", self.key, self.policy(), self.cost)
    }

    fn call(&self) -> String {
        let (algorithm, numbers) = self.policy().split_once(' ').expect("a policy");
        format!("RL.{algorithm} {} {numbers} COST {}", self.key, self.cost)
    }

    fn stored(&self, at: i64) -> Vec<u8> {
        let below = (self.below)(at);
        match self.key.ends_with('!') {
            true => blocked(at, at + 20_000_000, &below),
            false => below,
        }
    }
}

#[track_caller]
fn assert_denials(server: &Server, line: fn(&Denial) -> String) {
    let mut c = server.conn();
    for denial in &DENIALS {
        run(&mut c, &[(&line(denial), denial.verdict)]);
    }
}

#[test]
fn a_step_back_by_an_hour_is_propagated_with_each_denial() {
    let chain = chain();
    Shapes::fill(&chain.primary);
    chain.clock().advance_ms(-HOUR_MS);
    let now = chain.clock().now_us();
    // A peek sees what a call would do, on all three, and does nothing.
    let mut tap = Tap::on(&chain);
    for server in chain.servers() {
        assert_denials(server, Denial::peek);
    }
    assert_eq!(tap.take(), [] as [Vec<Vec<u8>>; 0]);
    let mut c = chain.primary.conn();
    for denial in &DENIALS {
        run(&mut c, &[(&denial.call(), denial.verdict)]);
        let rebased = limiter_effect(denial.key, now, &denial.stored(now));
        assert_eq!(tap.take(), [rebased], "{}", denial.key);
        // Once.
        run(&mut c, &[(&denial.call(), denial.verdict)]);
        assert_eq!(tap.take(), [] as [Vec<Vec<u8>>; 0], "{}", denial.key);
        assert_same(&chain);
        // The TTL is that of what is stored now, and not an hour longer.
        let reset_ms = denial.verdict[4];
        let ttl = cmd!(c, "PTTL", denial.key).as_int();
        let expected = reset_ms..=reset_ms + 1 + SLACK_MS;
        assert!(expected.contains(&ttl), "{}: {ttl}", denial.key);
    }
}

/// After a step back nobody waits for longer than the policy's own window.
#[test]
fn whoever_waits_as_told_is_admitted_after_a_step_back() {
    let server = own(Options::new());
    let mut c = server.conn();
    for denial in &DENIALS {
        cmd!(c, "FLUSHALL");
        Shapes::fill(&server);
        server.clock().advance_ms(-HOUR_MS);
        run(&mut c, &[(&denial.call(), denial.verdict)]);
        let wait_ms = denial.verdict[3];
        server.clock().advance_ms(wait_ms - 1);
        let early = c.cmd(&words(&denial.call()));
        assert_eq!(early.items()[..1], [int(0)], "{}", denial.key);
        server.clock().advance_ms(1);
        let right = c.cmd(&words(&denial.call()));
        assert_eq!(right.items()[..1], [int(1)], "{}", denial.key);
    }
}

#[test]
fn charges_refunds_and_blocks_after_a_step_back_are_propagated_as_of_now() {
    let chain = chain();
    let policy = (10, 60_000);
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    for _ in 0..3 {
        cmd!(c, "RL.SLIDINGLOG", "k", 10, 60_000);
        chain.clock().advance_ms(1000);
    }
    // The second and the third lie ahead.
    chain.clock().advance_ms(-2500);
    let mut tap = Tap::on(&chain);
    let now = start + 500_000;
    let mut sends = |line: &str, verdict: [i64; 5], body: Vec<u8>| {
        run(&mut c, &[(line, verdict)]);
        assert_eq!(tap.take(), [limiter_effect("k", now, &body)], "{line}");
        assert_same(&chain);
    };
    sends(
        "RL.REFUND k SLIDINGLOG 10 60000",
        [1, 10, 8, 0, 60_000],
        log_step(policy, 0, start, (now, 2)),
    );
    chain.clock().advance_ms(-1000);
    let now = start - 500_000;
    let mut tap = Tap::on(&chain);
    let mut sends = |line: &str, verdict: [i64; 5], body: Vec<u8>| {
        run(&mut c, &[(line, verdict)]);
        assert_eq!(tap.take(), [limiter_effect("k", now, &body)], "{line}");
        assert_same(&chain);
    };
    sends(
        "RL.CHARGE k SLIDINGLOG 10 60000 COST 9",
        [0, 10, 0, 60_000, 60_000],
        log_step(policy, 0, 0, (now, 11)),
    );
    sends(
        "RL.REFUND k SLIDINGLOG 10 60000 COST 10",
        [1, 10, 9, 0, 60_000],
        log_step(policy, 0, 0, (now, 1)),
    );
}

// --- a new primary ---

#[test]
fn a_promoted_replica_answers_as_the_primary_would_have() {
    let primary = own(Options::new());
    let shapes = Shapes::fill(&primary);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    // Over the link as well.
    let policy = "SLIDINGLOG 1200 11000";
    for line in [
        format!("RL.CHARGE long {policy} COST 50"),
        format!("RL.REFUND long {policy} COST 50"),
    ] {
        assert!(!primary.conn().cmd(&words(&line)).is_error());
    }
    replica.wait_synced_with(&primary);
    assert_eq!(cmd!(replica.conn(), "REPLICAOF", "NO", "ONE"), ok());
    primary.kill9();
    shapes.assert_is(&replica);
    replica.clock().advance_ms(3000);
    shapes.assert_stored(&replica);
    assert_verdicts(&replica, |case| case.later);
    // And goes on.
    run(
        &mut replica.conn(),
        &[
            ("RL.GCRA bucket 10 7 60000 COST 6", [1, 10, 0, 0, 82_715]),
            (
                "RL.FIXEDWINDOW fixed 10 60000 COST 6",
                [1, 10, 0, 0, 57_000],
            ),
            ("RL.SLIDINGLOG short 5 30000", [1, 5, 0, 0, 30_000]),
            (
                "RL.SLIDINGLOG long 1200 11000 COST 400",
                [1, 1200, 0, 0, 11_000],
            ),
            (
                "RL.SLIDINGLOG long! 1200 11000",
                [0, 1200, 0, 17_000, 17_000],
            ),
        ],
    );
}

#[test]
fn a_failover_hands_every_shape_over() {
    let primary = own(Options::new());
    let shapes = Shapes::fill(&primary);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    assert_eq!(cmd!(primary.conn(), "FAILOVER"), ok());
    eventually("the roles are exchanged", || {
        replica.info("replication")["role"] == "master"
            && primary.info("replication")["role"] == "slave"
            && primary.info("replication")["master_link_status"] == "up"
    });
    shapes.assert_is(&replica);
    let mut c = replica.conn();
    run(
        &mut c,
        &[(
            "RL.SLIDINGLOG long 1200 11000 COST 100",
            [1, 1200, 0, 0, 11_000],
        )],
    );
    primary.wait_synced_with(&replica);
    assert_eq!(digest(&primary), digest(&replica));
    run(
        &mut primary.conn(),
        &[(
            "RL.PEEK long SLIDINGLOG 1200 11000",
            [0, 1200, 0, 10, 11_000],
        )],
    );
}

#[test]
fn a_promoted_replica_whose_clock_lags_by_an_hour_starves_nobody() {
    let primary = own(Options::new());
    let replica = Options::new().replica_of(&primary).start();
    replica.clock().freeze_at(T_US - HOUR_MS * 1000);
    replica.wait_synced_with(&primary);
    let shapes = Shapes::fill(&primary);
    replica.wait_synced_with(&primary);
    // An hour behind where the primary is now.
    replica.clock().advance_ms(61_000);
    shapes.assert_stored(&replica);
    assert_denials(&replica, Denial::peek);
    assert_eq!(cmd!(replica.conn(), "REPLICAOF", "NO", "ONE"), ok());
    assert_denials(&replica, Denial::peek);
    assert_denials(&replica, Denial::call);
    // Stored as of now: what it says is what it does.
    let at = replica.clock().now_us();
    let other = Options::new().clock(replica.clock()).start();
    let mut o = other.conn();
    for denial in &DENIALS {
        let body = match denial.key {
            "short" => sliding_log((5, 30_000), 0, &[(at as u64, 4)]),
            "long" => sliding_log((1200, 11_000), 200, &[(at as u64, 1300)]),
            key if key.starts_with("short") || key.starts_with("long") => continue,
            _ => denial.stored(at),
        };
        let end = cmd!(replica.conn(), "PEXPIRETIME", denial.key).as_int();
        let restored = cmd!(o, "RESTORE", denial.key, end, limiter_dump(&body), "ABSTTL");
        assert_eq!(restored, ok());
        let mut c = replica.conn();
        assert_eq!(
            digest_of(&mut c, denial.key),
            digest_of(&mut o, denial.key),
            "{}",
            denial.key
        );
    }
}
