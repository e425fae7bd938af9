//! Instants: rounding down to milliseconds, and sums that stop at the ends.

use sluice_core::{Micros, Millis};

#[test]
fn an_instant_lies_in_the_millisecond_that_began_last() {
    for (us, ms) in [(0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2)] {
        assert_eq!(Micros(us).floor_ms(), Millis(ms));
    }
    assert_eq!(Micros(u64::MAX).floor_ms(), Millis(18_446_744_073_709_551));
}

#[test]
fn sums_and_differences_saturate() {
    assert_eq!(Millis(5).plus(3), Millis(8));
    assert_eq!(Millis(u64::MAX - 1).plus(3), Millis(u64::MAX));
    assert_eq!(Millis(5).since(Millis(3)), 2);
    assert_eq!(Millis(5).since(Millis(5)), 0);
    assert_eq!(Millis(3).since(Millis(5)), 0);
}

#[test]
fn a_deadline_is_its_last_living_millisecond() {
    assert!(!Millis(5).is_past(Millis(4)));
    assert!(!Millis(5).is_past(Millis(5)));
    assert!(Millis(5).is_past(Millis(6)));
}
