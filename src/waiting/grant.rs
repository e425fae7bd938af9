//! Granting: who goes first, and handing a lock over in the unit that is running.

use super::revoke::Delivery;
use super::*;
use crate::sessions::Bound;
use crate::{tokens, types};
use sluice_core::lock::Acquire;
use sluice_core::waiting::Group;
use sluice_core::Token;
use std::ffi::CStr;

/// Before an ACQUIRE is decided: if others wait for the lock, whoever of them can have it
/// goes first. Says whether others still wait. A transaction or a script changes nothing
/// here; if the lock is free its queue is served afterwards.
#[inline]
pub(crate) fn queue_goes_first(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    now: Micros,
) -> bool {
    if len_of(ctx, name) == 0 {
        return false;
    }
    if ctx.may_block() {
        answer_ended();
        for _ in 0..advance(ctx, key, name, now, false) {
            ctx.notify(c"lock.granted", name);
        }
    } else if free_after(key).is_none_or(|lease| lease.is_past(now.floor_ms())) {
        look_soon(ctx.db(), name.bytes());
    }
    len_of(ctx, name) > 0
}

/// A lock has become free, as `event` says: grants it to the head of its queue, or deletes
/// the key if nobody waits.
#[inline]
pub(crate) fn hand_over_or_remove(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    now: Micros,
    event: &CStr,
) {
    if let Some(lock @ Lock::Shared(_)) = key.value() {
        metrics::leases_expired(lock, now.floor_ms());
    }
    sessions::forget(ctx.db(), name.bytes(), |_| false);
    let mut granted = 0;
    if len_of(ctx, name) > 0 {
        answer_ended();
        granted = advance(ctx, key, name, now, true);
    }
    if granted == 0 {
        key.remove();
    }
    // Last of all: a subscriber may do anything to the key.
    ctx.notify(event, name);
    for _ in 0..granted {
        ctx.notify(c"lock.granted", name);
    }
}

/// A lock is still held, but by fewer or in another mode: whoever can have it now gets it.
#[inline]
pub(crate) fn hand_on(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    now: Micros,
    event: Option<&CStr>,
) {
    let mut granted = 0;
    if len_of(ctx, name) > 0 {
        answer_ended();
        granted = advance(ctx, key, name, now, false);
    }
    if let Some(event) = event {
        ctx.notify(event, name);
    }
    for _ in 0..granted {
        ctx.notify(c"lock.granted", name);
    }
}

/// Grants to as many at the head of the queue as can have the lock, in the unit that is
/// running, and says to how many. `is_free`: what is stored no longer counts.
fn advance(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    now: Micros,
    mut is_free: bool,
) -> usize {
    let db = ctx.db();
    let mut granted = 0;
    while let Some(wanted) = with(|waiting| waiting.head(db, name.bytes()).map(Wanted::new)) {
        let request = wanted.request();
        let high_water = tokens::high_water();
        let stored = if is_free { None } else { key.value() };
        let (token, is_new) = match Lock::acquire(stored, &request, false, now, high_water) {
            Ok(Acquire::Busy { .. }) => break,
            Ok(Acquire::Granted(lock, token)) => {
                let mut connection = None;
                if !is_free {
                    connection = upgraded_connection(ctx, key, name, &wanted.owner, now);
                    replaced(ctx, key, name, now);
                }
                key.set(lock);
                key.publish(now);
                if let Some(client) = connection {
                    bind(ctx, name, &wanted.owner, token, client);
                }
                (token, true)
            }
            Ok(Acquire::Joined(token, change)) => {
                types::lock::publish(ctx, key, name, &change, now);
                (token, true)
            }
            Ok(Acquire::Retried(token, change)) => {
                if let Some(change) = change {
                    types::lock::publish(ctx, key, name, &change, now);
                }
                (token, false)
            }
            Err(error) => {
                let group = with(|waiting| waiting.take_head(db, name.bytes()));
                tell(
                    group.map(|group| group.seats).unwrap_or_default(),
                    Err(error),
                );
                continue;
            }
        };
        tokens::raise(token);
        is_free = false;
        if let Some(group) = with(|waiting| waiting.take_head(db, name.bytes())) {
            deliver(db, name, group, token, is_new);
            granted += 1;
        }
    }
    if let Some(lease) = free_after(key).filter(|_| !is_free) {
        // Not before now, whatever a foreign TTL and a clock that steps say: the deferred
        // writer looks at what is past until nothing is.
        let lease = lease.max(now.floor_ms());
        with(|waiting| waiting.held_until(db, name.bytes(), lease));
    }
    arm();
    granted
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

/// Binds a hold to a connection: SESSION.
pub(crate) fn bind(ctx: Context, name: Text<'_>, owner: &[u8], token: Token, client: ClientId) {
    let bound = Bound {
        key: KeyName {
            db: ctx.db(),
            name: name.bytes().into(),
        },
        owner: owner.into(),
        token,
    };
    sessions::bind(client, bound);
}

/// A stored lock is about to be replaced by a grant: its lapsed holds are over, and so are
/// the bindings of all it had.
#[inline]
pub(crate) fn replaced(ctx: Context, key: &mut Key<'_, Lock>, name: Text<'_>, now: Micros) {
    if let Some(lock) = key.value() {
        metrics::leases_expired(lock, now.floor_ms());
        sessions::forget(ctx.db(), name.bytes(), |_| false);
    }
}

/// What the owner at the head of a queue asks for, as if its waiters had been granted one
/// after the other: the first takes the lock, the others extend it. One that asks for it
/// exclusively speaks for all.
struct Wanted {
    owner: Rc<[u8]>,
    lease_ms: u64,
    meta: Rc<[u8]>,
    is_shared: bool,
    maxhold_ms: Option<u64>,
}

impl Wanted {
    fn new((owner, seats): (&Rc<[u8]>, &[Seat<Wish>])) -> Wanted {
        let wishes = seats.iter().map(|seat| &seat.wish);
        let first = wishes.clone().next();
        Wanted {
            owner: Rc::clone(owner),
            lease_ms: wishes.clone().map(|wish| wish.lease_ms).max().unwrap_or(1),
            meta: first.map_or_else(|| Rc::from(&b""[..]), |wish| Rc::clone(&wish.meta)),
            is_shared: wishes.clone().all(|wish| wish.is_shared),
            maxhold_ms: first.and_then(|wish| wish.maxhold_ms),
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            meta: &self.meta,
            is_shared: self.is_shared,
            maxhold_ms: self.maxhold_ms,
            ..Request::exclusive(&self.owner, self.lease_ms)
        }
    }
}

/// Answers an owner's waiters. A new grant is taken back if none of them lives to read it.
fn deliver(db: i32, name: Text<'_>, group: Group<Wish>, token: Token, is_new: bool) {
    let bound = Bound {
        key: KeyName {
            db,
            name: name.bytes().into(),
        },
        owner: group.owner,
        token,
    };
    // The one that asked last is the connection in use.
    if let Some(client) = group.seats.iter().rev().find_map(|seat| seat.wish.session) {
        sessions::bind(client, bound.clone());
    }
    if let (true, Some(seat)) = (is_new, group.seats.first()) {
        metrics::LOCK_GRANTED.hit();
        metrics::waited(clock::mono().0 - seat.wish.since.0);
    }
    let delivery = Delivery::new(is_new.then_some(bound));
    for seat in group.seats {
        let delivery = Rc::clone(&delivery);
        let answer = Answer {
            reply: Ok(Reply::Integer(token.get())),
            handed_over: Some(Box::new(move || delivery.arrived())),
        };
        blocking::answer(seat.id, answer);
    }
}
