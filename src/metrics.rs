//! Counters for `INFO sluice`. Names of keys, owners and tenants never occur in them.

use crate::boundary::datatype::DataType;
use crate::tokens;
use sluice_core::{Guard, Lock};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts events since the load. Written by the server's main thread only, so that a plain
/// load and store will do.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn hit(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)*) => {
        $($(#[$doc])* pub(crate) static $name: Counter = Counter(AtomicU64::new(0));)*
        static COUNTERS: &[(&CStr, &Counter)] = &[$(($field, &$name),)*];
    };
}

counters! {
    LOCK_GRANTED = c"lock_granted";
    LOCK_BUSY = c"lock_busy";
    /// ACQUIRE of an owner that held the lock already.
    LOCK_RETRIED = c"lock_idempotent_retries";
    LOCK_RELEASED = c"lock_released";
    /// Those of the releases that left the lock kept.
    LOCK_KEPT = c"lock_kept";
    LOCK_NOT_OWNER = c"lock_release_not_owner";
    LOCK_RENEWED = c"lock_renewed";
    LOCK_LOST = c"lock_renew_lost";
    LOCK_FORCED = c"lock_forced";
    /// Leases that ran out before their owner released them.
    LOCK_EXPIRED = c"lock_leases_expired";
    GUARD_ACCEPTED = c"guard_accepted";
    GUARD_STALE = c"guard_stale";
    /// Effects from clients that may not send any, and malformed or too new ones.
    EFFECTS_REFUSED = c"effects_refused";
}

/// Everything `INFO sluice` shows.
pub(crate) fn fields(field: &mut dyn FnMut(&CStr, u64)) {
    for (name, counter) in COUNTERS {
        field(name, counter.0.load(Relaxed));
    }
    field(c"token_high_water", tokens::high_water());
    field(c"lock_keys", Lock::handle().live());
    field(c"guard_keys", Guard::handle().live());
}
