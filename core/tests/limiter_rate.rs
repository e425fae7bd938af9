//! The rate itself: never above it over any stretch of time, and nothing of it lost.

use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros};

const MOST: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const NOW_US: u64 = 1_750_000_000_000_300;

#[derive(Clone, Copy, Debug)]
struct Numbers {
    capacity: u64,
    count: u64,
    period_ms: u64,
}

impl Numbers {
    fn policy(&self) -> Policy {
        let texts = [self.capacity, self.count, self.period_ms].map(|n| n.to_string());
        let [capacity, count, period_ms] = &texts;
        Algorithm::Gcra
            .policy(
                &[capacity.as_bytes(), count.as_bytes(), period_ms.as_bytes()],
                100_000,
            )
            .unwrap()
    }

    fn period_us(&self) -> u128 {
        u128::from(self.period_ms) * 1000
    }

    /// Tokens that come to be in this time, and the part of one, in parts of a period's µs.
    fn refill(&self, us: u128) -> u128 {
        u128::from(self.count) * us
    }

    /// The most that may be admitted from idle within this time: all of the capacity, and
    /// each token that has come to be.
    fn most_within(&self, us: u128) -> u128 {
        u128::from(self.capacity) + self.refill(us) / self.period_us()
    }

    /// When `tokens` in all may have been admitted at the earliest: the first µs in which
    /// as many are allowed.
    fn earliest(&self, tokens: u128) -> u128 {
        let beyond = tokens.saturating_sub(u128::from(self.capacity));
        (beyond * self.period_us()).div_ceil(u128::from(self.count))
    }

    /// Whether a greedy caller of this cost finds every token. Where the bucket is hardly
    /// larger than one call, it may be full for a part of a µs before the call comes.
    fn is_never_full_before(&self, cost: u64) -> bool {
        u128::from(self.capacity - cost) * self.period_us() >= u128::from(self.count)
    }
}

/// A key under one policy and a clock that only goes forward.
struct Key {
    policy: Policy,
    stored: Option<Limiter>,
}

impl Key {
    fn new(numbers: &Numbers) -> Key {
        Key {
            policy: numbers.policy(),
            stored: None,
        }
    }

    /// Nothing when admitted, else the µs to wait.
    fn call(&mut self, cost: u64, now: u64) -> Result<(), u128> {
        let (verdict, change) =
            Limiter::decide(self.stored.as_mut(), &self.policy, cost, Micros(now)).unwrap();
        match change {
            Change::New(state) if verdict.allowed => self.stored = Some(state),
            Change::Changed {
                must_send: false,
                until: None,
            } if verdict.allowed => {}
            Change::None { until: None } if !verdict.allowed => {}
            other => panic!("{other:?}"),
        }
        if verdict.allowed {
            Ok(())
        } else {
            Err(verdict.wait_us)
        }
    }
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let tokens = || prop_oneof![4 => 1..=20u64, 2 => 1..=10_000u64, 1 => 1..=MOST];
    let period_ms = prop_oneof![2 => 1..=5u64, 3 => Just(1000), 2 => 1..=60_000u64];
    let extreme = prop::sample::select(vec![
        (7_000, 1000),
        (3_000_000, 1000),
        (MOST, 1),
        (1, YEAR_MS),
    ]);
    let rate = prop_oneof![3 => (tokens(), period_ms), 1 => extreme];
    (tokens(), rate).prop_map(|(capacity, (count, period_ms))| Numbers {
        capacity: capacity.min(most_capacity(count, period_ms)),
        count,
        period_ms,
    })
}

/// As much as drains within 100 years.
fn most_capacity(count: u64, period_ms: u64) -> u64 {
    (u128::from(100 * YEAR_MS) * u128::from(count) / u128::from(period_ms)).min(MOST.into()) as u64
}

/// 1 up to the capacity, mostly small.
fn cost(numbers: &Numbers, share: u16) -> u64 {
    let share = u128::from(share).pow(3);
    1 + ((u128::from(numbers.capacity) * share) >> 48) as u64
}

