//! Fencing tokens at the ends of their range.

use proptest::prelude::*;
use sluice_core::{Error, Micros, Token};

const MAX: u64 = 9_007_199_254_740_991;
const DAY_US: u64 = 86_400_000_000;
const NOW: u64 = 1_750_000_000_000_000;

fn next(high_water: u64, now: u64) -> Result<u64, Error> {
    Token::next(high_water, Micros(now)).map(Token::get)
}

fn is_restorable(token: u64, high_water: u64, now: u64) -> bool {
    Token::new(token)
        .unwrap()
        .is_restorable(high_water, Micros(now))
}

#[test]
fn tokens_are_1_to_2_53_minus_1() {
    assert_eq!(Token::MAX, MAX);
    assert_eq!(Token::new(0), None);
    assert_eq!(Token::new(1).map(Token::get), Some(1));
    assert_eq!(Token::new(MAX).map(Token::get), Some(MAX));
    assert_eq!(Token::new(MAX + 1), None);
    assert_eq!(Token::new(u64::MAX), None);
}

#[test]
fn the_largest_token_is_exact_in_a_double_and_its_successors_are_not() {
    assert_eq!(MAX as f64 as u64, MAX);
    assert_ne!((MAX + 2) as f64 as u64, MAX + 2);
}

#[test]
fn tokens_last_until_the_year_2255() {
    // 2255-01-01 and 2256-01-01 in seconds since the epoch.
    assert!(next(0, 8_993_721_600_000_000).is_ok());
    assert!(next(0, 9_025_257_600_000_000).is_err());
}

#[test]
fn the_first_token_is_the_clock_or_1() {
    assert_eq!(next(0, 0), Ok(1));
    assert_eq!(next(0, 1), Ok(1));
    assert_eq!(next(0, 2), Ok(2));
    assert_eq!(next(0, NOW), Ok(NOW));
}

#[test]
fn the_next_token_is_above_the_high_water_mark_and_not_below_the_clock() {
    assert_eq!(next(NOW - 2, NOW), Ok(NOW));
    assert_eq!(next(NOW - 1, NOW), Ok(NOW));
    assert_eq!(next(NOW, NOW), Ok(NOW + 1));
    assert_eq!(next(NOW + 1, NOW), Ok(NOW + 2));
    assert_eq!(next(NOW, 0), Ok(NOW + 1));
}

#[test]
fn the_last_token_is_granted_and_then_none() {
    assert_eq!(next(MAX - 2, 0), Ok(MAX - 1));
    assert_eq!(next(MAX - 1, 0), Ok(MAX));
    assert_eq!(next(MAX, 0), Err(Error::TokensExhausted));
    assert_eq!(next(u64::MAX, 0), Err(Error::TokensExhausted));
    assert_eq!(next(u64::MAX, NOW), Err(Error::TokensExhausted));
    assert_eq!(next(u64::MAX, u64::MAX), Err(Error::TokensExhausted));
}

#[test]
fn a_clock_past_the_range_has_no_token() {
    assert_eq!(next(0, MAX), Ok(MAX));
    assert_eq!(next(MAX - 1, MAX), Ok(MAX));
    assert_eq!(next(0, MAX + 1), Err(Error::TokensExhausted));
    assert_eq!(next(0, u64::MAX), Err(Error::TokensExhausted));
}

#[test]
fn a_restored_token_lies_at_most_a_day_ahead_of_the_clock() {
    assert_eq!(Token::RESTORE_SLACK_US, DAY_US);
    assert!(is_restorable(1, 0, NOW));
    assert!(is_restorable(NOW + DAY_US - 1, 0, NOW));
    assert!(is_restorable(NOW + DAY_US, 0, NOW));
    assert!(!is_restorable(NOW + DAY_US + 1, 0, NOW));
    assert!(is_restorable(DAY_US, 0, 0));
    assert!(!is_restorable(DAY_US + 1, 0, 0));
}

#[test]
fn or_below_the_high_water_mark_if_that_is_higher() {
    let high = NOW + DAY_US + 5;
    assert!(is_restorable(high - 1, high, NOW));
    assert!(is_restorable(high, high, NOW));
    assert!(!is_restorable(high + 1, high, NOW));
    // A mark inside the day does not matter.
    assert!(is_restorable(NOW + DAY_US, NOW + DAY_US - 1, NOW));
    assert!(!is_restorable(NOW + DAY_US + 1, NOW + DAY_US, NOW));
    assert!(is_restorable(MAX, MAX, 0));
    assert!(is_restorable(MAX, 0, u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_next_token_is_the_least_that_is_allowed(
        high_water in prop_oneof![0..=MAX, MAX - 3..=MAX + 3, any::<u64>()],
        now in prop_oneof![0..=MAX, MAX - 3..=MAX + 3, any::<u64>()],
    ) {
        let wide = (u128::from(high_water) + 1).max(u128::from(now));
        match next(high_water, now) {
            Ok(token) => prop_assert_eq!(u128::from(token), wide),
            Err(error) => {
                prop_assert_eq!(error, Error::TokensExhausted);
                prop_assert!(wide > u128::from(MAX));
            }
        }
    }
}
