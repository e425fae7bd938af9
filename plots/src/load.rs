//! When requests come. Instants are in µs from the start of a plot, which may lie behind the first.

pub(crate) const SECOND: i64 = 1_000_000;

/// How far apart the requests of a burst are.
const WITHIN_BURST: i64 = 1000;

/// How many requests a burst has: more than any limiter here admits at once.
pub(crate) const BURST: i64 = 30;

/// One request a second; two bursts a second apart, about the end of the first window; far too
/// much for twenty seconds; nothing; one more burst.
pub(crate) fn bursty() -> Vec<i64> {
    let steady = (0..20).map(|n| n * SECOND);
    let overload = (0..100).map(|n| 20 * SECOND + n * SECOND / 5);
    let mut load: Vec<i64> = steady
        .chain(burst(9_500_000))
        .chain(burst(10_500_000))
        .chain(overload)
        .chain(burst(50 * SECOND))
        .collect();
    load.sort_unstable();
    load
}

pub(crate) fn burst(at: i64) -> impl Iterator<Item = i64> {
    (0..BURST).map(move |n| at + n * WITHIN_BURST)
}
