//! What is particular to the kinds of keys that clients wait for, and what they ask for.

use super::grant::{Grant, Wanted};
use super::revoke::Revoked;
use crate::boundary::args::Text;
use crate::boundary::context::Context;
use crate::boundary::datatype::DataType;
use crate::boundary::key::Key;
use crate::metrics::{self, Leases};
use crate::sessions::ClientId;
use sluice_core::waiting::Mono;
use sluice_core::{Error, Micros, Millis};
use std::ffi::CStr;
use std::rc::Rc;

/// A kind of key that clients hold for a lease, and wait for.
pub(crate) trait Leased: DataType {
    const KIND: Kind;
    // What subscribers are told of a grant and of a release.
    const GRANTED: &'static CStr;
    const RELEASED: &'static CStr;

    /// When the next lease ends, so that somebody may be granted what is busy now. Not
    /// before `now`, unless all are over.
    fn next_end(&self, now: Millis) -> Millis;

    /// Grants what the head of a queue wants, and publishes that; `None` when it is busy.
    /// `is_free`: what is stored no longer counts.
    fn grant(
        ctx: Context,
        key: &mut Key<'_, Self>,
        name: Text<'_>,
        wanted: &Wanted,
        is_free: bool,
        now: Micros,
    ) -> Result<Option<Grant>, Error>;

    /// Takes a hold back, if it still is there under its token, and hands on what that frees.
    fn revoke(ctx: Context, key: &mut Key<'_, Self>, name: Text<'_>, hold: &Revoked, now: Micros);

    /// Counts the leases that ran out before their owners released them.
    fn count_lapsed(&self, now: Millis);

    /// Whether there may be any, in one whose last holder has just released it.
    fn may_have_lapsed(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Semaphore,
}

impl Kind {
    pub(super) fn counters(self) -> &'static Leases {
        match self {
            Kind::Lock => &metrics::LOCKS,
            Kind::Semaphore => &metrics::SEMAPHORES,
        }
    }
}

/// What a waiter asks for.
pub(super) struct Wish {
    pub(super) since: Mono,
    pub(super) lease_ms: u64,
    pub(super) meta: Rc<[u8]>,
    pub(super) wants: Wants,
    /// SESSION: the connection to bind to.
    pub(super) session: Option<ClientId>,
}

/// What is particular to the kind of key.
#[derive(Clone, Copy)]
pub(crate) enum Wants {
    Lock {
        is_shared: bool,
        maxhold_ms: Option<u64>,
    },
    Permits {
        permits: u32,
        limit: u32,
    },
}

impl Wants {
    pub(super) fn kind(self) -> Kind {
        match self {
            Wants::Lock { .. } => Kind::Lock,
            Wants::Permits { .. } => Kind::Semaphore,
        }
    }

    /// Whether one owner may ask for this, too, while it waits.
    pub(super) fn agrees_with(self, other: Wants) -> Result<(), Error> {
        match (self, other) {
            (Wants::Permits { permits, .. }, Wants::Permits { permits: asked, .. })
                if permits != asked =>
            {
                Err(Error::PermitsChanged { permits })
            }
            _ if self.kind() != other.kind() => Err(Error::WrongType),
            _ => Ok(()),
        }
    }

    /// What one owner wants that asked for this first and for `other` later: a lock
    /// exclusively if it ever did, permits under the highest limit it gave.
    pub(super) fn and_later(&mut self, other: Wants) {
        match (self, other) {
            (Wants::Lock { is_shared, .. }, Wants::Lock { is_shared: too, .. }) => {
                *is_shared &= too;
            }
            (Wants::Permits { limit, .. }, Wants::Permits { limit: other, .. }) => {
                *limit = (*limit).max(other);
            }
            _ => {}
        }
    }
}

/// What a client that is about to wait asks for.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(super) owner: &'a [u8],
    pub(super) lease_ms: u64,
    pub(super) meta: &'a [u8],
    pub(super) wants: Wants,
}
