//! Limiters in a server that is full: what gives back still works, the rest says so, and eviction
//! takes any of them.

use crate::limiter_shapes::*;
use crate::limiter_support::*;
use crate::support::*;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn over_maxmemory_refunds_and_resets_work_and_whatever_counts_does_not() {
    let server = recorder();
    Shapes::fill(&server);
    let mut c = server.conn();
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 1), ok());
    for case in &CASES {
        let (algorithm, numbers) = case.policy.split_once(' ').expect("a policy");
        let (key, policy) = (case.key, case.policy);
        let lines = [
            format!("RL.{algorithm} {key} {numbers}"),
            format!("RL.CHARGE {key} {policy}"),
            format!("RL.ALL 1 {key} {policy}"),
            format!("RL.BLOCK {key} 100000"),
            format!("CL.THROTTLE {key} 4 5 60"),
        ];
        let error = err(OOM);
        answers(
            &server,
            &lines.each_ref().map(|line| (line.as_str(), error.clone())),
        );
        // Reads work.
        run(&mut c, &[(&format!("RL.PEEK {key} {policy}"), case.now)]);
        assert!(!cmd!(c, "RL.INFO", key).is_nil(), "{key}");
    }
    // A block is not lifted: the refund is stored below it.
    let limits = |key: &str, line: &str, expected: [i64; 5]| {
        run(
            &mut server.conn(),
            &[(&format!("RL.REFUND {key} {line}"), expected)],
        );
    };
    limits("bucket", "GCRA 10 7 60000 COST 3", [1, 10, 9, 0, 8572]);
    limits(
        "bucket!",
        "GCRA 10 7 60000 COST 3",
        [0, 10, 0, 20_000, 20_000],
    );
    limits("overdraft", "GCRA 5 5 60000 COST 21", [1, 5, 3, 0, 24_000]);
    limits(
        "overdraft!",
        "GCRA 5 5 60000 COST 21",
        [0, 5, 0, 20_000, 24_000],
    );
    limits(
        "fixed",
        "FIXEDWINDOW 10 60000 COST 3",
        [1, 10, 9, 0, 60_000],
    );
    limits(
        "fixed!",
        "FIXEDWINDOW 10 60000 COST 3",
        [0, 10, 0, 20_000, 60_000],
    );
    limits(
        "sliding",
        "SLIDINGWINDOW 10 60000 COST 5",
        [1, 10, 5, 0, 59_000],
    );
    limits(
        "sliding!",
        "SLIDINGWINDOW 10 60000 COST 5",
        [0, 10, 0, 20_000, 59_000],
    );
    limits("short", "SLIDINGLOG 5 30000 COST 3", [1, 5, 4, 0, 17_000]);
    limits(
        "short!",
        "SLIDINGLOG 5 30000 COST 3",
        [0, 5, 0, 20_000, 20_000],
    );
    limits(
        "long",
        "SLIDINGLOG 1200 11000 COST 700",
        [1, 1200, 800, 0, 4000],
    );
    limits(
        "long!",
        "SLIDINGLOG 1200 11000 COST 700",
        [0, 1200, 0, 20_000, 20_000],
    );
    limits("only!", "GCRA 5 5 60000", [0, 5, 0, 20_000, 20_000]);
    // To nothing used: the key goes.
    limits("fixed", "FIXEDWINDOW 10 60000", [1, 10, 10, 0, 0]);
    assert_eq!(cmd!(c, "EXISTS", "fixed"), int(0));
    let mut reset = args!["RL.RESET"];
    reset.extend(CASES.iter().map(|case| case.key.as_bytes().to_vec()));
    assert_eq!(c.cmd(&reset), int(CASES.len() as i64 - 1));
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn eviction_takes_limiters_of_every_shape() {
    let chain = chain();
    Shapes::fill(&chain.primary);
    let mut c = chain.primary.conn();
    for (name, value) in [("maxmemory-policy", "allkeys-random"), ("maxmemory", "1")] {
        assert_eq!(cmd!(c, "CONFIG", "SET", name, value), ok());
    }
    eventually("all are evicted", || {
        // A call that would have to make room for itself.
        let reply = cmd!(c, "RL.CHARGE", "new", "FIXEDWINDOW", 5, 1000);
        assert!(!reply.is_error() || reply == err(OOM), "{reply:?}");
        cmd!(c, "DBSIZE") == int(0)
    });
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
    assert_eq!(counter(&chain.primary, "rl_keys"), 0);
    assert_same(&chain);
    assert_verdicts(&chain.primary, |case| [1, case.now[1], case.now[1], 0, 0]);
}
