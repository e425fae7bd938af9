//! Locks as what clients wait for.

use super::grant::{Grant, Wanted};
use super::revoke::Revoked;
use super::*;
use crate::boundary::datatype::DataType;
use crate::{tokens, types};
use sluice_core::lock::{Acquire, Release, Request};
use sluice_core::Lock;
use std::ffi::CStr;

impl Leased for Lock {
    const KIND: Kind = Kind::Lock;
    const GRANTED: &'static CStr = c"lock.granted";
    const RELEASED: &'static CStr = c"lock.released";

    #[inline]
    fn next_end(&self, _: Millis) -> Millis {
        DataType::deadline(self)
    }

    #[inline]
    fn grant(
        ctx: Context,
        key: &mut Key<'_, Lock>,
        name: Text<'_>,
        wanted: &Wanted,
        is_free: bool,
        now: Micros,
    ) -> Result<Option<Grant>, Error> {
        let request = request(wanted);
        let high_water = tokens::high_water();
        let stored = if is_free { None } else { key.value() };
        match Lock::acquire(stored, &request, false, now, high_water)? {
            Acquire::Busy { .. } => Ok(None),
            Acquire::Granted(lock, token) => {
                let mut connection = None;
                if !is_free {
                    connection = upgraded_connection(ctx, key, name, &wanted.owner, now);
                    replaced(ctx, key, name, now);
                }
                key.set(lock);
                key.publish(now);
                if let Some(client) = connection {
                    bind(ctx, Kind::Lock, name, &wanted.owner, token, client);
                }
                Ok(Some(Grant::new(token)))
            }
            Acquire::Joined(token, change) => {
                types::lock::publish(ctx, key, name, &change, now);
                Ok(Some(Grant::new(token)))
            }
            Acquire::Retried(token, change) => {
                if let Some(change) = change {
                    types::lock::publish(ctx, key, name, &change, now);
                }
                Ok(Some(Grant::held_before(token)))
            }
        }
    }

    fn revoke(ctx: Context, key: &mut Key<'_, Lock>, name: Text<'_>, hold: &Revoked, now: Micros) {
        let Some(lock) = key.value() else {
            return;
        };
        match lock.revoke(&hold.owner, hold.token, now) {
            Release::Freed { granted } => {
                metrics::LOCKS.held(now.floor_ms().since(granted));
                hand_over_or_remove(ctx, key, name, now, Lock::RELEASED);
            }
            Release::Held { change, ended } => {
                if let Some(granted) = ended {
                    metrics::LOCKS.held(now.floor_ms().since(granted));
                }
                types::lock::publish(ctx, key, name, &change, now);
                hand_on(ctx, key, name, now, Some(Lock::RELEASED));
            }
            Release::NotHeld | Release::Kept { .. } => {}
        }
    }

    #[inline]
    fn count_lapsed(&self, now: Millis) {
        metrics::leases_expired(self, now);
    }

    /// One that was held exclusively was so by whoever has just released it.
    #[inline]
    fn may_have_lapsed(&self) -> bool {
        matches!(self, Lock::Shared(_))
    }
}

/// One that asks for the lock exclusively speaks for all in its place.
fn request(wanted: &Wanted) -> Request<'_> {
    let (is_shared, maxhold_ms) = match wanted.wants {
        Wants::Lock {
            is_shared,
            maxhold_ms,
        } => (is_shared, maxhold_ms),
        Wants::Permits { .. } => (false, None),
    };
    Request {
        meta: &wanted.meta,
        is_shared,
        maxhold_ms,
        ..Request::exclusive(&wanted.owner, wanted.lease_ms)
    }
}

impl<'a> From<&Request<'a>> for Ask<'a> {
    fn from(request: &Request<'a>) -> Ask<'a> {
        Ask {
            owner: request.owner,
            lease_ms: request.lease_ms,
            meta: request.meta,
            wants: Wants::Lock {
                is_shared: request.is_shared,
                maxhold_ms: request.maxhold_ms,
            },
        }
    }
}

/// The connection that an upgraded reader stays bound to: the one its hold is bound to now.
#[inline]
pub(crate) fn upgraded_connection(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    owner: &[u8],
    now: Micros,
) -> Option<ClientId> {
    key.value()
        .is_some_and(|lock| lock.is_held_by(owner, None, now))
        .then(|| sessions::connection_of(ctx.db(), name.bytes(), owner))?
}
