//! The limiters and the clock: waits that are exact, policies that change, clocks that step, and
//! keys that live as long as they matter.

use crate::limiter_support::*;
use crate::support::*;

/// The key's absolute expiry in ms.
fn expires_at(conn: &mut Conn, key: &str) -> i64 {
    cmd!(conn, "PEXPIRETIME", key).as_int()
}

// --- waits ---

/// Policies of every kind: burst, count, period in ms, and the cost that is asked for.
const POLICIES: [[u128; 4]; 14] = [
    [1, 1, 1000, 1],
    [5, 1, 1000, 3],
    [10, 10, 1000, 10],
    [3, 7, 1000, 1],
    [3, 7, 1000, 2],
    [100, 97, 60_011, 41],
    [6, 6, 60_000, 1],
    [1, 10_000, 1000, 1],
    [10, 7000, 1000, 1],
    [10, 3_000_000, 1000, 7],
    [1, 1, 1, 1],
    [1_000_000_000, 1_000_000_000, 31_536_000_000, 999_999_999],
    [100, 1, 31_536_000_000, 100],
    [7, 1_000_000_000, 31_536_000_000, 5],
];

#[test]
fn a_retry_exactly_after_the_wait_is_admitted_and_a_millisecond_before_denied() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        let [burst, count, period, cost] = policy;
        for command in ["RL.GCRA", "RL.TOKENBUCKET"] {
            cmd!(c, "DEL", "k");
            cmd!(c, command, "k", burst, count, period, "COST", burst);
            let line = args![command, "k", burst, count, period, "COST", cost];
            let verdict = c.cmd(&line);
            let (admitted, wait_ms) = (verdict.items()[0].as_int(), verdict.items()[3].as_int());
            assert_eq!(admitted, 0, "{policy:?}");
            assert!(wait_ms >= 1, "{policy:?}");
            server.clock().advance_ms(wait_ms - 1);
            let early = c.cmd(&line);
            assert_eq!(early.items()[0], int(0), "{policy:?}");
            assert_eq!(early.items()[3], int(1), "{policy:?}");
            server.clock().advance_ms(1);
            assert_eq!(c.cmd(&line).items()[0], int(1), "{policy:?}");
        }
    }
}

#[test]
fn waits_are_exact_to_the_microsecond() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        let [burst, count, period, cost] = policy;
        cmd!(c, "DEL", "k");
        cmd!(c, "RL.GCRA", "k", burst, count, period, "COST", burst);
        let line = args!["RL.GCRA", "k", burst, count, period, "COST", cost];
        let wait_us = (cost * period * 1000).div_ceil(count) as i64;
        assert_eq!(
            c.cmd(&line).items()[3],
            int((wait_us + 999) / 1000),
            "{policy:?}"
        );
        server.clock().advance_us(wait_us - 1);
        let early = c.cmd(&line);
        assert_eq!(early.items()[0], int(0), "{policy:?}");
        assert_eq!(early.items()[3], int(1), "{policy:?}");
        server.clock().advance_us(1);
        assert_eq!(c.cmd(&line).items()[0], int(1), "{policy:?}");
    }
}

#[test]
fn a_reset_time_is_when_the_whole_limit_is_back_to_the_microsecond() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        let [burst, count, period, cost] = policy;
        cmd!(c, "DEL", "k");
        let verdict = cmd!(c, "RL.GCRA", "k", burst, count, period, "COST", cost);
        let reset_us = (cost * period * 1000).div_ceil(count) as i64;
        assert_eq!(
            verdict.items()[4],
            int((reset_us + 999) / 1000),
            "{policy:?}"
        );
        let whole = args!["RL.PEEK", "k", "GCRA", burst, count, period, "COST", burst];
        server.clock().advance_us(reset_us - 1);
        let peek = c.cmd(&whole);
        assert_eq!(peek.items()[0], int(0), "{policy:?}");
        assert_eq!(peek.items()[4], int(1), "{policy:?}");
        assert!(!cmd!(c, "RL.INFO", "k").is_nil());
        server.clock().advance_us(1);
        let full = five([1, burst as i64, burst as i64, 0, 0]);
        assert_eq!(c.cmd(&whole), full, "{policy:?}");
        assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    }
}

