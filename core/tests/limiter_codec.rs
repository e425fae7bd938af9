//! A limiter as bytes: exactly these bytes, and nothing else is read.

use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, LimiterEffect, Policy};
use sluice_core::{Limiter, Malformed, Micros, State};

const CLOCK: Micros = Micros(0x0011_5253_5455_5657);
const MOST: u32 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const CENTURY_US: u128 = 100 * 31_536_000_000_000;
const BOUND: u64 = 1 << 61;

fn policy(capacity: u64, count: u64, period_ms: u64) -> Policy {
    let texts = [capacity, count, period_ms].map(|n| n.to_string());
    let [capacity, count, period_ms] = &texts;
    Algorithm::Gcra
        .policy(
            &[capacity.as_bytes(), count.as_bytes(), period_ms.as_bytes()],
            100_000,
        )
        .unwrap()
}

/// The fields of a bucket, which may be anything.
#[derive(Clone, Copy, Debug)]
struct Raw {
    shape: u8,
    /// In ticks; twelve bytes of it are written.
    debt: u128,
    at: u64,
    capacity: u32,
    count: u32,
    period_ms: u64,
}

impl Raw {
    fn valid() -> Raw {
        Raw {
            shape: 0,
            debt: 7_000_000,
            at: CLOCK.0,
            capacity: 10,
            count: 7,
            period_ms: 1_000,
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut out = vec![self.shape];
        out.extend(&self.debt.to_le_bytes()[..12]);
        out.extend(self.at.to_le_bytes());
        out.extend(self.capacity.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend(self.period_ms.to_le_bytes());
        out
    }

    fn stored(&self) -> Vec<u8> {
        [&[1], &self.body()[..]].concat()
    }

    fn effect(&self) -> Vec<u8> {
        [&[1], &CLOCK.0.to_le_bytes()[..], &self.body()].concat()
    }

    fn is_accepted(&self) -> bool {
        let century = CENTURY_US * u128::from(self.count);
        self.shape == 0
            && self.at < BOUND
            && (1..=MOST).contains(&self.capacity)
            && (1..=MOST).contains(&self.count)
            && (1..=YEAR_MS).contains(&self.period_ms)
            && u128::from(self.capacity) * u128::from(self.period_ms) * 1000 <= century
            && self.debt <= century
    }

    fn check(&self) {
        let expected = if self.is_accepted() {
            Ok(())
        } else {
            Err(Malformed::Corrupt)
        };
        assert_eq!(read(&self.stored())[0], expected, "{self:?}");
        assert_eq!(read(&self.effect())[1], expected, "{self:?}");
    }
}

fn accepted(raw: Raw) {
    assert!(raw.is_accepted(), "{raw:?}");
    raw.check();
}

fn refused(raw: Raw) {
    assert!(!raw.is_accepted(), "{raw:?}");
    raw.check();
}

/// Reads `bytes` both ways. What is accepted must be written back as the same bytes, and be
/// fit for use.
fn read(bytes: &[u8]) -> [Result<(), Malformed>; 2] {
    let stored = Limiter::from_stored(bytes).map(|state| {
        assert_eq!(state.to_stored().as_bytes(), bytes);
        use_it(&state);
    });
    let effect = LimiterEffect::decode(bytes).map(|(effect, now)| {
        let state = Limiter::apply(None, effect).unwrap();
        assert_eq!(state.to_effect(now).as_bytes(), bytes);
        use_it(&state);
    });
    [stored, effect]
}

/// Calls of every kind on what a client brought in with RESTORE: none may overflow.
fn use_it(state: &Limiter) {
    let most = u64::from(MOST);
    let own = state.policy().unwrap_or(policy(7, 7, 7));
    let policies = [
        own,
        policy(1, 1, 1),
        policy(own.limit(), most, YEAR_MS),
        policy(own.limit(), most, 1),
        policy(most, most, YEAR_MS),
        policy(100, 1, YEAR_MS),
    ];
    // Windows add their length to the clock, which a server's never leaves no room for.
    let end = match state.policy() {
        Some(Policy::Bucket(_)) => u64::MAX,
        _ => BOUND,
    };
    for now in [Micros(0), CLOCK, Micros(BOUND - 1), Micros(end)] {
        for policy in policies {
            for cost in [1, policy.limit()] {
                let peeked = Limiter::peek(Some(state), &policy, cost, now);
                let mut after = state.clone();
                let decided = Limiter::decide(Some(&mut after), &policy, cost, now);
                // Bytes that are another algorithm's have been made by chance.
                let (Ok(peeked), Ok((decided, _))) = (&peeked, &decided) else {
                    assert_eq!(peeked.err(), decided.err());
                    continue;
                };
                assert_eq!(peeked.allowed, decided.allowed);
                assert_eq!(peeked.wait_us, decided.wait_us);
                assert!(decided.reply().iter().all(|n| i64::try_from(*n).is_ok()));
                let _ = after.matters_until();
            }
        }
        let _ = state.is_drained(now);
    }
    let _ = state.matters_until();
}

// The format -----------------------------------------------------------------------------

/// `literal` may have spaces between the fields. A change here is a change of the format:
/// it needs a new version, and the old one must still be read.
fn unhex(literal: &str) -> Vec<u8> {
    let digits: Vec<u8> = literal.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn charged(policy: &Policy, cost: u64, now: Micros) -> Limiter {
    match Limiter::decide(None, policy, cost, now).unwrap() {
        (_, Change::New(state)) => state,
        other => panic!("{other:?}"),
    }
}

fn check_format(state: &Limiter, body: &str) {
    let stored = unhex(&format!("01 {body}"));
    assert_eq!(state.to_stored().as_bytes(), stored);
    assert_eq!(Limiter::from_stored(&stored).as_ref(), Ok(state));

    let effect = unhex(&format!("01 5756555453521100 {body}"));
    assert_eq!(state.to_effect(CLOCK).as_bytes(), effect);
    let whole = LimiterEffect::Whole(state.clone());
    assert_eq!(LimiterEffect::decode(&effect), Ok((whole, CLOCK)));
}

/// Shape, debt in ticks (twelve bytes), its time, capacity, count, period.
#[test]
fn format_of_a_bucket() {
    let at = Micros(0x0012_2223_2425_2627);
    // 0x1212 tokens of 0x151617 ms each: 0x5d0_6bd2_6130 ticks.
    let state = charged(&policy(0x0102_0304, 0x1112_1314, 0x0015_1617), 0x1212, at);
    check_format(
        &state,
        "00 3061d26bd0050000 00000000 2726252423221200 04030201 14131211 1716150000000000",
    );
}

#[test]
fn format_of_a_debt_beyond_64_bits() {
    let most = u64::from(MOST);
    let state = charged(&policy(most, most, YEAR_MS), most, CLOCK);
    // 10^9 × 31,536,000,000,000 is 0x6ad_91ea_931c_6ec0_0000.
    check_format(
        &state,
        "00 0000c06e1c93ea91 ad060000 5756555453521100 00ca9a3b 00ca9a3b 002cb15707000000",
    );
}

#[test]
fn a_bucket_takes_38_bytes() {
    let state = charged(&policy(1, 1, 1), 1, CLOCK);
    assert_eq!(state.to_stored().as_bytes().len(), 38);
    assert_eq!(state.to_effect(CLOCK).as_bytes().len(), 46);
}

// What is refused ------------------------------------------------------------------------

#[test]
fn truncated_and_prolonged_bytes_are_corrupt() {
    for (form, bytes) in [Raw::valid().stored(), Raw::valid().effect()]
        .iter()
        .enumerate()
    {
        assert_eq!(read(bytes)[form], Ok(()));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len])[form], Err(Malformed::Corrupt));
        }
        for byte in 0..=255 {
            let longer = [&bytes[..], &[byte]].concat();
            assert_eq!(read(&longer)[form], Err(Malformed::Corrupt));
        }
        let twice = [&bytes[..], bytes].concat();
        assert_eq!(read(&twice)[form], Err(Malformed::Corrupt));
    }
}

