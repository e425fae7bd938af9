//! RL.FIXEDWINDOW and RL.SLIDINGWINDOW, to the microsecond.

use crate::limiter_support::*;
use crate::support::*;

const DAY_MS: i64 = 86_400_000;

fn expires_at(c: &mut Conn, key: &str) -> i64 {
    cmd!(c, "PEXPIRETIME", key).as_int()
}

// --- FIXEDWINDOW ---

#[test]
fn a_window_opens_with_its_first_request_and_ends_a_length_later() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.FIXEDWINDOW k 3 1000";
    run(
        &mut c,
        &[
            (line, [1, 3, 2, 0, 1000]),
            (line, [1, 3, 1, 0, 1000]),
            (line, [1, 3, 0, 0, 1000]),
            (line, [0, 3, 0, 1000, 1000]),
        ],
    );
    server.clock().advance_us(250_001);
    run(&mut c, &[(line, [0, 3, 0, 750, 750])]);
    server.clock().advance_us(749_998);
    run(&mut c, &[(line, [0, 3, 0, 1, 1])]);
    server.clock().advance_us(1);
    run(&mut c, &[(line, [1, 3, 2, 0, 1000])]);
    // Nothing is counted on from where the last one ended.
    server.clock().advance_us(5_300_000);
    run(&mut c, &[(line, [1, 3, 2, 0, 1000])]);
    server.clock().advance_us(999_999);
    run(&mut c, &[(line, [1, 3, 1, 0, 1])]);
    server.clock().advance_us(1);
    run(&mut c, &[(line, [1, 3, 2, 0, 1000])]);
}

#[test]
fn a_cost_counts_as_so_many_calls_in_each_window() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.FIXEDWINDOW k 10 1000 COST 4", [1, 10, 6, 0, 1000]),
            ("RL.FIXEDWINDOW k 10 1000 COST 7", [0, 10, 6, 1000, 1000]),
            ("RL.FIXEDWINDOW k 10 1000 COST 6", [1, 10, 0, 0, 1000]),
            ("RL.FIXEDWINDOW k 10 1000 COST 10", [0, 10, 0, 1000, 1000]),
            ("RL.SLIDINGWINDOW l 10 1000 COST 4", [1, 10, 6, 0, 2000]),
            ("RL.SLIDINGWINDOW l 10 1000 COST 6", [1, 10, 0, 0, 2000]),
            ("RL.PEEK k FIXEDWINDOW 10 1000", [0, 10, 0, 1000, 1000]),
        ],
    );
    server.clock().advance_ms(1000);
    run(
        &mut c,
        &[
            ("RL.PEEK k FIXEDWINDOW 10 1000 COST 10", [1, 10, 10, 0, 0]),
            ("RL.FIXEDWINDOW k 10 1000 COST 10", [1, 10, 0, 0, 1000]),
        ],
    );
}

#[test]
fn an_aligned_window_starts_at_its_offset_to_the_microsecond() {
    let server = single();
    let mut c = server.conn();
    // Beyond the window's length an offset only tells where in it.
    for (n, offset) in [250, 1250, 5250, 31_535_999_250_i64]
        .into_iter()
        .enumerate()
    {
        let line = format!("RL.FIXEDWINDOW k{n} 3 1000 ALIGN {offset}");
        let peek = format!("RL.PEEK k{n} FIXEDWINDOW 3 1000 ALIGN {offset}");
        let boundary = (server.clock().now_us() / 1_000_000 + 2) * 1_000_000 + 250_000;
        server.clock().freeze_at(boundary - 1);
        run(
            &mut c,
            &[
                (&line, [1, 3, 2, 0, 1]),
                (&line, [1, 3, 1, 0, 1]),
                (&line, [1, 3, 0, 0, 1]),
                (&line, [0, 3, 0, 1, 1]),
                (&peek, [0, 3, 0, 1, 1]),
            ],
        );
        assert_eq!(
            expires_at(&mut c, &format!("k{n}")),
            boundary / 1000 + SLACK_MS
        );
        server.clock().freeze_at(boundary);
        run(
            &mut c,
            &[
                (&peek, [1, 3, 3, 0, 0]),
                (&line, [1, 3, 2, 0, 1000]),
                (&line, [1, 3, 1, 0, 1000]),
            ],
        );
        assert_eq!(expires_at(&mut c, &format!("k{n}")), boundary / 1000 + 1000);
        server.clock().freeze_at(boundary + 999_999);
        run(
            &mut c,
            &[(&line, [1, 3, 0, 0, 1]), (&line, [0, 3, 0, 1, 1])],
        );
        server.clock().freeze_at(boundary + 1_000_000);
        run(&mut c, &[(&line, [1, 3, 2, 0, 1000])]);
    }
}

