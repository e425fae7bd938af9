//! Counters for `INFO sluice`. Names of keys, owners and tenants never occur in them.

use crate::boundary::datatype::DataType;
use crate::tokens;
use sluice_core::limiter::Algorithm;
use sluice_core::{Guard, Limiter, Lock};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts events since the load. Written by the server's main thread only, so that a plain
/// load and store will do.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn hit(&self) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, events: u64) {
        self.0.store(self.0.load(Relaxed) + events, Relaxed);
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
    RL_GCRA_ALLOWED = c"rl_gcra_allowed";
    RL_GCRA_DENIED = c"rl_gcra_denied";
    RL_TOKENBUCKET_ALLOWED = c"rl_tokenbucket_allowed";
    RL_TOKENBUCKET_DENIED = c"rl_tokenbucket_denied";
    RL_PEEKED = c"rl_peeked";
    /// Keys, not calls.
    RL_RESET = c"rl_reset";
    /// Effects from clients that may not send any, and malformed or too new ones.
    EFFECTS_REFUSED = c"effects_refused";
}

/// The counter of verdicts like this one.
#[inline]
pub(crate) fn verdict(algorithm: Algorithm, allowed: bool) -> &'static Counter {
    match (algorithm, allowed) {
        (Algorithm::Gcra, true) => &RL_GCRA_ALLOWED,
        (Algorithm::Gcra, false) => &RL_GCRA_DENIED,
        (Algorithm::TokenBucket, true) => &RL_TOKENBUCKET_ALLOWED,
        (Algorithm::TokenBucket, false) => &RL_TOKENBUCKET_DENIED,
    }
}

/// Everything `INFO sluice` shows.
pub(crate) fn fields(field: &mut dyn FnMut(&CStr, u64)) {
    for (name, counter) in COUNTERS {
        field(name, counter.0.load(Relaxed));
    }
    field(c"token_high_water", tokens::high_water());
    field(c"lock_keys", Lock::handle().live());
    field(c"guard_keys", Guard::handle().live());
    field(c"rl_keys", Limiter::handle().live());
}
