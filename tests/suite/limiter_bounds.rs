//! What no sequence of calls may ever get from a limiter, one after another and from eight
//! connections at once.

use std::sync::Barrier;

use crate::limiter_support::*;
use crate::support::*;

/// Random calls under one policy, whose interval between two of cost 1 is about `interval_us`: when
/// each admitted one came, as the sum of all steps forward of the clock, and its cost.
fn random_admissions(
    server: &Server,
    seed: u64,
    policy: &str,
    limit: u64,
    interval_us: u64,
    steps_back: bool,
) -> Vec<(u128, u128)> {
    let mut c = server.conn();
    cmd!(c, "DEL", "k");
    let mut random = Random(seed);
    let mut admissions = Vec::new();
    let mut elapsed_us = 0u128;
    for _ in 0..600 {
        let gap = match random.below(12) {
            0..4 => 0,
            4 => 1,
            5..9 => random.below(interval_us + 1) as i64,
            9 => interval_us as i64,
            10 if steps_back => -(random.below(interval_us * 3 + 1) as i64),
            10 => interval_us as i64 * limit as i64 - 1,
            _ => random.below(interval_us * limit + 1) as i64,
        };
        server.clock().advance_us(gap);
        elapsed_us += gap.max(0) as u128;
        let cost = 1 + random.below(limit.min(3)) as u128;
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        let line = format!("RL.{algorithm} k {numbers} COST {cost}");
        let verdict = c.cmd(&words(&line));
        if verdict.items()[0] == int(1) {
            admissions.push((elapsed_us, cost));
        }
    }
    let count = admissions.len();
    assert!(count > 50, "{policy}, seed {seed}: {count} admissions");
    admissions
}

/// The costs of each run of admissions: how long it took, and their sum.
fn sums(admissions: &[(u128, u128)]) -> impl Iterator<Item = (u128, u128)> + '_ {
    admissions
        .iter()
        .enumerate()
        .flat_map(|(first, (from, _))| {
            let mut sum = 0;
            admissions[first..].iter().map(move |(to, cost)| {
                sum += cost;
                (to - from, sum)
            })
        })
}

/// In any window of what went forward on the clock, the admitted costs fit into the capacity and
/// what drains in the window.
#[test]
fn no_window_admits_more_than_the_burst_and_the_rate() {
    let server = single();
    for (seed, algorithm, [capacity, count, period_ms]) in [
        (1, "GCRA", [5u128, 10, 1000]),
        (2, "TOKENBUCKET", [1, 7, 1000]),
        (3, "LEAKYBUCKET", [100, 97, 60_011]),
        (4, "GCRA", [3, 1_000_000, 1000]),
        (5, "LEAKYBUCKET", [1, 1_000_000_000, 1]),
        (6, "TOKENBUCKET", [20, 1, 3_600_000]),
    ] {
        let policy = format!("{algorithm} {capacity} {count} {period_ms}");
        let interval_us = (period_ms * 1000 / count).max(1) as u64;
        let found = random_admissions(&server, seed, &policy, capacity as u64, interval_us, true);
        for (us, sum) in sums(&found) {
            let most = capacity * period_ms * 1000 + us * count;
            assert!(sum * period_ms * 1000 <= most, "{policy}: {sum} in {us} µs");
        }
    }
}

/// How many times its limit each counter of windows may admit within less than a window's length,
/// and how many fewer than that at most.
#[test]
fn no_windows_length_admits_more_than_the_algorithm_allows() {
    let server = single();
    for (seed, algorithm, times, fewer) in [
        (1, "SLIDINGLOG", 1, 0),
        (2, "FIXEDWINDOW", 2, 0),
        (3, "SLIDINGWINDOW", 2, 1),
    ] {
        for (limit, window_ms) in [(5u64, 1000u64), (1, 7), (100, 60_011), (20, 3_600_000)] {
            let policy = format!("{algorithm} {limit} {window_ms}");
            let window_us = window_ms * 1000;
            let interval_us = window_us / limit;
            let found = random_admissions(&server, seed, &policy, limit, interval_us, false);
            let most = u128::from(limit) * times - fewer;
            for (us, sum) in sums(&found) {
                assert!(
                    us >= u128::from(window_us) || sum <= most,
                    "{policy}: {sum} in {us} µs"
                );
            }
        }
    }
}