#[test]
fn a_thousand_waits_do_not_drift() {
    // 7 per second: 142,857.14 µs each. The n-th admission is due ceil(n · 10^6 / 7) µs after the
    // bucket was full, however many there were in between.
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let line = words("RL.GCRA k 5 7 1000");
    assert_eq!(admitted(&mut c, "RL.GCRA k 5 7 1000", 6), 5);
    for n in 1..=1000 {
        let due = start + (n * 1_000_000 + 6) / 7;
        server.clock().freeze_at(due - 1);
        assert_eq!(c.cmd(&line).items()[0], int(0), "1 µs before admission {n}");
        server.clock().freeze_at(due);
        assert_eq!(c.cmd(&line).items()[0], int(1), "admission {n}");
    }
}

#[test]
fn a_rate_beyond_one_per_microsecond_is_exact() {
    let server = single();
    let mut c = server.conn();
    for (per_second, us, expected) in [
        (3_000_000, 1, 3),
        (3_000_000, 7, 21),
        (2_500_000, 1, 2),
        (2_500_000, 2, 5),
        (7_000, 1000, 7),
        (999_999_999, 1, 999),
        (1_000_000_000, 1, 1000),
    ] {
        cmd!(c, "DEL", "k");
        let line = format!("RL.GCRA k 5000 {per_second} 1000");
        cmd!(c, "RL.GCRA", "k", 5000, per_second, 1000, "COST", 5000);
        server.clock().advance_us(us);
        assert_eq!(
            admitted(&mut c, &line, 1200),
            expected,
            "{per_second}/s in {us} µs"
        );
    }
}

// --- policies that change on a live key ---

#[test]
fn a_slower_policy_finds_the_debt_in_tokens() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 9 10 60000", 10), 9);
    let hour = "RL.GCRA k 9 10 3600000";
    run(&mut c, &[(hour, [0, 9, 0, 360_000, 3_240_000])]);
    server.clock().advance_ms(359_999);
    run(&mut c, &[(hour, [0, 9, 0, 1, 2_880_001])]);
    server.clock().advance_ms(1);
    run(
        &mut c,
        &[
            (hour, [1, 9, 0, 0, 3_240_000]),
            (hour, [0, 9, 0, 360_000, 3_240_000]),
        ],
    );
}

#[test]
fn a_faster_policy_locks_nobody_out() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 9 10 3600000", 10), 9);
    let minute = "RL.GCRA k 9 10 60000";
    run(&mut c, &[(minute, [0, 9, 0, 6000, 54_000])]);
    server.clock().advance_ms(6000);
    run(&mut c, &[(minute, [1, 9, 0, 0, 54_000])]);
}

#[test]
fn a_raised_limit_holds_from_the_next_call() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 100 100 60000", 101), 100);
    assert_eq!(admitted(&mut c, "RL.GCRA k 200 200 60000", 101), 100);
    run(
        &mut c,
        &[("RL.GCRA k 200 200 60000", [0, 200, 0, 300, 60_000])],
    );
}

#[test]
fn a_lowered_limit_owes_no_more_than_itself() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 200 200 60000", 201), 200);
    run(
        &mut c,
        &[("RL.GCRA k 50 50 60000", [0, 50, 0, 1200, 60_000])],
    );
    server.clock().advance_ms(1199);
    run(&mut c, &[("RL.GCRA k 50 50 60000", [0, 50, 0, 1, 58_801])]);
    server.clock().advance_ms(1);
    run(&mut c, &[("RL.GCRA k 50 50 60000", [1, 50, 0, 0, 60_000])]);
    // Half used is half used, if that fits.
    cmd!(c, "DEL", "k");
    run(
        &mut c,
        &[
            ("RL.GCRA k 200 200 60000 COST 30", [1, 200, 170, 0, 9000]),
            ("RL.GCRA k 50 50 60000", [1, 50, 19, 0, 37_200]),
        ],
    );
}

