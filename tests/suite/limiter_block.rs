//! RL.BLOCK: a penalty that denies everything on a key for a time.

use crate::limiter_support::*;
use crate::support::*;

/// A policy of each algorithm with ten a second, its call of cost 4, and when that is forgotten.
const EACH: [(&str, i64); 6] = [
    ("GCRA 10 10 1000", 400),
    ("TOKENBUCKET 10 10 1000", 400),
    ("LEAKYBUCKET 10 10 1000", 400),
    ("FIXEDWINDOW 10 1000", 1000),
    ("SLIDINGWINDOW 10 1000", 2000),
    ("SLIDINGLOG 10 1000", 1000),
];

fn call(policy: &str, cost: i64) -> String {
    let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
    format!("RL.{algorithm} k {numbers} COST {cost}")
}

#[test]
fn everything_is_denied_until_the_block_ends_exactly() {
    let server = recorder();
    let mut c = server.conn();
    for (policy, _) in EACH {
        cmd!(c, "DEL", "k");
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
        let call = call(policy, 4);
        let peek = format!("RL.PEEK k {policy}");
        let all = format!("RL.ALL 1 k {policy}");
        let denied = |ms| [0, 10, 0, ms, ms];
        for (us, left_ms) in [(0, 5000), (1, 5000), (999, 4999), (4_998_999, 1), (1000, 0)] {
            server.clock().advance_us(us);
            if left_ms == 0 {
                break;
            }
            let binding = array([int(0), int(0), five(denied(left_ms))]);
            answers(
                &server,
                &[
                    (&call, five(denied(left_ms))),
                    (&peek, five(denied(left_ms))),
                    (&all, binding),
                    (&format!("RL.REFUND k {policy}"), five(denied(left_ms))),
                ],
            );
        }
        run(&mut c, &[(&peek, [1, 10, 10, 0, 0])]);
        let reply = c.cmd(&words(&call));
        assert_eq!(
            reply.items()[..4],
            [int(1), int(10), int(6), int(0)],
            "{policy}"
        );
    }
}

#[test]
fn wait_and_reset_are_the_longer_of_the_block_and_of_what_is_used() {
    let server = recorder();
    let mut c = server.conn();
    for (policy, reset_ms) in EACH {
        cmd!(c, "DEL", "k");
        c.cmd(&words(&call(policy, 4)));
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 150), int(150));
        let peek = |cost| format!("RL.PEEK k {policy} COST {cost}");
        let wait = |c: &mut Conn, cost: i64| c.cmd(&words(&peek(cost))).items()[3].as_int();
        if policy.starts_with("LEAKYBUCKET") {
            // Has a test of its own, below.
            continue;
        }
        // A call that would fit, and one that would wait for longer than the block lasts.
        let fits = [0, 10, 0, 150, reset_ms.max(150)];
        run(&mut c, &[(&peek(1), fits), (&call(policy, 6), fits)]);
        let unblocked = match policy.split(' ').next().expect("a name") {
            "SLIDINGWINDOW" => 2000,
            "FIXEDWINDOW" | "SLIDINGLOG" => 1000,
            _ => 400,
        };
        assert_eq!(wait(&mut c, 10), unblocked, "{policy}");
        // A longer one than all.
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 7000), int(7000));
        run(&mut c, &[(&call(policy, 10), [0, 10, 0, 7000, 7000])]);
    }
}

/// A call that is denied is not to be held for what is ahead of it: it would be admitted, and then
/// held, when the block is over.
#[test]
fn while_blocked_a_queue_says_when_the_block_ends_and_no_hold() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.LEAKYBUCKET k 10 10 1000 COST 4", [1, 10, 6, 0, 400])],
    );
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 150), int(150));
    let denied = [0, 10, 0, 150, 400];
    run(&mut c, &[("RL.LEAKYBUCKET k 10 10 1000", denied)]);
    run(&mut c, &[("RL.PEEK k LEAKYBUCKET 10 10 1000", denied)]);
    let all = c.cmd(&words("RL.ALL 1 k LEAKYBUCKET 10 10 1000"));
    assert_eq!(all, array([int(0), int(0), five(denied)]));
    // Nor does the hold decide which of several policies binds.
    run(&mut c, &[("RL.GCRA other 1 1 300", [1, 1, 0, 0, 300])]);
    let two = "RL.ALL 2 k other LEAKYBUCKET 10 10 1000 GCRA 1 1 300";
    let other = five([0, 1, 0, 300, 300]);
    let expected = array([int(0), int(1), five(denied), other]);
    assert_eq!(c.cmd(&words(two)), expected);
    let charge = "RL.CHARGE k LEAKYBUCKET 10 10 1000";
    run(&mut c, &[(charge, [0, 10, 0, 150, 500])]);
}

