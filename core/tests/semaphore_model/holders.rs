//! A semaphore with three holders, and how it comes about.

use sluice_core::semaphore::{Acquire, Request};
use sluice_core::{Micros, Semaphore};

pub(crate) const START_US: u64 = 1_750_000_000_000_000;
pub(crate) const NOW: Micros = Micros(START_US);

pub(crate) fn ask(owner: &[u8], permits: u32, limit: u32) -> Request<'_> {
    Request {
        owner,
        lease_ms: 1000,
        meta: b"",
        permits,
        limit,
    }
}

#[track_caller]
pub(crate) fn grant(
    stored: Option<Semaphore>,
    request: &Request<'_>,
    now: Micros,
    mark: u64,
) -> Semaphore {
    let mut stored = stored;
    match Semaphore::acquire(stored.as_mut(), request, false, now, mark) {
        Ok(Acquire::Granted(semaphore, _)) => semaphore,
        Ok(Acquire::Joined(..)) => stored.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// a (2 permits, until +1000), b (1, until +1000), c (4, until +1000).
pub(crate) fn three() -> Semaphore {
    let one = grant(None, &ask(b"a", 2, 9), NOW, 0);
    let two = grant(Some(one), &ask(b"b", 1, 9), NOW, NOW.0);
    grant(Some(two), &ask(b"c", 4, 9), NOW, NOW.0 + 1)
}
