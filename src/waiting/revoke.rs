//! Taking holds back: grants that no client lived to read, and SESSION.

use super::*;
use crate::sessions::Bound;
use sluice_core::{Lock, Semaphore};
use std::rc::Weak;

thread_local! {
    // The server's main thread only.
    static DELIVERIES: RefCell<Vec<Weak<Delivery>>> = const { RefCell::new(Vec::new()) };
    static REVOKED: RefCell<Vec<Revoked>> = const { RefCell::new(Vec::new()) };
}

/// A hold to be taken back: a grant that none of its clients lived to read, or one that was
/// bound to a connection that closed.
pub(crate) type Revoked = Bound;

/// How many holds are about to be taken back.
static TO_REVOKE: AtomicUsize = AtomicUsize::new(0);

/// How many grants are on their way to their clients, until the end of this turn of the
/// server's loop.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A grant on its way to its clients, shared by their answers. When the last is dropped and
/// none was handed over, it is to be undone.
pub(super) struct Delivery {
    grant: RefCell<Option<Revoked>>,
}

impl Delivery {
    /// `None`: nothing is to be undone.
    pub(super) fn new(grant: Option<Bound>) -> Rc<Delivery> {
        let delivery = Rc::new(Delivery {
            grant: RefCell::new(grant),
        });
        UNDER_WAY.fetch_add(1, Relaxed);
        DELIVERIES.with_borrow_mut(|deliveries| deliveries.push(Rc::downgrade(&delivery)));
        delivery
    }

    /// One of its clients has it.
    pub(super) fn arrived(&self) {
        self.grant.take();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if UNDER_WAY.fetch_sub(1, Relaxed) == 1 {
            DELIVERIES.take();
        }
        // No writing here: the server is disposing of a client.
        if let Some(grant) = self.grant.take() {
            with_revoked(|revoked| revoked.push(grant));
            timer::arm(0);
        }
    }
}

fn with_revoked<R>(f: impl FnOnce(&mut Vec<Revoked>) -> R) -> R {
    REVOKED.with_borrow_mut(|revoked| {
        let result = f(revoked);
        TO_REVOKE.store(revoked.len(), Relaxed);
        result
    })
}

/// Whether holds are to be taken back.
pub(super) fn is_due() -> bool {
    TO_REVOKE.load(Relaxed) > 0
}

/// An owner is told that it holds a key: what was to be taken back from it, or would be if
/// its waiters turn out to be gone, is its own.
#[inline]
pub(crate) fn confirmed(ctx: Context, name: Text<'_>, owner: &[u8]) {
    if TO_REVOKE.load(Relaxed) == 0 && UNDER_WAY.load(Relaxed) == 0 {
        return;
    }
    let (db, name) = (ctx.db(), name.bytes());
    let is_it =
        |hold: &Revoked| *hold.owner == *owner && hold.key.db == db && *hold.key.name == *name;
    with_revoked(|revoked| revoked.retain(|hold| !is_it(hold)));
    let under_way = DELIVERIES.with_borrow(|deliveries| deliveries.clone());
    for delivery in under_way.iter().filter_map(Weak::upgrade) {
        let is_it = delivery.grant.borrow().as_ref().is_some_and(is_it);
        if is_it {
            delivery.grant.take();
        }
    }
}

/// A connection has closed: the holds bound to it are taken back soon.
pub(crate) fn closed(client: ClientId) {
    let bound = sessions::closed(client);
    if !bound.is_empty() {
        for hold in &bound {
            hold.kind.counters().sessions_closed.hit();
        }
        with_revoked(|revoked| revoked.extend(bound));
        timer::arm(0);
    }
}

/// A failover keeps leases and drops bindings. What was to be taken back is the new
/// primary's to keep; the server itself has answered the waiters.
pub(crate) fn role_changed() {
    sessions::forget_db(None);
    with_revoked(std::mem::take);
}

/// Takes back all that is due: part of the deferred writer.
pub(super) fn revoke_all(ctx: Context) {
    for hold in with_revoked(std::mem::take) {
        revoke(ctx, &hold);
    }
}

/// Takes a hold back, if it still is there under its token, which stays used.
fn revoke(ctx: Context, hold: &Revoked) {
    match hold.kind {
        Kind::Lock => revoke_from::<Lock>(ctx, hold),
        Kind::Semaphore => revoke_from::<Semaphore>(ctx, hold),
    }
}

fn revoke_from<T: Leased>(ctx: Context, hold: &Revoked) {
    let text = OwnedText::new(&hold.key.name);
    let name = text.text();
    ctx.select_db(hold.key.db);
    let Ok(mut key) = Key::<T>::open_to_write(ctx, name) else {
        return;
    };
    T::revoke(ctx, &mut key, name, hold, clock::now());
}