#[test]
fn a_newer_version_is_named_whatever_follows() {
    assert_eq!(Limiter::VERSION, 1);
    for (form, bytes) in [Raw::valid().stored(), Raw::valid().effect()]
        .iter()
        .enumerate()
    {
        let mut damaged = bytes.clone();
        for version in 2..=255 {
            damaged[0] = version;
            let longer = [&damaged[..], b"x"].concat();
            for bytes in [&damaged[..], &damaged[..1], &longer] {
                assert_eq!(read(bytes)[form], Err(Malformed::Version(version)));
            }
        }
        damaged[0] = 0;
        assert_eq!(read(&damaged)[form], Err(Malformed::Corrupt));
    }
}

#[test]
fn unknown_shapes_are_corrupt() {
    for shape in 1..=255 {
        refused(Raw {
            shape,
            ..Raw::valid()
        });
    }
}

#[test]
fn numbers_that_no_policy_has_are_corrupt() {
    for capacity in [0, MOST + 1, u32::MAX] {
        refused(Raw {
            capacity,
            ..Raw::valid()
        });
    }
    for count in [0, MOST + 1, u32::MAX] {
        refused(Raw {
            count,
            ..Raw::valid()
        });
    }
    for period_ms in [0, YEAR_MS + 1, 1 << 53, u64::MAX] {
        refused(Raw {
            period_ms,
            ..Raw::valid()
        });
    }
    for (capacity, count, period_ms) in [(1, 1, 1), (MOST, MOST, YEAR_MS), (1, MOST, YEAR_MS)] {
        accepted(Raw {
            capacity,
            count,
            period_ms,
            debt: 1,
            ..Raw::valid()
        });
    }
}

#[test]
fn instants_from_2_61_on_are_corrupt() {
    assert_eq!(Micros::BOUND, BOUND);
    let with = |at| Raw { at, ..Raw::valid() };
    accepted(with(0));
    accepted(with(BOUND - 1));
    refused(with(BOUND));
    refused(with(u64::MAX));
}