#[test]
fn a_denial_stores_no_policy_and_no_debt() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    let digest = digest_of(&mut c, "k");
    run(
        &mut c,
        &[
            ("RL.GCRA k 2 10 60000", [0, 2, 0, 6000, 12_000]),
            ("RL.GCRA k 9 10 3600000", [0, 9, 0, 360_000, 3_240_000]),
            (
                "RL.TOKENBUCKET k 1 1000000000 31536000000",
                [0, 1, 0, 32, 32],
            ),
        ],
    );
    assert_eq!(digest_of(&mut c, "k"), digest);
    let info = cmd!(c, "RL.INFO", "k");
    assert_eq!(info.field("limit"), &int(9));
    assert_eq!(info.field("period_ms"), &int(60_000));
    server.clock().advance_ms(6000);
    run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 0, 0, 54_000])]);
}

#[test]
fn a_debt_is_converted_exactly_and_rounded_up_to_a_tick() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(99);
    for round in 0..200 {
        cmd!(c, "DEL", "k");
        let (capacity, count, period) = (
            random.below(50) + 1,
            random.below(1000) + 1,
            random.below(5000) + 1,
        );
        let cost = random.below(capacity) + 1;
        cmd!(c, "RL.GCRA", "k", capacity, count, period, "COST", cost);
        let idle_us = random.below(20_000);
        server.clock().advance_us(idle_us as i64);
        let (new_capacity, new_count, new_period) = (
            random.below(50) + 1,
            random.below(1000) + 1,
            random.below(5000) + 1,
        );
        let peek = cmd!(
            c,
            "RL.PEEK",
            "k",
            "TOKENBUCKET",
            new_capacity,
            new_count,
            new_period
        );

        let debt = u128::from(cost) * u128::from(period) * 1000;
        let token = u128::from(new_period) * 1000;
        let same = (capacity, count, period) == (new_capacity, new_count, new_period);
        let mut owed = match same {
            true => debt,
            false => (debt * token).div_ceil(u128::from(period) * 1000),
        };
        let full = u128::from(new_capacity) * token;
        owed = owed
            .min(full)
            .saturating_sub(u128::from(idle_us * new_count));
        let over = (owed + token).saturating_sub(full);
        let ms = |ticks: u128| ticks.div_ceil(u128::from(new_count)).div_ceil(1000) as i64;
        let expected = [
            i64::from(over == 0),
            new_capacity as i64,
            ((full - owed) / token) as i64,
            ms(over),
            ms(owed),
        ];
        // The key may be gone, where its own policy drained it more than the slack ago.
        if cmd!(c, "EXISTS", "k") == int(1) {
            assert_eq!(peek, five(expected), "round {round}");
        }
    }
}

// --- clocks that step back ---

#[test]
fn after_a_step_back_nobody_is_locked_out_and_nobody_gets_a_free_burst() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.GCRA k 5 5 1000";
    for step_ms in [1, 999, 1000, HOUR_MS, 24 * HOUR_MS] {
        cmd!(c, "DEL", "k");
        assert_eq!(admitted(&mut c, line, 6), 5);
        server.clock().advance_ms(-step_ms);
        run(&mut c, &[(line, [0, 5, 0, 200, 1000])]);
        server.clock().advance_ms(199);
        run(&mut c, &[(line, [0, 5, 0, 1, 801])]);
        server.clock().advance_ms(1);
        run(
            &mut c,
            &[(line, [1, 5, 0, 0, 1000]), (line, [0, 5, 0, 200, 1000])],
        );
        server.clock().advance_ms(1000);
        assert_eq!(
            admitted(&mut c, line, 6),
            5,
            "after a step back by {step_ms} ms"
        );
    }
}

#[test]
fn an_admission_after_a_step_back_counts_from_now() {
    let server = single();
    let mut c = server.conn();
    run(&mut c, &[("RL.GCRA k 5 5 1000 COST 3", [1, 5, 2, 0, 600])]);
    server.clock().advance_ms(-HOUR_MS);
    run(&mut c, &[("RL.GCRA k 5 5 1000", [1, 5, 1, 0, 800])]);
    let end = deadline_ms(server.clock().now_us(), 800_000);
    assert_eq!(expires_at(&mut c, "k"), end);
    server.clock().advance_ms(800);
    run(&mut c, &[("RL.PEEK k GCRA 5 5 1000", [1, 5, 5, 0, 0])]);
}

