//! Which of several policies denied.

use sluice_core::limiter::Verdict;

fn verdict(allowed: bool, wait_us: u128) -> Verdict {
    Verdict {
        allowed,
        limit: 10,
        remaining: 3,
        wait_us,
        reset_us: 5_000,
    }
}

fn binding(verdicts: &[(bool, u128)]) -> Option<usize> {
    let verdicts: Vec<Verdict> = verdicts.iter().map(|(a, w)| verdict(*a, *w)).collect();
    Verdict::binding(&verdicts)
}

#[test]
fn none_where_all_allow() {
    assert_eq!(binding(&[]), None);
    assert_eq!(binding(&[(true, 0)]), None);
    // A leaky bucket's wait is a hold.
    assert_eq!(binding(&[(true, 0), (true, 7_000), (true, 0)]), None);
}

#[test]
fn the_one_with_the_longest_wait() {
    assert_eq!(binding(&[(false, 1)]), Some(0));
    assert_eq!(binding(&[(true, 0), (false, 1)]), Some(1));
    assert_eq!(binding(&[(false, 1), (false, 3), (false, 2)]), Some(1));
    assert_eq!(binding(&[(false, 3), (false, 1), (false, 2)]), Some(0));
    assert_eq!(binding(&[(false, 1), (false, 2), (false, 3)]), Some(2));
    // To the µs, though all three are a millisecond.
    assert_eq!(
        binding(&[(false, 998), (false, 999), (false, 997)]),
        Some(1)
    );
    assert_eq!(
        binding(&[(false, u128::MAX - 1), (false, u128::MAX)]),
        Some(1)
    );
}

#[test]
fn one_that_allows_never_binds_however_long_it_holds() {
    assert_eq!(
        binding(&[(true, 9_000), (false, 1), (true, 8_000)]),
        Some(1)
    );
}

#[test]
fn the_first_of_equals() {
    assert_eq!(binding(&[(false, 5), (false, 5)]), Some(0));
    assert_eq!(binding(&[(true, 5), (false, 5), (false, 5)]), Some(1));
    assert_eq!(
        binding(&[(false, 1), (false, 5), (false, 5), (false, 4)]),
        Some(1)
    );
    assert_eq!(binding(&[(false, 5); 64]), Some(0));
}