#[test]
fn offsets_that_differ_by_whole_windows_are_the_same_window() {
    let server = single();
    let mut c = server.conn();
    let boundary = (server.clock().now_us() / 1_000_000 + 1) * 1_000_000;
    server.clock().freeze_at(boundary + 400_000);
    run(
        &mut c,
        &[
            ("RL.FIXEDWINDOW k 9 1000 ALIGN 250", [1, 9, 8, 0, 850]),
            ("RL.FIXEDWINDOW k 9 1000 ALIGN 7250", [1, 9, 7, 0, 850]),
        ],
    );
    // Another offset, for which the window began before the current one: over. And the other way
    // round: began within the current one, and counts on.
    run(
        &mut c,
        &[
            ("RL.FIXEDWINDOW k 9 1000 ALIGN 300", [1, 9, 8, 0, 900]),
            ("RL.FIXEDWINDOW k 9 1000 ALIGN 200", [1, 9, 7, 0, 800]),
        ],
    );
}

/// T is 03:33:20.123457 UTC, 13,232,000 seconds into a year of 365 days since 1970.
#[test]
fn quotas_of_a_day_and_of_a_year_end_on_time() {
    let server = own(Options::new());
    let mut c = server.conn();
    for (n, (numbers, reset_ms)) in [
        (format!("9 {DAY_MS} ALIGN 0"), 73_599_877),
        (format!("9 {DAY_MS} ALIGN {DAY_MS}"), 73_599_877),
        // At two, at four o'clock.
        (format!("9 {DAY_MS} ALIGN 7200000"), 80_799_877),
        (format!("9 {DAY_MS} ALIGN 14400000"), 1_599_877),
        (format!("9 {MAX_PERIOD_MS} ALIGN 0"), 18_303_999_877),
        (
            format!("9 {MAX_PERIOD_MS} ALIGN {MAX_PERIOD_MS}"),
            18_303_999_877,
        ),
        (format!("9 {MAX_PERIOD_MS} ALIGN 1000"), 18_304_000_877),
        (format!("9 {MAX_PERIOD_MS}"), MAX_PERIOD_MS),
        // One millisecond, which began 457 µs ago.
        ("9 1 ALIGN 0".to_string(), 1),
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!("RL.FIXEDWINDOW k{n} {numbers}");
        run(&mut c, &[(&line, [1, 9, 8, 0, reset_ms])]);
        let end_ms = match reset_ms == MAX_PERIOD_MS {
            true => (T_US + MAX_PERIOD_MS * 1000 + 999) / 1000,
            // At the end of a millisecond of the clock.
            false => T_US / 1000 + reset_ms,
        };
        assert_eq!(
            expires_at(&mut c, &format!("k{n}")),
            end_ms + SLACK_MS,
            "{line}"
        );
    }
    let midnight = (T_US / 86_400_000_000 + 1) * 86_400_000_000;
    let line = format!("RL.FIXEDWINDOW k0 9 {DAY_MS} ALIGN 0 COST 8");
    run(&mut c, &[(&line, [1, 9, 0, 0, 73_599_877])]);
    server.clock().freeze_at(midnight - 1);
    run(&mut c, &[(&line, [0, 9, 0, 1, 1])]);
    server.clock().freeze_at(midnight);
    run(&mut c, &[(&line, [1, 9, 1, 0, DAY_MS])]);
}

#[test]
fn aligned_and_not_aligned_calls_share_a_key() {
    let server = single();
    let mut c = server.conn();
    let boundary = (server.clock().now_us() / 1_000_000 + 2) * 1_000_000;
    let (plain, aligned) = ("RL.FIXEDWINDOW k 3 1000", "RL.FIXEDWINDOW k 3 1000 ALIGN 0");
    server.clock().freeze_at(boundary - 400_000);
    run(
        &mut c,
        &[
            (plain, [1, 3, 2, 0, 1000]),
            (plain, [1, 3, 1, 0, 1000]),
            // Counts on in the window that ends at the boundary.
            (aligned, [1, 3, 0, 0, 400]),
        ],
    );
    // The aligned call has stored the aligned window's start.
    run(&mut c, &[(plain, [0, 3, 0, 400, 400])]);
    server.clock().freeze_at(boundary - 1);
    run(
        &mut c,
        &[(aligned, [0, 3, 0, 1, 1]), (plain, [0, 3, 0, 1, 1])],
    );
    server.clock().freeze_at(boundary);
    run(&mut c, &[(plain, [1, 3, 2, 0, 1000])]);

    // A window without alignment that began before the current aligned one is over.
    server.clock().freeze_at(boundary + 2_700_000);
    assert_eq!(admitted(&mut c, plain, 4), 3);
    server.clock().freeze_at(boundary + 2_999_999);
    run(
        &mut c,
        &[(aligned, [0, 3, 0, 1, 1]), (plain, [0, 3, 0, 701, 701])],
    );
    server.clock().freeze_at(boundary + 3_000_000);
    run(
        &mut c,
        &[
            (plain, [0, 3, 0, 700, 700]),
            ("RL.PEEK k FIXEDWINDOW 3 1000 ALIGN 0", [1, 3, 3, 0, 0]),
            (aligned, [1, 3, 2, 0, 1000]),
        ],
    );
}

