//! Counters for `INFO sluice`. Names of keys, owners and tenants never occur in them.

use crate::boundary::datatype::DataType;
use crate::{tokens, waiting};
use hdrhistogram::Histogram;
use sluice_core::limiter::Algorithm;
use sluice_core::{Guard, Limiter, Lock, Millis, Semaphore};
use std::cell::{OnceCell, RefCell};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::LocalKey;

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
        self.0.store(self.get() + events, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The highest value so far.
pub(crate) struct Peak(AtomicU64);

impl Peak {
    pub(crate) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}

pub(crate) static WAITERS_PEAK: Peak = Peak(AtomicU64::new(0));

/// How long something took, in the unit its field names: percentiles to two digits.
pub(crate) struct Times {
    histogram: OnceCell<RefCell<Histogram<u32>>>,
}

impl Times {
    const fn new() -> Times {
        Times {
            histogram: OnceCell::new(),
        }
    }

    fn histogram(&self) -> &RefCell<Histogram<u32>> {
        self.histogram.get_or_init(|| {
            // Up to a year in ms, which is more than ten hours in µs.
            let empty = Histogram::new_with_bounds(1, 31_536_000_000, 2);
            RefCell::new(empty.expect("these bounds are valid"))
        })
    }

    fn record(&self, time: u64) {
        self.histogram().borrow_mut().saturating_record(time);
    }

    fn fields(&self, names: [&CStr; 4], field: &mut dyn FnMut(&CStr, u64)) {
        let histogram = self.histogram().borrow();
        for (name, quantile) in names.into_iter().zip([0.5, 0.95, 0.99, 1.0]) {
            field(name, histogram.value_at_quantile(quantile));
        }
    }
}

thread_local! {
    // The server's main thread only.
    static HOLD_MS: Times = const { Times::new() };
    static WAIT_US: Times = const { Times::new() };
    static SEM_HOLD_MS: Times = const { Times::new() };
    static SEM_WAIT_US: Times = const { Times::new() };
}

/// What is counted alike for every kind of key that is held for a lease.
pub(crate) struct Leases {
    pub(crate) granted: &'static Counter,
    pub(crate) timed_out: &'static Counter,
    pub(crate) queue_full: &'static Counter,
    pub(crate) expired: &'static Counter,
    pub(crate) sessions_closed: &'static Counter,
    hold_ms: &'static LocalKey<Times>,
    wait_us: &'static LocalKey<Times>,
}

pub(crate) static LOCKS: Leases = Leases {
    granted: &LOCK_GRANTED,
    timed_out: &LOCK_TIMED_OUT,
    queue_full: &QUEUE_FULL,
    expired: &LOCK_EXPIRED,
    sessions_closed: &LOCK_SESSIONS_CLOSED,
    hold_ms: &HOLD_MS,
    wait_us: &WAIT_US,
};

pub(crate) static SEMAPHORES: Leases = Leases {
    granted: &SEM_GRANTED,
    timed_out: &SEM_TIMED_OUT,
    queue_full: &SEM_QUEUE_FULL,
    expired: &SEM_EXPIRED,
    sessions_closed: &SEM_SESSIONS_CLOSED,
    hold_ms: &SEM_HOLD_MS,
    wait_us: &SEM_WAIT_US,
};

impl Leases {
    /// A hold has ended, released, forced or lapsed, after `ms`.
    pub(crate) fn held(&self, ms: u64) {
        self.hold_ms.with(|times| times.record(ms));
    }

    /// A wait has ended in a grant.
    pub(crate) fn waited(&self, us: u64) {
        self.wait_us.with(|times| times.record(us));
    }

    /// A lease has run out before its owner released it.
    pub(crate) fn lapsed(&self, granted: Millis, deadline: Millis) {
        self.expired.hit();
        self.held(deadline.since(granted));
    }
}

/// Those leases in `lock` that are over have run out before their owners released them.
pub(crate) fn leases_expired(lock: &Lock, now: Millis) {
    for hold in lock.holds().filter(|hold| hold.is_over(now)) {
        LOCKS.lapsed(hold.granted, hold.deadline);
    }
}

/// The same of a semaphore.
pub(crate) fn permits_expired(semaphore: &Semaphore, now: Millis) {
    for hold in semaphore.holds().filter(|hold| hold.is_over(now)) {
        SEMAPHORES.lapsed(hold.granted, hold.deadline);
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
    /// Those of the idempotent retries that added a hold: REENTRANT.
    LOCK_REENTERED = c"lock_reentered";
    LOCK_DOWNGRADED = c"lock_downgraded";
    /// Holds freed because their connection closed.
    LOCK_SESSIONS_CLOSED = c"lock_sessions_closed";
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
    /// Waits that ended without a grant.
    LOCK_TIMED_OUT = c"lock_wait_timeouts";
    /// Waits refused because as many waited as may.
    QUEUE_FULL = c"lock_queue_full";
    /// Leases that ran out before their owner released them.
    LOCK_EXPIRED = c"lock_leases_expired";
    SEM_GRANTED = c"sem_granted";
    SEM_BUSY = c"sem_busy";
    /// ACQUIRE of a holder that held its permits already.
    SEM_RETRIED = c"sem_idempotent_retries";
    /// Calls, not permits.
    SEM_RELEASED = c"sem_released";
    SEM_NOT_HOLDER = c"sem_release_not_holder";
    SEM_RENEWED = c"sem_renewed";
    SEM_LOST = c"sem_renew_lost";
    SEM_TIMED_OUT = c"sem_wait_timeouts";
    SEM_QUEUE_FULL = c"sem_queue_full";
    SEM_EXPIRED = c"sem_leases_expired";
    SEM_SESSIONS_CLOSED = c"sem_sessions_closed";
    GUARD_ACCEPTED = c"guard_accepted";
    GUARD_STALE = c"guard_stale";
    /// RL.BLOCK.
    RL_BLOCKS = c"rl_blocks";
    /// Keys, not calls.
    RL_RESET = c"rl_reset";
    /// Effects from clients that may not send any, and malformed or too new ones.
    EFFECTS_REFUSED = c"effects_refused";
}

/// What became of the calls under one algorithm.
pub(crate) struct Calls {
    pub(crate) allowed: Counter,
    pub(crate) denied: Counter,
    pub(crate) peeked: Counter,
    pub(crate) charged: Counter,
    pub(crate) refunded: Counter,
}

impl Calls {
    #[inline]
    pub(crate) fn decided(&self, allowed: bool) {
        let counter = if allowed { &self.allowed } else { &self.denied };
        counter.hit();
    }
}

macro_rules! calls {
    ($($algorithm:ident = $static:ident $name:literal;)*) => {
        $(static $static: Calls = Calls {
            allowed: Counter(AtomicU64::new(0)),
            denied: Counter(AtomicU64::new(0)),
            peeked: Counter(AtomicU64::new(0)),
            charged: Counter(AtomicU64::new(0)),
            refunded: Counter(AtomicU64::new(0)),
        };)*

        /// The counters of one algorithm.
        #[inline]
        pub(crate) fn calls(algorithm: Algorithm) -> &'static Calls {
            match algorithm {
                $(Algorithm::$algorithm => &$static,)*
            }
        }

        fn calls_fields(field: &mut dyn FnMut(&CStr, u64)) {
            $(
                field(name(concat!("rl_", $name, "_allowed\0")), $static.allowed.get());
                field(name(concat!("rl_", $name, "_denied\0")), $static.denied.get());
                field(name(concat!("rl_", $name, "_peeked\0")), $static.peeked.get());
                field(name(concat!("rl_", $name, "_charged\0")), $static.charged.get());
                field(name(concat!("rl_", $name, "_refunded\0")), $static.refunded.get());
            )*
        }
    };
}

calls! {
    Gcra = GCRA "gcra";
    TokenBucket = TOKEN_BUCKET "tokenbucket";
    LeakyBucket = LEAKY_BUCKET "leakybucket";
    FixedWindow = FIXED_WINDOW "fixedwindow";
    SlidingWindow = SLIDING_WINDOW "slidingwindow";
    SlidingLog = SLIDING_LOG "slidinglog";
}

fn name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).expect("one NUL, at the end")
}