/// Aligned, the windows are those of the calendar, and each has its limit.
#[test]
fn no_aligned_window_admits_more_than_its_limit() {
    let server = single();
    let window_us = 1_000_000;
    let policy = "FIXEDWINDOW 7 1000 ALIGN 300";
    let found = {
        let start = server.clock().now_us();
        let from_boundary = (start - 300_000).rem_euclid(window_us) as u128;
        let found = random_admissions(&server, 9, policy, 7, 1_000_000 / 7, false);
        found
            .into_iter()
            .map(move |(at, cost)| ((at + from_boundary) / window_us as u128, cost))
    };
    let mut windows = std::collections::BTreeMap::new();
    for (window, cost) in found {
        *windows.entry(window).or_insert(0) += cost;
    }
    assert!(windows.len() > 20, "{}", windows.len());
    assert!(windows.values().all(|cost| *cost <= 7), "{windows:?}");
    assert!(windows.values().any(|cost| *cost == 7), "{windows:?}");
}

/// Asks for `line` from eight connections at once, `each` times from each, and says how many were
/// admitted.
fn storm(server: &Server, line: &str, each: usize) -> usize {
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut c = server.conn();
                    barrier.wait();
                    // One by one and many at a time, so that they mix.
                    let single = (0..each / 2)
                        .map(|_| admitted(&mut c, line, 1))
                        .sum::<usize>();
                    single + admitted(&mut c, line, each - each / 2)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a storm"))
            .sum()
    })
}

#[test]
fn eight_connections_on_one_key_admit_exactly_what_the_policy_allows() {
    let chain = chain();
    let server = &chain.primary;
    for line in [
        "RL.GCRA hot 100 100 1000",
        "RL.TOKENBUCKET bucket 100 100 1000",
        "RL.LEAKYBUCKET queue 100 100 1000",
    ] {
        assert_eq!(storm(server, line, 50), 100, "{line}: the burst");
        assert_eq!(
            storm(server, line, 50),
            0,
            "{line}: nothing more in that instant"
        );
        chain.clock().advance_ms(370);
        assert_eq!(storm(server, line, 50), 37, "{line}: the refill");
        chain.clock().advance_us(9_999);
        assert_eq!(storm(server, line, 10), 0, "{line}: 1 µs too early");
        chain.clock().advance_us(1);
        assert_eq!(storm(server, line, 10), 1, "{line}: one more");
        chain.clock().advance_ms(HOUR_MS);
        assert_eq!(storm(server, line, 50), 100, "{line}: the burst again");
    }
    assert_same(&chain);
}

#[test]
fn under_a_running_clock_eight_connections_stay_within_the_bound() {
    let server = single();
    server.clock().run();
    let started = server.clock().now_us();
    let admitted = storm(&server, "RL.GCRA hot 50 1000 1000", 2000) as i64;
    let elapsed_us = server.clock().now_us() - started;
    assert!(admitted >= 50, "{admitted}");
    assert!(
        admitted <= 50 + elapsed_us / 1000,
        "{admitted} in {elapsed_us} µs"
    );
}

#[test]
fn eight_connections_on_one_window_admit_exactly_its_limit() {
    let chain = chain();
    let server = &chain.primary;
    for line in [
        "RL.FIXEDWINDOW fixed 100 1000",
        "RL.SLIDINGWINDOW sliding 100 1000",
        "RL.SLIDINGLOG log 100 1000",
    ] {
        assert_eq!(storm(server, line, 50), 100, "{line}");
        chain.clock().advance_us(999_999);
        assert_eq!(storm(server, line, 50), 0, "{line}: 1 µs too early");
        chain.clock().advance_us(1);
        let next = storm(server, line, 50);
        // A window ago is all of the sliding window's weight.
        let expected = if line.contains("SLIDINGWINDOW") {
            0
        } else {
            100
        };
        assert_eq!(next, expected, "{line}: the next window");
        chain.clock().advance_ms(2 * 1000);
        assert_eq!(storm(server, line, 50), 100, "{line}: after idle windows");
    }
    assert_same(&chain);
}