#[test]
fn what_was_used_drains_on_below_a_block() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.GCRA k 10 10 1000 COST 10", [1, 10, 0, 0, 1000])],
    );
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 300), int(300));
    // Denied calls are not counted.
    for _ in 0..10 {
        run(&mut c, &[("RL.GCRA k 10 10 1000", [0, 10, 0, 300, 1000])]);
    }
    server.clock().advance_ms(300);
    run(&mut c, &[("RL.GCRA k 10 10 1000", [1, 10, 2, 0, 800])]);
}

#[test]
fn a_later_one_never_shortens_and_may_lengthen() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
    server.clock().advance_us(1_000_500);
    answers(
        &server,
        &[
            ("RL.BLOCK k 1", int(4000)),
            ("RL.BLOCK k 3999", int(4000)),
            ("RL.PEEK k GCRA 1 1 1000", five([0, 1, 0, 4000, 4000])),
        ],
    );
    // The last half of a ms is one ms more.
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 4000), int(4000));
    server.clock().advance_us(3_999_999);
    run(&mut c, &[("RL.PEEK k GCRA 1 1 1000", [0, 1, 0, 1, 1])]);
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 10_000), int(10_000));
    run(&mut c, &[("RL.GCRA k 1 1 1000", [0, 1, 0, 10_000, 10_000])]);
    server.clock().advance_us(9_999_999);
    run(&mut c, &[("RL.GCRA k 1 1 1000", [0, 1, 0, 1, 1])]);
    server.clock().advance_us(1);
    run(&mut c, &[("RL.GCRA k 1 1 1000", [1, 1, 0, 0, 1000])]);
}

#[test]
fn a_reset_lifts_a_block() {
    let server = single();
    let mut c = server.conn();
    for (policy, _) in EACH {
        cmd!(c, "DEL", "k");
        assert_eq!(cmd!(c, "RL.BLOCK", "unused", 5000), int(5000));
        c.cmd(&words(&call(policy, 4)));
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
        assert_eq!(cmd!(c, "RL.RESET", "k", "unused", "k"), int(2));
        assert_eq!(cmd!(c, "EXISTS", "k", "unused"), int(0));
        let peek = format!("RL.PEEK k {policy}");
        run(&mut c, &[(&peek, [1, 10, 10, 0, 0])]);
    }
}

#[test]
fn info_shows_a_block_of_an_unused_key_and_of_each_algorithm() {
    let server = single();
    let (mut two, mut three) = (server.conn(), server.conn3());
    cmd!(two, "RL.BLOCK", "unused", 5000);
    server.clock().advance_us(999_001);
    let pairs = [("algorithm", bulk("none")), ("blocked_ms", int(4001))];
    let flat = pairs.clone().into_iter().flat_map(|(f, v)| [bulk(f), v]);
    assert_eq!(cmd!(two, "RL.INFO", "unused"), array(flat));
    let map = pairs.map(|(field, value)| (bulk(field), value)).to_vec();
    assert_eq!(cmd!(three, "RL.INFO", "unused"), Reply::Map(map));
    server.clock().advance_us(4_000_999);
    assert_eq!(cmd!(two, "EXISTS", "unused"), int(1), "within the slack");
    assert_eq!(cmd!(two, "RL.INFO", "unused"), nil());

    for (policy, reset_ms) in EACH {
        cmd!(two, "DEL", "k");
        two.cmd(&words(&call(policy, 4)));
        cmd!(two, "RL.BLOCK", "k", 5000);
        let info = cmd!(two, "RL.INFO", "k");
        // Of what is used below the block, and the longer of the two times.
        assert_eq!(info.field("blocked_ms"), &int(5000), "{policy}");
        let name = if policy.contains("WINDOW") || policy.contains("LOG") {
            policy.split(' ').next().expect("a name")
        } else {
            "bucket"
        };
        assert_eq!(info.field("algorithm"), &bulk(name), "{policy}");
        let limit_and_left = ["limit", "remaining", "reset_ms"].map(|f| info.field(f).as_int());
        assert_eq!(limit_and_left, [10, 0, 5000], "{policy}");
        server.clock().advance_ms(reset_ms);
        // What was used has drained: the key is as good as one that is only blocked.
        let left = [
            ("algorithm", bulk("none")),
            ("blocked_ms", int(5000 - reset_ms)),
        ];
        let flat = left.into_iter().flat_map(|(f, v)| [bulk(f), v]);
        assert_eq!(cmd!(two, "RL.INFO", "k"), array(flat), "{policy}");
    }
}