#[derive(Clone, Debug)]
enum Gap {
    None,
    Us(u64),
    /// In parts of 256 of what one token takes.
    Part(u64),
    /// Exactly what the last denial said.
    Wait,
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => Just(Gap::None),
        1 => (1..=3u64).prop_map(Gap::Us),
        4 => (0..=1024u64).prop_map(Gap::Part),
        1 => (0..=16_384u64).prop_map(Gap::Part),
        4 => Just(Gap::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_stretch_of_time_sees_more_than_the_burst_and_the_rate(
        numbers in numbers(),
        calls in prop::collection::vec((gap(), any::<u16>()), 1..80),
    ) {
        let mut key = Key::new(&numbers);
        let mut now = NOW_US;
        let mut wait_us = 0;
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (gap, share) in calls {
            now += match gap {
                Gap::None => 0,
                Gap::Us(us) => us,
                Gap::Part(part) => {
                    (u128::from(part) * numbers.period_us() / u128::from(numbers.count) / 256) as u64
                }
                Gap::Wait => wait_us as u64,
            };
            let cost = cost(&numbers, share);
            wait_us = match key.call(cost, now) {
                Ok(()) => {
                    admitted.push((now, cost));
                    0
                }
                Err(wait_us) => wait_us,
            };
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut tokens = 0;
            for (to, cost) in &admitted[first..] {
                tokens += u128::from(*cost);
                prop_assert!(tokens <= numbers.most_within(u128::from(to - from)));
            }
        }
    }

    #[test]
    fn a_caller_that_waits_what_it_is_told_gets_every_token_in_its_first_microsecond(
        numbers in numbers(),
        share in any::<u16>(),
    ) {
        let cost = cost(&numbers, share);
        prop_assume!(numbers.is_never_full_before(cost));
        let mut key = Key::new(&numbers);
        let mut now = NOW_US;
        let at_once = numbers.capacity / cost;
        for call in 1..=at_once.min(40) + 40 {
            if let Err(wait_us) = key.call(cost, now) {
                now += wait_us as u64;
                prop_assert_eq!(key.call(cost, now), Ok(()));
            }
            let tokens = u128::from(call) * u128::from(cost);
            prop_assert_eq!(u128::from(now - NOW_US), numbers.earliest(tokens));
        }
    }

    #[test]
    fn calls_that_come_more_often_than_tokens_lose_none_of_them(
        numbers in numbers(),
        part in 1..=255u128,
    ) {
        // A part of what one token takes, so that none is missed; from 1 µs on.
        let token_us = numbers.period_us() / u128::from(numbers.count);
        let gap_us = token_us * part / 256;
        prop_assume!(gap_us > 0 && numbers.capacity > 1);
        let mut key = Key::new(&numbers);
        let mut admitted = 0;
        for call in 0..200 {
            let elapsed = gap_us * call;
            if key.call(1, NOW_US + elapsed as u64).is_ok() {
                admitted += 1;
            }
            prop_assert_eq!(admitted, (call + 1).min(numbers.most_within(elapsed)));
        }
    }
}

/// alexnault/redis-shield refilled whole tokens only and forgot the rest each time.
#[test]
fn the_remainder_of_a_refill_is_never_lost() {
    let numbers = Numbers {
        capacity: 10,
        count: 10,
        period_ms: 1000,
    };
    let mut key = Key::new(&numbers);
    let mut admitted = 0;
    let mut after = |seconds: std::ops::Range<u64>| {
        for call in seconds.start * 1000 / 80..seconds.end * 1000 / 80 {
            admitted += u64::from(key.call(1, NOW_US + call * 80_000).is_ok());
        }
        admitted
    };
    // 100 calls, the last 7.92 s after the first: 10, and 79 that came to be since.
    assert_eq!(after(0..8), 89);
    assert_eq!(after(8..80), 10 + 799);
}

/// Calls at once until denied, then retries when told, until a million are admitted.
fn million(count: u64) {
    let numbers = Numbers {
        capacity: 10,
        count,
        period_ms: 1000,
    };
    let mut key = Key::new(&numbers);
    let mut now = NOW_US;
    let mut denied = 0;
    for admitted in 1..=1_000_000 {
        if let Err(wait_us) = key.call(1, now) {
            denied += 1;
            now += wait_us as u64;
            assert_eq!(key.call(1, now), Ok(()));
        }
        assert_eq!(u128::from(now - NOW_US), numbers.earliest(admitted));
    }
    // To the end of the last µs's tokens.
    let mut admitted = 1_000_000;
    while key.call(1, now).is_ok() {
        admitted += 1;
    }
    let elapsed_us = now - NOW_US;
    let exact = numbers.most_within(u128::from(elapsed_us));
    assert_eq!(admitted, exact);

    let rounded_us = ((1_000_000 + count / 2) / count).max(1);
    println!(
        "{count}/s: {admitted} admitted in {elapsed_us} µs, exact {exact}, error {}, {denied} \
         denials; an interval of whole µs ({rounded_us}) had admitted {}",
        admitted - exact,
        10 + elapsed_us / rounded_us,
    );
}

#[test]
fn a_million_at_7_000_per_second() {
    million(7_000);
}

#[test]
fn a_million_at_3_000_000_per_second() {
    million(3_000_000);
}
