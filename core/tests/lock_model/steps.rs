//! What clients, operators, the clock and chance do to two keys.

use proptest::prelude::*;
use proptest::sample::Index;
use sluice_core::Error;

pub(crate) const KEYS: usize = 2;

/// With and without an allocation of their own, one a prefix of another.
pub(crate) const OWNERS: [&[u8]; 4] = [b"a", b"a\0", b"b", &[0xff; 100]];
pub(crate) const METAS: [&[u8]; 3] = [b"", b"host-1", &[b'm'; 1024]];

const YEAR_MS: u64 = 31_536_000_000;
const HOUR_US: i64 = 3_600_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire(Ask),
    Release {
        key: usize,
        owner: usize,
        token: Presented,
        keep_ms: Option<u64>,
    },
    Renew {
        key: usize,
        owner: usize,
        lease_ms: u64,
        token: Presented,
    },
    Downgrade {
        key: usize,
        owner: usize,
        token: Presented,
    },
    /// The connection that the hold was bound to has closed, or nobody read the grant.
    Revoke {
        key: usize,
        owner: usize,
        token: Presented,
    },
    ForceRelease {
        key: usize,
        token: Presented,
    },
    /// DEL, eviction, FLUSHALL.
    Lose {
        key: usize,
    },
    /// The server removes the key if its TTL is over; without it, it stays as after PERSIST.
    Expire {
        key: usize,
    },
    /// A loaded or replicated token, this far above the clock.
    Receive {
        ahead_us: i64,
    },
    Clock(Clock),
}

impl Step {
    /// Whose hold on which key it is about.
    pub(crate) fn hold(&self) -> Option<(usize, &'static [u8])> {
        match *self {
            Step::Acquire(Ask { key, owner, .. })
            | Step::Release { key, owner, .. }
            | Step::Renew { key, owner, .. }
            | Step::Downgrade { key, owner, .. }
            | Step::Revoke { key, owner, .. } => Some((key, OWNERS[owner])),
            _ => None,
        }
    }
}

/// LOCK.ACQUIRE with every option that the core knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: usize,
    pub(crate) owner: usize,
    pub(crate) lease_ms: u64,
    pub(crate) meta: usize,
    pub(crate) is_shared: bool,
    pub(crate) is_reentrant: bool,
    pub(crate) maxhold_ms: Option<u64>,
    pub(crate) others_wait: bool,
}

/// The TOKEN that a client sends.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    None,
    /// Of the hold that the owner has there, live or over; else as the last.
    Held,
    /// Of the last grant on this key, this much off it.
    Last {
        off: i64,
    },
    /// Of the first grant on this key.
    First,
}

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    By(i64),
    /// To the last microsecond of something stored under a key (a hold, a KEEP), and this
    /// far on.
    ToEnd {
        key: usize,
        which: Index,
        offset_us: i64,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A token, a lease left, or whether it was done.
    Integer(u64),
    /// Given back: with it ended a hold that was granted then, or `None`, one of several.
    Released(Option<u64>),
    /// A DOWNGRADE of what was shared before.
    Already,
    Nil,
    /// Nil too, but nothing that waiting would change.
    UpgradeBusy,
    Error(Error),
}

impl Reply {
    /// Whether nothing was done, so that nothing may have changed.
    pub(crate) fn is_negative(&self) -> bool {
        !matches!(self, Reply::Integer(1..) | Reply::Released(_))
    }
}

/// The token that [`Step::Receive`] brings.
pub(crate) fn received(now_us: u64, ahead_us: i64) -> u64 {
    now_us
        .saturating_add_signed(ahead_us)
        .clamp(1, (1 << 53) - 1)
}

fn lease() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..=5u64, 2 => 1..=10_000u64, 1 => 1..=YEAR_MS]
}

fn presented() -> impl Strategy<Value = Presented> {
    prop_oneof![
        4 => Just(Presented::None),
        3 => Just(Presented::Held),
        1 => Just(Presented::Last { off: 0 }),
        2 => prop_oneof![Just(-1i64), Just(1)].prop_map(|off| Presented::Last { off }),
        1 => Just(Presented::First),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    (
        (0..KEYS, 0..OWNERS.len(), lease(), 0..METAS.len()),
        prop::bool::weighted(0.6),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.3, lease()),
        prop::bool::weighted(0.15),
    )
        .prop_map(
            |((key, owner, lease_ms, meta), is_shared, is_reentrant, maxhold_ms, others_wait)| {
                Ask {
                    key,
                    owner,
                    lease_ms,
                    meta,
                    is_shared,
                    is_reentrant,
                    maxhold_ms,
                    others_wait,
                }
            },
        )
}

fn clock() -> impl Strategy<Value = Clock> {
    let offset = prop_oneof![Just(0i64), Just(1), Just(-1), Just(-999), Just(-1000)];
    prop_oneof![
        2 => Just(Clock::By(1)),
        1 => Just(Clock::By(0)),
        1 => Just(Clock::By(-1)),
        2 => (-5i64..=5).prop_map(|ms| Clock::By(ms * 1000)),
        2 => (-20_000i64..=20_000).prop_map(Clock::By),
        1 => prop_oneof![Just(HOUR_US), Just(-HOUR_US)].prop_map(Clock::By),
        4 => (0..KEYS, any::<Index>(), offset)
            .prop_map(|(key, which, offset_us)| Clock::ToEnd { key, which, offset_us }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let owner = || 0..OWNERS.len();
    let hold = || (key(), owner(), presented());
    prop_oneof![
        12 => ask().prop_map(Step::Acquire),
        4 => (hold(), prop::option::weighted(0.3, lease()))
            .prop_map(|((key, owner, token), keep_ms)| Step::Release { key, owner, token, keep_ms }),
        4 => (hold(), lease())
            .prop_map(|((key, owner, token), lease_ms)| Step::Renew { key, owner, lease_ms, token }),
        2 => hold().prop_map(|(key, owner, token)| Step::Downgrade { key, owner, token }),
        2 => hold().prop_map(|(key, owner, token)| Step::Revoke { key, owner, token }),
        1 => (key(), presented()).prop_map(|(key, token)| Step::ForceRelease { key, token }),
        1 => key().prop_map(|key| Step::Lose { key }),
        1 => key().prop_map(|key| Step::Expire { key }),
        1 => prop_oneof![Just(-1i64), Just(0), Just(1), Just(5_000_000)]
            .prop_map(|ahead_us| Step::Receive { ahead_us }),
        8 => clock().prop_map(Step::Clock),
    ]
}

/// The epoch, today, and an hour or less before the tokens run out.
pub(crate) fn start() -> impl Strategy<Value = u64> {
    let end = (1u64 << 53) - 1;
    prop_oneof![
        1 => 0..=5_000u64,
        6 => 1_750_000_000_000_000u64..1_800_000_000_000_000,
        1 => end - 20..=end,
        1 => end - HOUR_US as u64..=end,
    ]
}