#[test]
fn a_denial_after_a_step_back_moves_the_state_to_now_and_propagates_that() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let policy = (2, 1, 60_000);
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000 COST 2", [1, 2, 0, 0, 120_000])],
    );
    let mut tap = Tap::on(&chain);
    chain.clock().advance_ms(-HOUR_MS);
    let now = chain.clock().now_us();
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000", [0, 2, 0, 60_000, 120_000])],
    );
    let rebased = Bucket::owing(2, now, policy);
    assert_eq!(tap.take(), [rebased.effect_on("k", now)]);
    assert_eq!(expires_at(&mut c, "k"), deadline_ms(now, 120_000_000));
    assert_same(&chain);
    // Once: it is not ahead of the clock any more.
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000", [0, 2, 0, 60_000, 120_000])],
    );
    chain.clock().advance_ms(10_000);
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000", [0, 2, 0, 50_000, 110_000])],
    );
    assert!(tap.take().is_empty());
    // A step back that does not reach the stored time is none to the key.
    chain.clock().advance_ms(-9_999);
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000", [0, 2, 0, 59_999, 119_999])],
    );
    assert!(tap.take().is_empty());
    assert_same(&chain);
    // The first one after it was back is aborted by nothing but the rebase.
    for (step_us, aborted) in [(0, false), (-1001, true), (0, false)] {
        let mut watcher = chain.primary.conn();
        assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
        chain.clock().advance_us(step_us);
        assert_eq!(cmd!(c, "RL.GCRA", "k", 2, 1, 60_000).items()[0], int(0));
        assert_eq!(watcher.multi(&[]).is_nil(), aborted, "{step_us}");
    }
}

#[test]
fn a_denial_by_another_policy_after_a_step_back_keeps_the_stored_one() {
    let chain = chain();
    let mut c = chain.primary.conn();
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    chain.clock().advance_ms(-HOUR_MS);
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    run(&mut c, &[("RL.GCRA k 4 10 60000", [0, 4, 0, 6000, 24_000])]);
    let rebased = Bucket::owing(9, now, (9, 10, 60_000));
    assert_eq!(tap.take(), [rebased.effect_on("k", now)]);
    chain.clock().advance_ms(6000);
    run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 0, 0, 54_000])]);
    assert_same(&chain);
}

#[test]
fn a_denial_by_a_slower_policy_after_a_step_back_keeps_the_key_long_enough() {
    let server = single();
    let mut c = server.conn();
    let hour = "RL.GCRA k 9 10 3600000";
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    server.clock().advance_ms(-HOUR_MS);
    run(&mut c, &[(hour, [0, 9, 0, 360_000, 3_240_000])]);
    let ttl = cmd!(c, "PTTL", "k").as_int();
    assert!(
        ttl >= 3_240_000,
        "the key goes in {ttl} ms, with 9 of 9 owed for 3,240,000 ms"
    );
    server.clock().advance_ms(359_999);
    run(&mut c, &[(hour, [0, 9, 0, 1, 2_880_001])]);
}

#[test]
fn a_peek_after_a_step_back_computes_as_if_and_stores_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 5, 5, 1000, "COST", 5);
    server.clock().advance_ms(-HOUR_MS);
    for _ in 0..3 {
        answers(
            &server,
            &[
                ("RL.PEEK k GCRA 5 5 1000", five([0, 5, 0, 200, 1000])),
                (
                    "RL.PEEK k GCRA 5 5 1000 COST 5",
                    five([0, 5, 0, 1000, 1000]),
                ),
                ("RL.PEEK k TOKENBUCKET 7 7 7000", five([1, 7, 2, 0, 5000])),
            ],
        );
        let info = changes_nothing(&server, || cmd!(c, "RL.INFO", "k"));
        assert_eq!(info.field("remaining"), &int(0));
        assert_eq!(info.field("reset_ms"), &int(1000));
        // Nobody stored anything, so it still is ahead of the clock.
        server.clock().advance_ms(100);
    }
    run(&mut c, &[("RL.GCRA k 5 5 1000", [0, 5, 0, 200, 1000])]);
    server.clock().advance_ms(100);
    answers(
        &server,
        &[("RL.PEEK k GCRA 5 5 1000", five([0, 5, 0, 100, 900]))],
    );
}

