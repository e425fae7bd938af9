//! What clients, operators, the clock and chance do to one key, and what is replied.

use proptest::prelude::*;
use sluice_core::{Error, Semaphore};
use std::sync::LazyLock;

const YEAR_MS: u64 = 31_536_000_000;

/// The first few: with and without an allocation of their own, one a prefix of another.
pub(crate) const FEW: usize = 5;
/// More than are kept in a plain list.
pub(crate) const MANY: usize = 60;

pub(crate) static OWNERS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let first: [&[u8]; FEW] = [b"a", b"a\0", b"b", &[0xff; 100], &[b'o'; 512]];
    let others = (FEW..MANY).map(|n| format!("owner-{}", n * 7 % MANY).into_bytes());
    first.map(Vec::from).into_iter().chain(others).collect()
});

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire {
        owner: usize,
        lease_ms: u64,
        limit: u32,
        permits: u32,
        others_wait: bool,
    },
    Release {
        owner: usize,
        token: Presented,
    },
    Renew {
        owner: usize,
        lease_ms: u64,
        token: Presented,
    },
    /// DEL, eviction, FLUSHALL.
    Lose,
    /// The server removes the key if its TTL is over; else it stays, as after PERSIST.
    Expire,
    /// In µs.
    Clock(i64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Presented {
    Nothing,
    Right,
    Wrong,
}

/// With more owners limits and leases grow, and rarely are all lost at once, so that most of
/// them can hold.
pub(crate) fn step(owners: usize) -> impl Strategy<Value = Step> {
    let owner = move || 0..owners;
    let often = (owners / FEW).pow(2) as u32;
    let longest = 4 * u64::from(often) * owners as u64;
    let lease_ms = move || prop_oneof![4 => 1..longest, 1 => 1..=YEAR_MS];
    let presented = || {
        prop_oneof![
            Just(Presented::Nothing),
            Just(Presented::Right),
            Just(Presented::Wrong)
        ]
    };
    let limit = prop_oneof![6 => 1..2 * often * owners as u32, 1 => 1..=Semaphore::MAX_PERMITS];
    let acquire = (
        owner(),
        lease_ms(),
        limit,
        1u32..6,
        prop::bool::weighted(0.1),
    );
    let clock = prop_oneof![
        6 * often => 0..5_000i64,
        2 * often => 5_000..30_000i64,
        often => -30_000..0i64,
        1 => Just(3_600_000_000),
    ];
    prop_oneof![
        8 * often => acquire.prop_map(|(owner, lease_ms, limit, permits, others_wait)| Step::Acquire {
            owner, lease_ms, limit, permits, others_wait
        }),
        2 * often => (owner(), presented()).prop_map(|(owner, token)| Step::Release { owner, token }),
        3 * often => (owner(), lease_ms(), presented()).prop_map(|(owner, lease_ms, token)| Step::Renew {
            owner, lease_ms, token
        }),
        1 => Just(Step::Lose),
        2 * often => Just(Step::Expire),
        5 * often => clock.prop_map(Step::Clock),
    ]
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Token(u64),
    Nil,
    Number(u64),
    Error(Error),
}
