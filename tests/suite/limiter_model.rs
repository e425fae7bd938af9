//! The limiters on real servers beside the pure core in this process, over the same random calls;
//! and what no sequence of calls may ever get.

use std::collections::BTreeMap;
use std::sync::Barrier;

use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros};

use crate::limiter_support::*;
use crate::support::*;

/// Ordinary rates, extreme ones, and pairs that differ in one number.
const POLICIES: [&str; 16] = [
    "GCRA 5 10 1000",
    "GCRA 5 10 60000",
    "GCRA 9 10 1000",
    "TOKENBUCKET 5 10 1000",
    "TOKENBUCKET 5 11 1000",
    "GCRA 1 1 1",
    "GCRA 1 1000000000 1",
    "GCRA 3 7 1000",
    "TOKENBUCKET 100 97 60011",
    "TOKENBUCKET 1000000000 1000000000 31536000000",
    "GCRA 1000000000 1000000000 1",
    "GCRA 100 1 31536000000",
    "TOKENBUCKET 7 3000000 1000",
    "GCRA 2 1 3600000",
    "TOKENBUCKET 1 999999937 31536000000",
    "GCRA 64 64 64",
];

const KEYS: [&str; 4] = ["a", "b", "{c}", "\u{fffd}"];

fn policy_of(line: &str) -> Policy {
    let words: Vec<&str> = line.split(' ').collect();
    let algorithm = Algorithm::named(words[0].as_bytes()).expect("an algorithm");
    let numbers = [words[1], words[2], words[3]].map(str::as_bytes);
    algorithm.policy(numbers).expect("in range")
}

/// A key as the server should have it.
struct Key {
    limiter: Limiter,
    /// The last millisecond in which it exists.
    until_ms: i64,
}

/// The keyspace, with TTLs as the design has them.
#[derive(Default)]
struct Model {
    keys: BTreeMap<&'static str, Key>,
}