#[test]
fn a_clock_that_keeps_stepping_back_starves_nobody_once_it_stops() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.GCRA k 3 3 3000";
    assert_eq!(admitted(&mut c, line, 4), 3);
    for _ in 0..100 {
        server.clock().advance_ms(-60_000);
        run(&mut c, &[(line, [0, 3, 0, 1000, 3000])]);
        assert_eq!(cmd!(c, "PTTL", "k"), int(3000 + 1 + SLACK_MS));
    }
    server.clock().advance_ms(3000);
    assert_eq!(admitted(&mut c, line, 4), 3);
}

#[test]
fn a_clock_that_jitters_refills_only_what_is_left_of_it() {
    // Forward by 10 ms, back by 9 ms. A denial stores nothing, so what went back again was nothing.
    let server = single();
    let mut c = server.conn();
    let line = "RL.GCRA k 10 10 1000";
    let mut count = admitted(&mut c, line, 20);
    let rounds = 200;
    for _ in 0..rounds {
        server.clock().advance_ms(10);
        count += admitted(&mut c, line, 2);
        server.clock().advance_ms(-9);
        count += admitted(&mut c, line, 2);
    }
    assert_eq!(count, 10 + rounds / 100);
}

// --- clocks that step forward ---

#[test]
fn after_a_step_forward_all_is_drained_and_nothing_crashes() {
    let server = single();
    let mut c = server.conn();
    let year_us = MAX_PERIOD_MS * 1000;
    for step_us in [3_600_000_000, 24 * 3_600_000_000, year_us, 10 * year_us] {
        assert_eq!(admitted(&mut c, "RL.GCRA k 3 1 60000", 4), 3);
        server.clock().advance_us(step_us);
        run(&mut c, &[("RL.PEEK k GCRA 3 1 60000", [1, 3, 3, 0, 0])]);
        assert_eq!(admitted(&mut c, "RL.GCRA k 3 1 60000", 4), 3);
        server.clock().advance_us(step_us);
    }
}

#[test]
fn a_step_forward_and_back_again_leaves_a_used_limiter_used() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    assert_eq!(admitted(&mut c, "RL.GCRA k 3 1 60000", 4), 3);
    // A clock that was an hour ahead for a moment in which nobody looked.
    server.clock().advance_ms(HOUR_MS);
    server.clock().advance_ms(-HOUR_MS);
    run(
        &mut c,
        &[("RL.GCRA k 3 1 60000", [0, 3, 0, 60_000, 180_000])],
    );
    // And one in which somebody did: that one's admission counts from now on.
    server.clock().advance_ms(HOUR_MS);
    run(&mut c, &[("RL.GCRA k 3 1 60000", [1, 3, 2, 0, 60_000])]);
    server.clock().advance_ms(-HOUR_MS);
    run(&mut c, &[("RL.GCRA k 3 1 60000", [1, 3, 1, 0, 120_000])]);
}

#[test]
fn limiters_work_at_the_far_end_of_time() {
    let server = Options::new().aof(Aof::Pure).start();
    let mut c = server.conn();
    // The year 2255, where tokens end, and 5138.
    for at_us in [1 << 53, 100_000_000_000_000_123] {
        server.clock().freeze_at(at_us);
        run(
            &mut c,
            &[
                ("RL.GCRA k 2 1 60000 COST 2", [1, 2, 0, 0, 120_000]),
                ("RL.GCRA k 2 1 60000", [0, 2, 0, 60_000, 120_000]),
                (
                    "RL.GCRA century 100 1 31536000000 COST 100",
                    [1, 100, 0, 0, 100 * MAX_PERIOD_MS],
                ),
            ],
        );
        assert_eq!(expires_at(&mut c, "k"), deadline_ms(at_us, 120_000_000));
        let digest = cmd!(c, "DEBUG", "DIGEST");
        server.restart();
        c = server.conn();
        assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
    }
}

