//! Logs of many chunks, whose totals wrap around.

use crate::key::Key;
use crate::logs::Log;
use crate::model::{Model, Used};
use crate::rules::Numbers;
use crate::steps::{policies, step, NOW_US};
use proptest::prelude::*;
use sluice_core::limiter::Algorithm;

const WINDOW_MS: u64 = 60_000;

fn numbers(limit: u64, most_entries: u64) -> Numbers {
    Numbers {
        algorithm: Algorithm::SlidingLog,
        limit,
        count: 0,
        length_ms: WINDOW_MS,
        align_ms: None,
        most_entries,
    }
}

/// `len` calls, `gap_us` apart, the last of them at `NOW_US`.
fn restored(numbers: &Numbers, left: u64, len: u64, gap_us: u64) -> Key {
    let calls = (0..len).map(|n| (NOW_US - (len - 1 - n) * gap_us, 1 + n % 3));
    Key::restored(Model {
        used: Some(Used::Log(Log::of(numbers, left, calls.collect()))),
        block: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn they_count_and_replicate_as_short_ones_do(
        len in prop::sample::select(vec![2u64, 255, 256, 257, 511, 513, 1_001, 1_500]),
        // All at once, half of them over, and nearly all.
        gap_us in prop::sample::select(vec![1u64, 80_000, 200_000, 1_000_000]),
        left in prop::sample::select(vec![0, u64::MAX, u64::MAX - 500, u64::MAX - 2_000, 1 << 63]),
        limit in prop::sample::select(vec![10u64, 1_000, 3_500]),
        // Or as many as may be.
        is_full in any::<bool>(),
        others in policies(Algorithm::SlidingLog),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let most_entries = if is_full { limit.max(len) } else { 100_000 };
        let numbers = numbers(limit, most_entries);
        let policies = [&[numbers], &others[..]].concat();
        crate::run(restored(&numbers, left, len, gap_us), &policies, NOW_US, &steps, false)?;
    }
}
