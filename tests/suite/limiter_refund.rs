//! RL.REFUND: what is given back.

use crate::limiter_support::*;
use crate::support::*;

/// A policy of each algorithm with ten a second, and when a call of ten is forgotten.
const EACH: [(&str, i64); 6] = [
    ("GCRA 10 10 1000", 1000),
    ("TOKENBUCKET 10 10 1000", 1000),
    ("LEAKYBUCKET 10 10 1000", 1000),
    ("FIXEDWINDOW 10 1000", 1000),
    ("SLIDINGWINDOW 10 1000", 2000),
    ("SLIDINGLOG 10 1000", 1000),
];

#[test]
fn a_refund_gives_back_after_draining_and_at_most_all() {
    let server = recorder();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA k 10 10 1000 COST 8", [1, 10, 2, 0, 800]),
            ("RL.REFUND k GCRA 10 10 1000 COST 3", [1, 10, 5, 0, 500]),
            ("RL.REFUND k TOKENBUCKET 10 10 1000", [1, 10, 6, 0, 400]),
        ],
    );
    server.clock().advance_ms(150);
    run(
        &mut c,
        &[
            ("RL.REFUND k GCRA 10 10 1000 COST 2", [1, 10, 9, 0, 50]),
            (
                "RL.REFUND k LEAKYBUCKET 10 10 1000 COST 1000000000",
                [1, 10, 10, 0, 0],
            ),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    answers(
        &server,
        &[("RL.REFUND k GCRA 10 10 1000", five([1, 10, 10, 0, 0]))],
    );
}

#[test]
fn a_refund_shortens_an_overdraft() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            (
                "RL.CHARGE k GCRA 10 10 1000 COST 25",
                [0, 10, 0, 1500, 2500],
            ),
            ("RL.REFUND k GCRA 10 10 1000 COST 10", [1, 10, 0, 0, 1500]),
            ("RL.GCRA k 10 10 1000", [0, 10, 0, 600, 1500]),
            ("RL.REFUND k GCRA 10 10 1000 COST 10", [1, 10, 5, 0, 500]),
        ],
    );
}

#[test]
fn a_refund_takes_the_newest_first() {
    let server = single();
    let mut c = server.conn();
    // Of a fixed window there is one count only.
    run(
        &mut c,
        &[
            ("RL.FIXEDWINDOW f 10 1000 COST 8", [1, 10, 2, 0, 1000]),
            (
                "RL.REFUND f FIXEDWINDOW 10 1000 COST 3",
                [1, 10, 5, 0, 1000],
            ),
            ("RL.SLIDINGWINDOW s 10 1000 COST 6", [1, 10, 4, 0, 2000]),
            ("RL.SLIDINGLOG l 10 1000 COST 4", [1, 10, 6, 0, 1000]),
        ],
    );
    server.clock().advance_ms(200);
    run(
        &mut c,
        &[("RL.SLIDINGLOG l 10 1000 COST 3", [1, 10, 3, 0, 1000])],
    );
    server.clock().advance_ms(200);
    run(
        &mut c,
        &[
            ("RL.SLIDINGLOG l 10 1000 COST 2", [1, 10, 1, 0, 1000]),
            // Both of the last, two of the middle one: it is the last then.
            ("RL.REFUND l SLIDINGLOG 10 1000 COST 4", [1, 10, 5, 0, 800]),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "l").field("entries"), &int(2));
    server.clock().advance_us(599_999);
    run(
        &mut c,
        &[("RL.PEEK l SLIDINGLOG 10 1000", [1, 10, 5, 0, 201])],
    );
    server.clock().advance_us(1);
    run(
        &mut c,
        &[("RL.PEEK l SLIDINGLOG 10 1000", [1, 10, 9, 0, 200])],
    );
    server.clock().advance_ms(500);
    // Three of the six weigh: seven more, of which the refund takes all before it takes of them.
    run(
        &mut c,
        &[
            ("RL.SLIDINGWINDOW s 10 1000 COST 7", [1, 10, 0, 0, 1500]),
            (
                "RL.REFUND s SLIDINGWINDOW 10 1000 COST 2",
                [1, 10, 2, 0, 1500],
            ),
            (
                "RL.REFUND s SLIDINGWINDOW 10 1000 COST 6",
                [1, 10, 7, 0, 500],
            ),
            (
                "RL.REFUND s SLIDINGWINDOW 10 1000 COST 5",
                [1, 10, 10, 0, 0],
            ),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "s"), int(0));
}

#[test]
fn a_refund_of_all_is_a_deletion() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for (policy, _) in EACH {
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        cmd!(c, "DEL", "k");
        c.cmd(&words(&format!("RL.{algorithm} k {numbers} COST 3")));
        let mut tap = Tap::on(&chain);
        let refund = format!("RL.REFUND k {policy} COST 3");
        run(&mut c, &[(&refund, [1, 10, 10, 0, 0])]);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "{policy}");
        assert_eq!(tap.take(), [args!["DEL", "k"]], "{policy}");
        // And to what is full, nothing.
        run(&mut c, &[(&refund, [1, 10, 10, 0, 0])]);
        assert!(tap.take().is_empty(), "{policy}");
        assert_same(&chain);
    }
}

#[test]
fn a_refund_to_what_is_drained_writes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    for (policy, reset_ms) in EACH {
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        cmd!(c, "DEL", "k");
        c.cmd(&words(&format!("RL.{algorithm} k {numbers} COST 10")));
        // Within the slack the key is still there.
        server.clock().advance_ms(reset_ms);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
        let refund = format!("RL.REFUND k {policy} COST 3");
        answers(&server, &[(&refund, five([1, 10, 10, 0, 0]))]);
    }
}

#[test]
fn a_refund_while_blocked_gives_back_and_lifts_no_block() {
    let server = recorder();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.GCRA k 10 10 60000 COST 10", [1, 10, 0, 0, 60_000])],
    );
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
    run(
        &mut c,
        &[
            ("RL.REFUND k GCRA 10 10 60000", [0, 10, 0, 5000, 54_000]),
            (
                "RL.REFUND k GCRA 10 10 60000 COST 9",
                [0, 10, 0, 5000, 5000],
            ),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
    answers(
        &server,
        &[("RL.REFUND k GCRA 10 10 60000", five([0, 10, 0, 5000, 5000]))],
    );
    server.clock().advance_ms(5000);
    run(&mut c, &[("RL.PEEK k GCRA 10 10 60000", [1, 10, 10, 0, 0])]);
}