impl Model {
    /// The key, unless its TTL is over, which is noticed by whoever looks.
    fn look(&mut self, key: &'static str, now_us: i64) -> Option<&mut Key> {
        if self
            .keys
            .get(key)
            .is_some_and(|key| now_us / 1000 > key.until_ms)
        {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    fn call(&mut self, key: &'static str, policy: &Policy, cost: u64, now_us: i64) -> [u64; 5] {
        let now = Micros(now_us as u64);
        let stored = self.look(key, now_us);
        let limiter = stored.as_ref().map(|key| &key.limiter);
        let (verdict, change) = Limiter::decide(limiter, policy, cost, now);
        let (limiter, until) = match change {
            Change::None { until } => (None, until),
            Change::Rebased { state, until } => (Some(state), until),
            Change::Charged(state) => (Some(state), None),
        };
        let mut ttl = stored.map(|key| key.until_ms);
        if let Some(limiter) = limiter {
            let needed = limiter.matters_until().0 as i64;
            let until_ms = match ttl {
                Some(ttl) if (needed..=needed + SLACK_MS).contains(&ttl) => ttl,
                _ => needed + SLACK_MS,
            };
            ttl = Some(until_ms);
            self.keys.insert(key, Key { limiter, until_ms });
        }
        if let Some(until) = until.map(|until| until.0 as i64) {
            if ttl.expect("a new key denies nothing") < until {
                let key = self.keys.get_mut(key).expect("it has a TTL");
                key.until_ms = until + SLACK_MS;
            }
        }
        verdict.reply()
    }

    fn peek(&mut self, key: &'static str, policy: &Policy, cost: u64, now_us: i64) -> [u64; 5] {
        let limiter = self.look(key, now_us).map(|key| &key.limiter);
        Limiter::peek(limiter, policy, cost, Micros(now_us as u64)).reply()
    }
}

/// How far the clock goes before the next call, in µs.
fn gap_us(random: &mut Random) -> i64 {
    let any = random.below(1_000_000) as i64;
    match random.below(20) {
        0..8 => 0,
        8..10 => 1,
        10..13 => any,
        13 => 1000,
        // One interval of 10 per second, and one µs less and more.
        14 => 100_000 - 1 + any % 3,
        15 => 6_000_000,
        16 => any * 100,
        17 => any * 40_000,
        18 => -any,
        _ => -any * 3600,
    }
}

#[test]
fn the_servers_answer_what_the_core_decides() {
    let chain = chain();
    for server in chain.servers() {
        // A key that is over stays until somebody looks: the model knows when that is.
        cmd!(server.conn(), "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    }
    let mut c = chain.primary.conn();
    for seed in [1, 2, 3] {
        cmd!(c, "FLUSHALL");
        let mut random = Random(seed);
        let mut model = Model::default();
        let (mut admitted, mut denied) = (0, 0);
        for n in 0..700 {
            chain.clock().advance_us(gap_us(&mut random));
            let now = chain.clock().now_us();
            let key = *random.one_of(&KEYS);
            let policy_line = *random.one_of(&POLICIES);
            let policy = policy_of(policy_line);
            let cost = match random.below(4) {
                0 => policy.limit(),
                1 => 1 + random.below(policy.limit()),
                _ => 1,
            };
            let is_peek = random.below(5) == 0;
            let line = match is_peek {
                true => format!("RL.PEEK {key} {policy_line} COST {cost}"),
                false => {
                    let (algorithm, numbers) = policy_line.split_once(' ').expect("numbers");
                    format!("RL.{algorithm} {key} {numbers} COST {cost}")
                }
            };
            let expected = match is_peek {
                true => model.peek(key, &policy, cost, now),
                false => model.call(key, &policy, cost, now),
            };
            let expected = expected.map(|integer| integer as i64);
            let reply = c.cmd(&words(&line));
            assert_eq!(
                reply,
                five(expected),
                "seed {seed}, call {n} at {now}: {line}"
            );
            if !is_peek {
                let count = if expected[0] == 1 {
                    &mut admitted
                } else {
                    &mut denied
                };
                *count += 1;
            }
            let ttl = cmd!(c, "PEXPIRETIME", key).as_int();
            let until_ms = model.look(key, now).map_or(-2, |key| key.until_ms);
            assert_eq!(ttl, until_ms, "seed {seed}, call {n}: the TTL after {line}");
        }
        assert!(
            admitted > 100 && denied > 100,
            "{admitted} admitted, {denied} denied"
        );
        let found = deadlines(&chain.primary);
        // KEYS leaves out what is over; so must the model.
        let now_ms = chain.clock().now_ms();
        let mut expected: Vec<_> = model
            .keys
            .iter()
            .filter(|(_, key)| now_ms <= key.until_ms)
            .map(|(name, key)| (name.as_bytes().to_vec(), key.until_ms))
            .collect();
        expected.sort();
        assert_eq!(found, expected, "seed {seed}");
        assert_same(&chain);
    }
}

/// In any window of what went forward on the clock, the admitted costs fit into the capacity and
/// what drains in the window.
#[test]
fn no_window_admits_more_than_the_burst_and_the_rate() {
    let server = single();
    let mut c = server.conn();
    for (seed, [capacity, count, period_ms]) in [
        (1, [5u128, 10, 1000]),
        (2, [1, 7, 1000]),
        (3, [100, 97, 60_011]),
        (4, [3, 1_000_000, 1000]),
        (5, [1, 1_000_000_000, 1]),
        (6, [20, 1, 3_600_000]),
    ] {
        cmd!(c, "DEL", "k");
        let mut random = Random(seed);
        let interval_us = (period_ms * 1000 / count).max(1) as u64;
        // When it was admitted, as the sum of all steps forward, and its cost.
        let mut admissions: Vec<(u128, u128)> = Vec::new();
        let mut elapsed_us = 0u128;
        for _ in 0..600 {
            let gap = match random.below(12) {
                0..4 => 0,
                4 => 1,
                5..9 => random.below(interval_us + 1) as i64,
                9 => interval_us as i64,
                10 => -(random.below(interval_us * 3 + 1) as i64),
                _ => random.below(interval_us * capacity as u64 + 1) as i64,
            };
            server.clock().advance_us(gap);
            elapsed_us += gap.max(0) as u128;
            let cost = 1 + random.below((capacity as u64).min(3)) as u128;
            let verdict = cmd!(c, "RL.GCRA", "k", capacity, count, period_ms, "COST", cost);
            if verdict.items()[0] == int(1) {
                admissions.push((elapsed_us, cost));
            }
        }
        assert!(
            admissions.len() > 50,
            "seed {seed}: {} admissions",
            admissions.len()
        );
        for (first, (from, _)) in admissions.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &admissions[first..] {
                sum += cost;
                let most = capacity * period_ms * 1000 + (to - from) * count;
                assert!(
                    sum * period_ms * 1000 <= most,
                    "seed {seed}: {sum} admitted in {} µs",
                    to - from
                );
            }
        }
    }
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