// --- SLIDINGWINDOW ---

/// By hand: admitted iff p·(W − e) + (c + n)·W ≤ L·W.
#[test]
fn the_window_before_weighs_as_much_as_of_it_is_within_reach() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let at = |us: i64| server.clock().freeze_at(start + us);
    let line = "RL.SLIDINGWINDOW k 10 1000";
    let cost = |n: i64| format!("{line} COST {n}");
    run(
        &mut c,
        &[
            (&cost(8), [1, 10, 2, 0, 2000]),
            (&cost(2), [1, 10, 0, 0, 2000]),
            // In the next window, when a tenth of this one is out of reach.
            (line, [0, 10, 0, 1100, 2000]),
        ],
    );
    at(1_000_000);
    run(&mut c, &[(line, [0, 10, 0, 100, 1000])]);
    at(1_099_999);
    run(&mut c, &[(line, [0, 10, 0, 1, 901])]);
    at(1_100_000);
    run(&mut c, &[(line, [1, 10, 0, 0, 1900])]);
    // Five of the ten still weigh.
    at(1_500_000);
    run(
        &mut c,
        &[
            ("RL.PEEK k SLIDINGWINDOW 10 1000", [1, 10, 4, 0, 1500]),
            (
                "RL.PEEK k SLIDINGWINDOW 10 1000 COST 5",
                [0, 10, 4, 100, 1500],
            ),
            (&cost(4), [1, 10, 0, 0, 1500]),
            // Within this window, at its end: and then in the next one only.
            (&cost(5), [0, 10, 0, 500, 1500]),
            (&cost(6), [0, 10, 0, 700, 1500]),
            (&cost(10), [0, 10, 0, 1500, 1500]),
        ],
    );
    let peek = "RL.PEEK k SLIDINGWINDOW 10 1000";
    at(1_999_999);
    run(&mut c, &[(&format!("{peek} COST 5"), [0, 10, 4, 1, 1001])]);
    at(2_000_000);
    run(
        &mut c,
        &[
            (&format!("{peek} COST 5"), [1, 10, 5, 0, 1000]),
            (peek, [1, 10, 5, 0, 1000]),
        ],
    );
    at(2_199_999);
    run(&mut c, &[(&format!("{peek} COST 6"), [0, 10, 5, 1, 801])]);
    at(2_200_000);
    run(&mut c, &[(&format!("{peek} COST 6"), [1, 10, 6, 0, 800])]);
    // Its last µs: it weighs 5 µs' worth, which is one when rounded up.
    at(2_999_999);
    run(&mut c, &[(peek, [1, 10, 9, 0, 1])]);
    // Two idle windows.
    at(3_000_000);
    run(&mut c, &[(peek, [1, 10, 10, 0, 0])]);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    // The next request opens one.
    at(3_700_000);
    run(&mut c, &[(line, [1, 10, 9, 0, 2000])]);
    at(4_699_999);
    run(&mut c, &[(peek, [1, 10, 9, 0, 1001])]);
    at(4_700_000);
    run(&mut c, &[(peek, [1, 10, 9, 0, 1000])]);
}

#[test]
fn the_window_steps_by_its_length_while_a_count_remains() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let line = "RL.SLIDINGWINDOW k 10 1000 COST 2";
    // Always 300 ms into a window that began with the first request of all.
    run(&mut c, &[(line, [1, 10, 8, 0, 2000])]);
    for window in 1..20 {
        server
            .clock()
            .freeze_at(start + window * 1_000_000 + 300_000);
        // 2 · 0.7 of the one before, rounded up, and its own 2.
        run(&mut c, &[(line, [1, 10, 6, 0, 1700])]);
        let info = cmd!(c, "RL.INFO", "k");
        assert_eq!(info.field("current"), &int(2));
        assert_eq!(info.field("previous"), &int(2));
        // Until the window after this one is over, and up to the slack longer.
        let needed = deadline_ms(start + window * 1_000_000, 2_000_000) - SLACK_MS;
        let found = expires_at(&mut c, "k");
        assert!((needed..=needed + SLACK_MS).contains(&found), "{found}");
    }
}