#[test]
fn any_algorithm_may_be_used_on_a_key_that_is_blocked_and_not_used() {
    let server = single();
    let mut c = server.conn();
    for (policy, _) in EACH {
        cmd!(c, "DEL", "k");
        cmd!(c, "RL.BLOCK", "k", 100);
        for (other, _) in EACH {
            let peek = format!("RL.PEEK k {other}");
            run(&mut c, &[(&peek, [0, 10, 0, 100, 100])]);
        }
        server.clock().advance_ms(100);
        let reply = c.cmd(&words(&call(policy, 4)));
        assert_eq!(reply.items()[2], int(6), "{policy}");
    }
}

#[test]
fn the_key_lives_as_long_as_the_block_or_the_state_needs() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    let expires = |c: &mut Conn| cmd!(c, "PEXPIRETIME", "k").as_int();
    cmd!(c, "RL.BLOCK", "k", 60_000);
    assert_eq!(expires(&mut c), deadline_ms(start, 60_000_000));
    cmd!(c, "RL.BLOCK", "k", 90_000);
    assert_eq!(expires(&mut c), deadline_ms(start, 90_000_000));
    assert_same(&chain);
    // A charge that drains later.
    cmd!(c, "RL.CHARGE", "k", "GCRA", 10, 1, HOUR_MS, "COST", 3);
    assert_eq!(expires(&mut c), deadline_ms(start, 3 * HOUR_MS * 1000));
    cmd!(c, "RL.REFUND", "k", "GCRA", 10, 1, HOUR_MS, "COST", 3);
    assert_eq!(expires(&mut c), deadline_ms(start, 90_000_000));
    assert_same(&chain);
    chain.clock().advance_ms(90_002 + SLACK_MS);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    // A foreign PERSIST prolongs nothing.
    cmd!(c, "RL.BLOCK", "k", 1000);
    cmd!(c, "PERSIST", "k");
    chain.clock().advance_ms(1000);
    run(&mut c, &[("RL.GCRA k 1 1 1000", [1, 1, 0, 0, 1000])]);
    assert_same(&chain);
}

#[test]
fn after_a_step_back_a_block_lasts_no_longer_than_its_own_length() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let peek = "RL.PEEK k GCRA 1 1 1000";
    cmd!(c, "RL.BLOCK", "k", 5000);
    chain.clock().advance_ms(-HOUR_MS);
    run(&mut c, &[(peek, [0, 1, 0, 5000, 5000])]);
    // A peek moves nothing; a call does, and then it counts from there.
    chain.clock().advance_ms(1000);
    run(
        &mut c,
        &[
            (peek, [0, 1, 0, 5000, 5000]),
            ("RL.GCRA k 1 1 1000", [0, 1, 0, 5000, 5000]),
        ],
    );
    assert_same(&chain);
    chain.clock().advance_us(4_999_999);
    run(&mut c, &[("RL.GCRA k 1 1 1000", [0, 1, 0, 1, 1])]);
    chain.clock().advance_us(1);
    run(&mut c, &[("RL.GCRA k 1 1 1000", [1, 1, 0, 0, 1000])]);
    assert_same(&chain);
}