// --- how long a key lives ---

#[test]
fn a_key_always_has_a_positive_ttl() {
    let server = single();
    let mut c = server.conn();
    for line in [
        "RL.TOKENBUCKET k 1 3 1000",
        "RL.GCRA k 1 1000000000 1",
        "RL.GCRA k 1 10000 1000",
        "RL.GCRA k 1 1 1",
        "RL.GCRA k 1000000000 1000000000 1",
        "RL.TOKENBUCKET k 7 999999937 31536000000",
        "RL.GCRA k 100 1 31536000000",
    ] {
        cmd!(c, "DEL", "k");
        for step_us in [0, 0, 1, 542, 1, 999, 1000, 333_333, 1, 0, 2_000_000, 1] {
            server.clock().advance_us(step_us);
            let verdict = c.cmd(&words(line));
            let reset_ms = verdict.items()[4].as_int();
            let ttl = cmd!(c, "PTTL", "k").as_int();
            assert!(ttl >= 1, "{line} at +{step_us} µs: PTTL {ttl}");
            assert!(ttl >= reset_ms, "{line}: PTTL {ttl}, reset {reset_ms}");
            assert!(
                ttl <= reset_ms + 1 + SLACK_MS,
                "{line}: PTTL {ttl}, reset {reset_ms}"
            );
        }
    }
}

#[test]
fn a_key_lives_until_it_is_drained_rounded_up_and_a_second_more() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        let [burst, count, period, cost] = policy;
        cmd!(c, "DEL", "k");
        server.clock().advance_us(271);
        cmd!(c, "RL.GCRA", "k", burst, count, period, "COST", cost);
        let drain_us = (cost * period * 1000).div_ceil(count) as i64;
        let end = deadline_ms(server.clock().now_us(), drain_us);
        assert_eq!(expires_at(&mut c, "k"), end, "{policy:?}");
    }
}

#[test]
fn the_ttl_is_not_set_on_each_call() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    // 100 ms each. The first sets the TTL, and it lasts until a second's worth has been taken.
    cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
    let first = deadline_ms(start, 100_000);
    for n in 2..=11 {
        cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
        assert_eq!(expires_at(&mut c, "k"), first, "call {n}");
    }
    cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
    let second = deadline_ms(start, 1_200_000);
    assert_eq!(expires_at(&mut c, "k"), second);
    assert_same(&chain);
    // Time alone does not move it, nor does what is taken as fast as it drains.
    for _ in 0..10 {
        chain.clock().advance_ms(100);
        cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
    }
    assert_eq!(expires_at(&mut c, "k"), second);
    cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
    assert_eq!(expires_at(&mut c, "k"), deadline_ms(start, 2_300_000));
    assert_same(&chain);
}

#[test]
fn an_untouched_key_goes_within_the_slack() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_ms();
    for _ in 0..11 {
        cmd!(c, "RL.GCRA", "k", 100, 10, 1000);
    }
    // Drained after 1100 ms, in the millisecond that this ends in; the TTL is the first call's.
    let end = expires_at(&mut c, "k");
    assert_eq!(end, start + 101 + SLACK_MS);
    server.clock().advance_ms(end - start);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    run(&mut c, &[("RL.GCRA k 100 10 1000", [1, 100, 99, 0, 100])]);
}

#[test]
fn a_drained_key_is_expired_by_the_server_and_as_good_as_new() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let expired = |server: &Server| -> i64 {
        server.info("stats")["expired_keys"]
            .parse()
            .expect("a number")
    };
    let before = expired(&chain.primary);
    for key in ["a", "b", "c"] {
        cmd!(c, "RL.GCRA", key, 2, 1, 1000, "COST", 2);
    }
    assert_eq!(counter(&chain.primary, "rl_keys"), 3);
    chain.clock().advance_ms(2000 + 1 + SLACK_MS + 1);
    // Nobody asks for them.
    eventually("the keys are expired", || {
        counter(&chain.primary, "rl_keys") == 0
    });
    assert_eq!(expired(&chain.primary) - before, 3);
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    chain.assert_equal();
    for server in [&chain.replica, &chain.sub] {
        assert_eq!(counter(server, "rl_keys"), 0);
    }
    run(&mut c, &[("RL.GCRA a 2 1 1000", [1, 2, 1, 0, 1000])]);
}