#[test]
fn so_is_an_effect_whose_clock_is_there() {
    let with = |clock: u64| [&[1], &clock.to_le_bytes()[..], &Raw::valid().body()].concat();
    for clock in [0, BOUND - 1] {
        assert_eq!(read(&with(clock))[1], Ok(()));
    }
    for clock in [BOUND, u64::MAX] {
        assert_eq!(read(&with(clock))[1], Err(Malformed::Corrupt));
    }
}

#[test]
fn a_policy_that_drains_for_more_than_100_years_is_corrupt() {
    let with = |capacity, count, period_ms| Raw {
        capacity,
        count,
        period_ms,
        debt: 1,
        ..Raw::valid()
    };
    accepted(with(100, 1, YEAR_MS));
    refused(with(101, 1, YEAR_MS));
    accepted(with(MOST, 10_000_000, YEAR_MS));
    refused(with(MOST, 9_999_999, YEAR_MS));
    refused(with(MOST, 1, YEAR_MS));
}

#[test]
fn a_debt_that_drains_for_more_than_100_years_is_corrupt() {
    for count in [1, 7, MOST] {
        let with = |debt| Raw {
            count,
            debt,
            ..Raw::valid()
        };
        let century = CENTURY_US * u128::from(count);
        accepted(with(0));
        accepted(with(century));
        refused(with(century + 1));
        refused(with(u128::from(u64::MAX) << 32));
        refused(with((1 << 96) - 1));
    }
}

/// What a policy and a debt allow at most, in every product.
#[test]
fn the_largest_that_is_accepted_overflows_nowhere() {
    for (capacity, period_ms) in [(MOST, YEAR_MS), (1, YEAR_MS), (MOST, 1), (1, 1)] {
        for at in [0, BOUND - 1] {
            accepted(Raw {
                shape: 0,
                debt: CENTURY_US * u128::from(MOST),
                at,
                capacity,
                count: MOST,
                period_ms,
            });
        }
    }
}

#[test]
fn no_single_damaged_byte_panics_or_is_lost() {
    let large = Raw {
        debt: CENTURY_US * u128::from(MOST),
        at: BOUND - 1,
        capacity: MOST,
        count: MOST,
        period_ms: YEAR_MS,
        ..Raw::valid()
    };
    for raw in [Raw::valid(), large] {
        for bytes in [raw.stored(), raw.effect()] {
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                for byte in 0..=255 {
                    damaged[at] = byte;
                    // Any answer, but no panic, and nothing is accepted that is not canonical.
                    let _ = read(&damaged);
                }
            }
        }
    }
}

// Random bytes ---------------------------------------------------------------------------

fn raw() -> impl Strategy<Value = Raw> {
    let tokens = || {
        prop_oneof![
            4 => 0..=3u32,
            3 => MOST - 1..=MOST + 1,
            4 => 1..=MOST,
            1 => any::<u32>(),
        ]
    };
    let period_ms = prop_oneof![
        4 => 0..=3u64,
        3 => YEAR_MS - 1..=YEAR_MS + 1,
        3 => 1..=YEAR_MS,
        1 => any::<u64>(),
    ];
    let at = prop_oneof![1 => 0..=3u64, 2 => BOUND - 2..=BOUND + 1, 6 => 0..BOUND];
    // As much as the count allows, and this much more.
    let debt = prop_oneof![2 => Just(None), 2 => (-2..=2i128).prop_map(Some)];
    // A SLIDINGWINDOW (2) is as long as a bucket, and would be read as one.
    let other = any::<u8>().prop_filter("as long", |shape| *shape != 2);
    let shape = prop_oneof![8 => Just(0u8), 1 => other];
    let any_debt = any::<u128>().prop_map(|debt| debt >> (32 + debt % 96));
    (shape, (debt, any_debt), at, tokens(), tokens(), period_ms).prop_map(
        |(shape, (off, any_debt), at, capacity, count, period_ms)| {
            let century = CENTURY_US * u128::from(count);
            Raw {
                shape,
                debt: off.map_or(any_debt, |off| century.saturating_add_signed(off)),
                at,
                capacity,
                count,
                period_ms,
            }
        },
    )
}

/// Bytes that get past version and shape, and some that do not.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let first = |value: u8| prop_oneof![6 => Just(value), 1 => any::<u8>()];
    // Mostly zeros: most of the bytes of an integer that is accepted are.
    let byte = prop_oneof![3 => Just(0u8), 1 => any::<u8>()];
    let len = prop_oneof![Just(36usize), Just(44), 0..60usize];
    let rest = len.prop_flat_map(move |len| prop::collection::vec(byte.clone(), len));
    (first(1), first(0), rest)
        .prop_map(|(version, shape, rest)| [&[version, shape], &rest[..]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_is_read_exactly_when_each_field_is_in_its_range(raw in raw()) {
        raw.check();
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in garbage()) {
        let _ = read(&bytes);
    }
}