/// As every write does, whatever it writes.
#[test]
fn after_a_step_back_a_block_moves_what_is_used_to_now_too() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for (policy, reset_ms) in EACH {
        cmd!(c, "DEL", "k");
        c.cmd(&words(&call(policy, 4)));
        chain.clock().advance_ms(-HOUR_MS);
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 100), int(100));
        assert_same(&chain);
        chain.clock().advance_ms(reset_ms);
        let peek = format!("RL.PEEK k {policy}");
        run(&mut c, &[(&peek, [1, 10, 10, 0, 0])]);
    }
}

/// A refund to what is full, and a shorter block: what they find ahead of the clock they move.
#[test]
fn after_a_step_back_writes_that_give_nothing_move_a_block_to_now() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for line in ["RL.BLOCK k 1000", "RL.REFUND k GCRA 1 1 1000"] {
        cmd!(c, "DEL", "k");
        cmd!(c, "RL.BLOCK", "k", 5000);
        chain.clock().advance_ms(-HOUR_MS);
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        assert_same(&chain);
        chain.clock().advance_us(4_999_999);
        run(&mut c, &[("RL.PEEK k GCRA 1 1 1000", [0, 1, 0, 1, 1])]);
        chain.clock().advance_us(1);
        run(&mut c, &[("RL.PEEK k GCRA 1 1 1000", [1, 1, 1, 0, 0])]);
    }
}

#[test]
fn after_a_step_back_a_shorter_one_leaves_no_line_in_the_log() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
    server.clock().advance_ms(-HOUR_MS);
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 1000), int(5000));
    assert_eq!(cmd!(c, "PING"), status("PONG"));
    assert_eq!(server.log().matches("RL.BLOCK").count(), 1);
}

#[test]
fn a_block_is_a_change_and_goes_to_replicas() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    cmd!(c, "RL.BLOCK", "k", 5000);
    let body = blocked(now, now + 5_000_000, UNUSED);
    assert_eq!(tap.take(), [limiter_effect("k", now, &body)]);
    cmd!(c, "RL.BLOCK", "k", 4000);
    assert!(tap.take().is_empty());
    assert_same(&chain);
    let mut r = chain.replica.conn();
    run(
        &mut r,
        &[("RL.PEEK k GCRA 1 1 1000", [0, 1, 0, 5000, 5000])],
    );
}

/// Operators' commands leave a log line.
#[test]
fn a_block_leaves_a_line_in_the_log() {
    let server = recorder();
    let mut c = server.conn();
    let id = c.client_id();
    assert_eq!(cmd!(c, "RL.BLOCK", b"a\n\xff", 5000), int(5000));
    let line = |ms| format!("<sluice> RL.BLOCK \"a\\n\\xff\" for {ms} ms by client id={id} addr=");
    server.wait_log(&line(5000));
    assert_eq!(cmd!(c, "RL.BLOCK", b"a\n\xff", 4000), int(5000));
    assert_eq!(cmd!(c, "RL.BLOCK", b"a\n\xff", 6000), int(6000));
    server.wait_log(&line(6000));
    assert_eq!(server.log().matches("RL.BLOCK").count(), 2);
    assert_eq!(counter(&server, "rl_blocks"), 3);
}

#[test]
fn times_out_of_range_are_refused() {
    let server = half_used();
    let lines: Vec<_> = no_integers_up_to(MAX_PERIOD_MS as u64)
        .iter()
        .map(|text| format!("RL.BLOCK k {text}"))
        .collect();
    let error = "ERR ms must be an integer between 1 and 31536000000";
    refuses(&server, error, &lines);
    refuses(
        &server,
        &wrong_arity("rl.block"),
        &[
            "RL.BLOCK",
            "RL.BLOCK k",
            "RL.BLOCK k 5 5",
            "RL.BLOCK k 5 NX",
        ],
    );
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.BLOCK", "k", MAX_PERIOD_MS), int(MAX_PERIOD_MS));
    assert_eq!(cmd!(c, "RL.BLOCK", "new", 1), int(1));
}