#[test]
fn a_denial_by_a_slower_policy_lengthens_the_ttl_and_propagates_that() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    let hour = "RL.GCRA k 9 10 3600000";
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    assert_eq!(expires_at(&mut c, "k"), deadline_ms(start, 54_000_000));
    let mut tap = Tap::on(&chain);
    run(&mut c, &[(hour, [0, 9, 0, 360_000, 3_240_000])]);
    let end = deadline_ms(start, 3_240_000_000);
    assert_eq!(expires_at(&mut c, "k"), end);
    assert_eq!(tap.take(), [args!["PEXPIREAT", "k", end]]);
    // Once.
    run(&mut c, &[(hour, [0, 9, 0, 360_000, 3_240_000])]);
    chain.clock().advance_ms(60_000);
    run(&mut c, &[(hour, [0, 9, 0, 300_000, 3_180_000])]);
    assert!(tap.take().is_empty());
    assert_same(&chain);
    // Past the end that it had, it still is known.
    chain.clock().advance_ms(299_999);
    run(&mut c, &[(hour, [0, 9, 0, 1, 2_880_001])]);
    assert_same(&chain);
    // An admission under a faster policy brings the end nearer again.
    run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 8, 0, 6000])]);
    assert_eq!(
        expires_at(&mut c, "k"),
        deadline_ms(chain.clock().now_us(), 6_000_000)
    );
    assert_same(&chain);
}

#[test]
fn a_ttl_that_had_to_grow_survives_restarts() {
    let server = recorder();
    let mut c = server.conn();
    let hour = "RL.GCRA k 9 10 3600000";
    cmd!(c, "RL.GCRA", "k", 9, 10, 60_000, "COST", 9);
    run(&mut c, &[(hour, [0, 9, 0, 360_000, 3_240_000])]);
    let end = expires_at(&mut c, "k");
    server.kill9();
    server.clock().advance_ms(120_000);
    server.start_again();
    let mut c = server.conn();
    assert_eq!(expires_at(&mut c, "k"), end);
    run(&mut c, &[(hour, [0, 9, 0, 240_000, 3_120_000])]);
}

#[test]
fn a_foreign_ttl_is_put_right_by_the_next_admission() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for foreign in [
        "PEXPIRE k 5",
        "PEXPIRE k 59999",
        "EXPIRE k 100000",
        "PERSIST k",
    ] {
        cmd!(c, "DEL", "k");
        let start = chain.clock().now_us();
        run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 1, 0, 60_000])]);
        assert_eq!(c.cmd(&words(foreign)), int(1));
        let strayed = expires_at(&mut c, "k");
        let mut tap = Tap::on(&chain);
        // Neither a peek nor a denial is a write.
        run(
            &mut c,
            &[
                ("RL.PEEK k GCRA 2 1 60000", [1, 2, 1, 0, 60_000]),
                ("RL.GCRA k 2 1 60000 COST 2", [0, 2, 1, 60_000, 60_000]),
            ],
        );
        assert_eq!(expires_at(&mut c, "k"), strayed, "{foreign}");
        assert!(tap.take().is_empty(), "{foreign}");
        run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 0, 0, 120_000])]);
        assert_eq!(
            expires_at(&mut c, "k"),
            deadline_ms(start, 120_000_000),
            "{foreign}"
        );
        let charged = Bucket::owing(2, start, (2, 1, 60_000));
        assert_eq!(tap.take(), [charged.effect_on("k", start)], "{foreign}");
        assert_same(&chain);
    }
}

