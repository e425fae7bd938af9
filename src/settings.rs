//! What operators can set.

use crate::boundary::settings::Setting;

/// The longest lease, KEEP and (later) MAXHOLD that a lock command takes, in ms: a day,
/// up to a year.
pub(crate) static LOCK_MAX_LEASE_MS: Setting =
    Setting::new(c"lock-max-lease-ms", 86_400_000, 1, 31_536_000_000);

pub(crate) static ALL: [&Setting; 1] = [&LOCK_MAX_LEASE_MS];