macro_rules! percentiles {
    ($field:ident, $times:ident, $of:literal) => {
        $times.with(|times| {
            let names = [
                concat!($of, "_p50\0"),
                concat!($of, "_p95\0"),
                concat!($of, "_p99\0"),
                concat!($of, "_max\0"),
            ];
            times.fields(names.map(name), $field);
        });
    };
}

/// Everything `INFO sluice` shows.
pub(crate) fn fields(field: &mut dyn FnMut(&CStr, u64)) {
    for (name, counter) in COUNTERS {
        field(name, counter.get());
    }
    calls_fields(field);
    percentiles!(field, HOLD_MS, "lock_hold_ms");
    percentiles!(field, WAIT_US, "lock_wait_us");
    percentiles!(field, SEM_HOLD_MS, "sem_hold_ms");
    percentiles!(field, SEM_WAIT_US, "sem_wait_us");
    field(c"waiters", waiting::waiters());
    field(c"waiters_peak", WAITERS_PEAK.0.load(Relaxed));
    field(c"token_high_water", tokens::high_water());
    field(c"lock_keys", Lock::handle().live());
    field(c"sem_permits", Semaphore::handle().gauge());
    field(c"sem_keys", Semaphore::handle().live());
    field(c"guard_keys", Guard::handle().live());
    field(c"rl_keys", Limiter::handle().live());
}
