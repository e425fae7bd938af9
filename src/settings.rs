//! What operators can set.

use crate::boundary::settings::Setting;

/// The longest lease, KEEP and MAXHOLD that a command of locks or semaphores takes, in ms: a
/// day, up to a year.
pub(crate) static LOCK_MAX_LEASE_MS: Setting =
    Setting::new(c"lock-max-lease-ms", 86_400_000, 1, 31_536_000_000);

/// The longest BLOCK that a command takes, in ms: ten minutes, up to a day.
pub(crate) static LOCK_MAX_WAIT_MS: Setting =
    Setting::new(c"lock-max-wait-ms", 600_000, 1, 86_400_000);

/// How many clients may wait for one key.
pub(crate) static MAX_WAITERS_PER_KEY: Setting =
    Setting::new(c"max-waiters-per-key", 10_000, 1, 1_000_000);

/// The longest SLIDINGLOG, in entries of 16 bytes: up to a million.
pub(crate) static RL_MAX_LOG_ENTRIES: Setting =
    Setting::new(c"rl-max-log-entries", 100_000, 1, 1_000_000);

/// The least time between two effects of one limiter key, in ms, up to an hour. 0: every
/// admitted call is propagated.
pub(crate) static RL_REPLICATION_INTERVAL_MS: Setting =
    Setting::new(c"rl-replication-interval-ms", 0, 0, 3_600_000);

pub(crate) static ALL: [&Setting; 5] = [
    &LOCK_MAX_LEASE_MS,
    &LOCK_MAX_WAIT_MS,
    &MAX_WAITERS_PER_KEY,
    &RL_MAX_LOG_ENTRIES,
    &RL_REPLICATION_INTERVAL_MS,
];
