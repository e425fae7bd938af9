//! Every algorithm against a list of all calls.
//!
//! The models (`buckets.rs`, `windows.rs`, `logs.rs`) only say whether a call would be
//! admitted at an instant, and what it leaves behind. All five integers are then searched
//! for (`rules.rs`): a wait is the first instant at which the call fits, and so on. The key
//! beside it (`key.rs`) applies the core's decisions as the module does.

mod buckets;
mod held_back;
mod key;
mod logs;
mod long_logs;
mod model;
mod rules;
mod steps;
mod windows;

use key::Key;
use proptest::prelude::*;
use rules::Numbers;
use sluice_core::limiter::Algorithm;
use steps::{policies, start, step, Step};

fn run(
    mut key: Key,
    policies: &[Numbers],
    start: u64,
    steps: &[Step],
    expires: bool,
) -> Result<(), TestCaseError> {
    let mut now = start;
    let mut last = None;
    for step in steps {
        let numbers = step.numbers(policies);
        now = step.moved(now, numbers, last.as_ref());
        if expires {
            key.expire(now);
        }
        let cost = step.cost(numbers, last.as_ref());
        if let Some(verdict) = key.act(step, numbers, cost, now)? {
            last = Some(verdict);
        }
    }
    Ok(())
}

macro_rules! histories {
    ($name:ident, $algorithm:ident, $cases:literal) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: $cases, ..ProptestConfig::default() })]

            #[test]
            fn $name(
                policies in policies(Algorithm::$algorithm),
                start in start(),
                steps in prop::collection::vec(step(), 1..40),
                // Or a server that has set no TTL, as a foreign PERSIST makes it.
                expires in any::<bool>(),
            ) {
                run(Key::default(), &policies, start, &steps, expires)?;
            }
        }
    };
}

histories!(a_fixed_window_counts_what_the_list_says, FixedWindow, 500);
histories!(
    a_sliding_window_counts_what_the_list_says,
    SlidingWindow,
    500
);
histories!(a_sliding_log_counts_what_the_list_says, SlidingLog, 500);
histories!(a_leaky_bucket_counts_what_the_list_says, LeakyBucket, 200);
histories!(a_token_bucket_counts_what_the_list_says, TokenBucket, 100);