#[test]
fn a_foreign_ttl_never_prolongs_a_debt() {
    let server = single();
    let mut c = server.conn();
    for foreign in ["EXPIRE k 100000", "PERSIST k"] {
        cmd!(c, "DEL", "k");
        assert_eq!(admitted(&mut c, "RL.GCRA k 2 1 1000", 3), 2);
        assert_eq!(c.cmd(&words(foreign)), int(1));
        server.clock().advance_ms(HOUR_MS / 1000);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
        assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
        run(&mut c, &[("RL.PEEK k GCRA 2 1 1000", [1, 2, 2, 0, 0])]);
        run(&mut c, &[("RL.GCRA k 2 1 1000", [1, 2, 1, 0, 1000])]);
        assert_eq!(cmd!(c, "PTTL", "k"), int(1001 + SLACK_MS));
    }
}

#[test]
fn a_foreign_ttl_may_end_a_debt_early() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 2 1 60000", 3), 2);
    cmd!(c, "PEXPIRE", "k", 100);
    server.clock().advance_ms(100);
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000", [0, 2, 0, 59_900, 119_900])],
    );
    server.clock().advance_ms(1);
    run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 1, 0, 60_000])]);
    assert_eq!(cmd!(c, "PEXPIRE", "k", -1), int(1));
    run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 1, 0, 60_000])]);
}

#[test]
fn a_foreign_ttl_within_the_slack_is_left_alone() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    let needed = deadline_ms(start, 120_000_000) - SLACK_MS;
    for (foreign, expected) in [
        (needed - 1, needed + SLACK_MS),
        (needed, needed),
        (needed + 1, needed + 1),
        (needed + SLACK_MS, needed + SLACK_MS),
        (needed + SLACK_MS + 1, needed + SLACK_MS),
    ] {
        cmd!(c, "DEL", "k");
        cmd!(c, "RL.GCRA", "k", 2, 1, 60_000);
        assert_eq!(cmd!(c, "PEXPIREAT", "k", foreign), int(1));
        cmd!(c, "RL.GCRA", "k", 2, 1, 60_000);
        assert_eq!(expires_at(&mut c, "k"), expected, "{foreign}");
        assert_same(&chain);
    }
}

#[test]
fn whoever_finds_a_key_over_deletes_it_first() {
    let chain = chain();
    cmd!(chain.primary.conn(), "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    let gone = match flavour().kind {
        Kind::Redis => args!["DEL", "k"],
        Kind::Valkey => args!["UNLINK", "k"],
    };
    for (line, expected) in [
        ("RL.GCRA k 2 1 1000", five([1, 2, 1, 0, 1000])),
        ("RL.TOKENBUCKET k 2 1 1000", five([1, 2, 1, 0, 1000])),
        ("RL.LEAKYBUCKET k 2 1 1000", five([1, 2, 1, 0, 1000])),
        ("RL.CHARGE k GCRA 2 1 1000", five([1, 2, 1, 0, 1000])),
        ("RL.REFUND k GCRA 2 1 1000", five([1, 2, 2, 0, 0])),
        (
            "RL.ALL 1 k GCRA 2 1 1000",
            array([int(1), int(-1), five([1, 2, 1, 0, 1000])]),
        ),
        ("CL.THROTTLE k 1 1 1", five([0, 2, 1, -1, 1])),
        ("CL.THROTTLE k 1 1 1 0", five([0, 2, 2, -1, 0])),
        ("RL.PEEK k GCRA 2 1 1000", five([1, 2, 2, 0, 0])),
        ("RL.INFO k", nil()),
        ("RL.RESET k k", int(0)),
    ] {
        let mut c = chain.primary.conn();
        cmd!(c, "DEL", "k");
        cmd!(c, "RL.GCRA", "k", 2, 1, 1000, "COST", 2);
        let mut tap = Tap::on(&chain);
        chain.clock().advance_ms(2001 + SLACK_MS + 1);
        assert_eq!(c.cmd(&words(line)), expected, "{line}");
        let mut propagated = tap.take();
        // Servers put a frame around a deletion and a write as they see fit.
        propagated.retain(|command| !matches!(&command[0][..], b"MULTI" | b"EXEC"));
        let mut wanted = vec![gone.clone()];
        if cmd!(c, "EXISTS", "k") == int(1) {
            let now = chain.clock().now_us();
            wanted.push(Bucket::owing(1, now, (2, 1, 1000)).effect_on("k", now));
        }
        assert_eq!(propagated, wanted, "{line}");
        assert_same(&chain);
    }
}
