//! RL.LEAKYBUCKET: a bucket that says how long to hold what it admits.

use crate::limiter_support::*;
use crate::support::*;

#[test]
fn each_call_is_held_until_the_debt_ahead_of_it_has_drained() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.LEAKYBUCKET k 5 10 1000";
    run(
        &mut c,
        &[
            (line, [1, 5, 4, 0, 100]),
            (line, [1, 5, 3, 100, 200]),
            (line, [1, 5, 2, 200, 300]),
            (line, [1, 5, 1, 300, 400]),
            (line, [1, 5, 0, 400, 500]),
            (line, [0, 5, 0, 100, 500]),
            (line, [0, 5, 0, 100, 500]),
        ],
    );
    server.clock().advance_us(99_999);
    run(&mut c, &[(line, [0, 5, 0, 1, 401])]);
    server.clock().advance_us(1);
    run(&mut c, &[(line, [1, 5, 0, 400, 500])]);
    server.clock().advance_ms(450);
    run(&mut c, &[(line, [1, 5, 3, 50, 150])]);
    server.clock().advance_ms(150);
    run(&mut c, &[(line, [1, 5, 4, 0, 100])]);
}

#[test]
fn its_own_cost_is_no_part_of_the_hold() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.LEAKYBUCKET k 5 10 1000 COST 3", [1, 5, 2, 0, 300]),
            ("RL.LEAKYBUCKET k 5 10 1000 COST 3", [0, 5, 2, 100, 300]),
            ("RL.LEAKYBUCKET k 5 10 1000 COST 2", [1, 5, 0, 300, 500]),
            ("RL.LEAKYBUCKET k 5 10 1000 COST 5", [0, 5, 0, 500, 500]),
        ],
    );
}

#[test]
fn a_peek_says_the_hold_that_the_call_would_get() {
    let server = recorder();
    let mut c = server.conn();
    let three = ("RL.LEAKYBUCKET k 5 10 1000 COST 3", [1, 5, 2, 0, 300]);
    run(&mut c, &[three]);
    answers(
        &server,
        &[
            ("RL.PEEK k LEAKYBUCKET 5 10 1000", five([1, 5, 2, 300, 300])),
            (
                "RL.PEEK k LEAKYBUCKET 5 10 1000 COST 2",
                five([1, 5, 2, 300, 300]),
            ),
            (
                "RL.PEEK k LEAKYBUCKET 5 10 1000 COST 3",
                five([0, 5, 2, 100, 300]),
            ),
            ("RL.PEEK new LEAKYBUCKET 5 10 1000", five([1, 5, 5, 0, 0])),
            // The same bucket, of which the others do not say it.
            ("RL.PEEK k GCRA 5 10 1000 COST 2", five([1, 5, 2, 0, 300])),
        ],
    );
}

#[test]
fn holds_round_up() {
    let server = single();
    let mut c = server.conn();
    // A token drains in 142.857… ms.
    run(
        &mut c,
        &[
            ("RL.LEAKYBUCKET k 10 7 1000", [1, 10, 9, 0, 143]),
            ("RL.LEAKYBUCKET k 10 7 1000", [1, 10, 8, 143, 286]),
            ("RL.LEAKYBUCKET k 10 7 1000", [1, 10, 7, 286, 429]),
        ],
    );
    server.clock().advance_us(1);
    run(
        &mut c,
        &[("RL.PEEK k LEAKYBUCKET 10 7 1000", [1, 10, 7, 429, 429])],
    );
    server.clock().advance_us(571);
    run(
        &mut c,
        &[("RL.PEEK k LEAKYBUCKET 10 7 1000", [1, 10, 7, 428, 428])],
    );
}

#[test]
fn all_buckets_are_one_limiter_to_a_key() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA k 4 10 1000", [1, 4, 3, 0, 100]),
            ("RL.LEAKYBUCKET k 4 10 1000", [1, 4, 2, 100, 200]),
            ("RL.TOKENBUCKET k 4 10 1000", [1, 4, 1, 0, 300]),
            ("RL.LEAKYBUCKET k 4 10 1000", [1, 4, 0, 300, 400]),
            ("RL.GCRA k 4 10 1000", [0, 4, 0, 100, 400]),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "k").field("algorithm"), &bulk("bucket"));
}

/// Whatever the moments at which requests arrive: those that wait as told never act faster than the
/// bucket leaks.
#[test]
fn requests_that_are_held_as_told_act_at_an_even_rate() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(6);
    let start = server.clock().now_us();
    let (mut acts, mut denied) = (Vec::new(), 0);
    for _ in 0..400 {
        let verdict = cmd!(c, "RL.LEAKYBUCKET", "k", 8, 10, 1000);
        let now = server.clock().now_us() - start;
        match verdict.items()[0].as_int() {
            1 => acts.push((now, now + 1000 * verdict.items()[3].as_int())),
            _ => denied += 1,
        }
        if random.below(3) > 0 {
            server.clock().advance_us(random.below(150_000) as i64);
        }
    }
    assert!(acts.len() > 100 && denied > 20, "{}, {denied}", acts.len());
    let mut queued = 0;
    for pair in acts.windows(2) {
        let [(_, first), (came, second)] = [pair[0], pair[1]];
        // Rounded to a ms, each of the two.
        assert!(second - first >= 100_000 - 1000, "{first}, {second}");
        if second > came {
            queued += 1;
            assert!(second - first < 100_000 + 1000, "{first}, {second}");
        }
    }
    assert!(queued > 50, "{queued}");
}
