//! The bucket family against exact fractions of tokens.
//!
//! The model (`model.rs`) owes tokens, not ticks. The key beside it (`key.rs`) applies the
//! core's decisions as `src/limiters.rs` and `src/boundary/key.rs` do.

mod key;
mod model;
mod policy_changes;
mod steps;

use key::Key;
use model::Numbers;
use proptest::prelude::*;
use steps::{cost, moved, policies, step, Step};

const YEAR_MS: u64 = 31_536_000_000;
const YEAR_US: u64 = YEAR_MS * 1000;
const HOUR_US: u64 = 3_600_000_000;
const NOW_US: u64 = 1_750_000_000_000_300;
/// Instants from here on cannot be stored.
const BOUND_US: u64 = 1 << 61;

fn run(
    mut key: Key,
    policies: &[Numbers],
    start: u64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut now = start;
    let mut last = None;
    for step in steps {
        let numbers = if step.own_policy {
            &policies[0]
        } else {
            step.policy.get(policies)
        };
        now = moved(&step.clock, now, numbers, last.as_ref());
        let cost = cost(&step.cost, numbers.capacity, last.as_ref());
        last = Some(key.call(numbers, step.algorithm, cost, now)?);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 350, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_owes_exactly_what_the_fractions_say(
        policies in policies(),
        start in prop_oneof![1 => Just(0), 6 => Just(NOW_US), 1 => Just(BOUND_US - HOUR_US)],
        steps in prop::collection::vec(step(), 1..30),
    ) {
        run(Key::default(), &policies, start, &steps)?;
    }

    #[test]
    fn so_does_one_that_was_charged_beyond_its_capacity(
        policies in policies(),
        share in prop_oneof![Just(u16::MAX), Just(1), any::<u16>()],
        at in prop_oneof![Just(NOW_US), 0..BOUND_US],
        steps in prop::collection::vec(step(), 1..10),
    ) {
        run(Key::overdrawn(policies[0], share, at), &policies, NOW_US, &steps)?;
    }
}
