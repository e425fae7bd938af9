//! Semaphores as what clients wait for.

use super::grant::{Grant, Wanted};
use super::revoke::Revoked;
use super::*;
use crate::boundary::datatype::DataType;
use crate::{tokens, types};
use sluice_core::semaphore::{Acquire, Release, Request};
use sluice_core::{Semaphore, Token};
use std::ffi::CStr;

impl Leased for Semaphore {
    const KIND: Kind = Kind::Semaphore;
    const GRANTED: &'static CStr = c"sem.granted";
    const RELEASED: &'static CStr = c"sem.released";

    /// Each holder's permits may be all that the head of the queue waits for.
    fn next_end(&self, now: Millis) -> Millis {
        self.next_deadline(now)
            .unwrap_or_else(|| DataType::deadline(self))
    }

    fn grant(
        ctx: Context,
        key: &mut Key<'_, Semaphore>,
        name: Text<'_>,
        wanted: &Wanted,
        is_free: bool,
        now: Micros,
    ) -> Result<Option<Grant>, Error> {
        let request = request(wanted);
        let high_water = tokens::high_water();
        let stored = if is_free { None } else { key.value() };
        match Semaphore::acquire(stored, &request, false, now, high_water)? {
            Acquire::Busy => Ok(None),
            Acquire::Granted(semaphore, token) => {
                if !is_free {
                    replaced(ctx, key, name, now);
                }
                key.set(semaphore);
                key.publish(now);
                Ok(Some(Grant::new(token)))
            }
            Acquire::Joined(token, change) => {
                types::semaphore::publish(ctx, key, name, &change, now);
                Ok(Some(Grant::new(token)))
            }
            Acquire::Retried(token, change) => {
                if let Some(change) = change {
                    types::semaphore::publish(ctx, key, name, &change, now);
                }
                Ok(Some(Grant::held_before(token)))
            }
        }
    }

    fn revoke(
        ctx: Context,
        key: &mut Key<'_, Semaphore>,
        name: Text<'_>,
        hold: &Revoked,
        now: Micros,
    ) {
        give_back(ctx, key, name, &hold.owner, Some(hold.token), now);
    }

    fn count_lapsed(&self, now: Millis) {
        metrics::permits_expired(self, now);
    }

    fn may_have_lapsed(&self) -> bool {
        true
    }
}

/// Gives back what `owner` holds, to whoever waits for it, and says how many permits.
pub(crate) fn give_back(
    ctx: Context,
    key: &mut Key<'_, Semaphore>,
    name: Text<'_>,
    owner: &[u8],
    token: Option<Token>,
    now: Micros,
) -> Option<u32> {
    let held = |granted| metrics::SEMAPHORES.held(now.floor_ms().since(granted));
    match key.value()?.release(owner, token, now) {
        Release::NotHeld => None,
        Release::Freed { permits, granted } => {
            held(granted);
            hand_over_or_remove(ctx, key, name, now, Semaphore::RELEASED);
            Some(permits)
        }
        Release::Returned {
            permits,
            granted,
            token,
            change,
        } => {
            held(granted);
            sessions::forget_holds(ctx.db(), name.bytes(), &[token]);
            types::semaphore::publish(ctx, key, name, &change, now);
            moved(ctx, key, name, now);
            hand_on(ctx, key, name, now, Some(Semaphore::RELEASED));
            Some(permits)
        }
    }
}

/// The most generous of the calls in a place speaks for all: if it alone had come, it would
/// be granted as soon.
fn request(wanted: &Wanted) -> Request<'_> {
    let (permits, limit) = match wanted.wants {
        Wants::Permits { permits, limit } => (permits, limit),
        Wants::Lock { .. } => (1, 1),
    };
    Request {
        owner: &wanted.owner,
        lease_ms: wanted.lease_ms,
        meta: &wanted.meta,
        permits,
        limit,
    }
}

impl<'a> From<&Request<'a>> for Ask<'a> {
    fn from(request: &Request<'a>) -> Ask<'a> {
        Ask {
            owner: request.owner,
            lease_ms: request.lease_ms,
            meta: request.meta,
            wants: Wants::Permits {
                permits: request.permits,
                limit: request.limit,
            },
        }
    }
}