#[test]
fn a_wait_as_told_is_always_enough_and_a_microsecond_less_never() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(11);
    let (mut within, mut beyond) = (0, 0);
    for policy in ["10 1000", "7 1000", "3 60011", "1 1", "1000 17"] {
        let mut words_of = policy
            .split(' ')
            .map(|n| n.parse::<u64>().expect("a number"));
        let [limit, window_ms] = [(); 2].map(|_| words_of.next().expect("two numbers"));
        for algorithm in ["SLIDINGWINDOW", "FIXEDWINDOW", "SLIDINGLOG"] {
            cmd!(c, "DEL", "k");
            for _ in 0..60 {
                let cost = 1 + random.below(limit);
                let line = format!("RL.{algorithm} k {policy} COST {cost}");
                let verdict = c.cmd(&words(&line));
                if verdict.items()[0] == int(1) {
                    server
                        .clock()
                        .advance_us(random.below(window_ms * 700) as i64);
                    continue;
                }
                let wait_ms = verdict.items()[3].as_int();
                match wait_ms <= window_ms as i64 {
                    true => within += 1,
                    false => beyond += 1,
                }
                // Told in ms, rounded up: at most one too much.
                server.clock().advance_us((wait_ms - 1) * 1000);
                let peek = format!("RL.PEEK k {algorithm} {policy} COST {cost}");
                let early = c.cmd(&words(&peek));
                if early.items()[0] == int(0) {
                    assert_eq!(early.items()[3], int(1), "{line}");
                } else {
                    assert_eq!(wait_ms, 1, "{line}: {early:?}");
                }
                server.clock().advance_us(1000);
                assert_eq!(c.cmd(&words(&line)).items()[0], int(1), "{line}");
            }
        }
    }
    assert!(within > 50 && beyond > 20, "{within}, {beyond}");
}

#[test]
fn both_counters_let_twice_the_limit_pass_around_a_boundary_at_most() {
    let server = single();
    let mut c = server.conn();
    // One opens the window, and ten come in its last µs.
    assert_eq!(admitted(&mut c, "RL.FIXEDWINDOW f 11 1000", 1), 1);
    assert_eq!(admitted(&mut c, "RL.SLIDINGWINDOW s 11 1000", 1), 1);
    server.clock().advance_us(999_999);
    assert_eq!(admitted(&mut c, "RL.FIXEDWINDOW f 11 1000", 20), 10);
    assert_eq!(admitted(&mut c, "RL.SLIDINGWINDOW s 11 1000", 20), 10);
    server.clock().advance_us(1);
    assert_eq!(admitted(&mut c, "RL.FIXEDWINDOW f 11 1000", 20), 11);
    assert_eq!(admitted(&mut c, "RL.SLIDINGWINDOW s 11 1000", 20), 0);
    // At the end of that window the one before weighs nearly nothing.
    server.clock().advance_us(999_999);
    assert_eq!(admitted(&mut c, "RL.SLIDINGWINDOW s 11 1000", 20), 10);
}

// --- both ---

#[test]
fn the_largest_and_the_smallest_windows_work() {
    let server = single();
    let mut c = server.conn();
    let (most, year) = (MAX_TOKENS, MAX_PERIOD_MS);
    for (key, line, first) in [
        ("a", format!("{most} {year} COST {most}"), [1, most, 0, 0]),
        ("b", format!("{most} {year}"), [1, most, most - 1, 0]),
        ("c", format!("1 {year}"), [1, 1, 0, 0]),
        ("d", format!("{most} 1 COST {most}"), [1, most, 0, 0]),
        ("e", "1 1".to_string(), [1, 1, 0, 0]),
    ] {
        let window_ms = line.split(' ').nth(1).expect("a window");
        let window_ms: i64 = window_ms.parse().expect("a number");
        let [allowed, limit, remaining, wait] = first;
        let expected = |reset| [allowed, limit, remaining, wait, reset];
        let fixed = format!("RL.FIXEDWINDOW f{key} {line}");
        let sliding = format!("RL.SLIDINGWINDOW s{key} {line}");
        run(
            &mut c,
            &[
                (&fixed, expected(window_ms)),
                (&sliding, expected(2 * window_ms)),
            ],
        );
        if line.contains("COST") || limit == 1 {
            assert_eq!(c.cmd(&words(&fixed)).items()[3], int(window_ms));
            let wait_ms = c.cmd(&words(&sliding)).items()[3].as_int();
            assert_eq!(wait_ms, 2 * window_ms, "{sliding}");
        }
    }
}
