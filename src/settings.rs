//! What operators can set.

use crate::boundary::settings::Setting;

/// The longest lease, KEEP and (later) MAXHOLD that a lock command takes, in ms: a day,
/// up to a year.
pub(crate) static LOCK_MAX_LEASE_MS: Setting =
    Setting::new(c"lock-max-lease-ms", 86_400_000, 1, 31_536_000_000);

/// The least time between two effects of one limiter key, in ms, up to an hour. 0: every
/// admitted call is propagated.
pub(crate) static RL_REPLICATION_INTERVAL_MS: Setting =
    Setting::new(c"rl-replication-interval-ms", 0, 0, 3_600_000);

pub(crate) static ALL: [&Setting; 2] = [&LOCK_MAX_LEASE_MS, &RL_REPLICATION_INTERVAL_MS];
