//! Granting: who goes first, and handing a key over in the unit that is running.

use super::revoke::Delivery;
use super::*;
use crate::sessions::Bound;
use crate::tokens;
use sluice_core::waiting::Group;
use sluice_core::Token;
use std::ffi::CStr;

/// Before an ACQUIRE is decided: if others wait for the key, whoever of them can have it
/// goes first. Says whether others still wait. A transaction or a script changes nothing
/// here; if the key is free its queue is served afterwards.
///
/// The queue may ask for another kind of key than `T`, if the one it waited for has gone, and
/// then make it one: an error.
#[inline]
pub(crate) fn queue_goes_first<T: Leased>(
    ctx: Context,
    key: &mut Key<'_, T>,
    name: Text<'_>,
    now: Micros,
) -> Result<bool, Error> {
    if len_of(ctx, name) == 0 {
        return Ok(false);
    }
    if ctx.may_block() {
        answer_ended();
        serve_before(ctx, key, name, now)?;
    } else if free_after(key, now).is_none_or(|end| end.is_past(now.floor_ms())) {
        look_soon(ctx.db(), name.bytes());
    }
    Ok(len_of(ctx, name) > 0)
}

fn serve_before<T: Leased>(
    ctx: Context,
    key: &mut Key<'_, T>,
    name: Text<'_>,
    now: Micros,
) -> Result<(), Error> {
    let waited = KeyName {
        db: ctx.db(),
        name: name.bytes().into(),
    };
    if head_kind(&waited).is_some_and(|kind| kind != T::KIND) {
        return key.while_closed(|| look_at(ctx, &waited, now));
    }
    for _ in 0..advance(ctx, key, name, now, false) {
        ctx.notify(T::GRANTED, name);
    }
    Ok(())
}

/// Nobody holds a key any more, as `event` says: grants it to the head of its queue,
/// or deletes it if nobody waits.
#[inline]
pub(crate) fn hand_over_or_remove<T: Leased>(
    ctx: Context,
    key: &mut Key<'_, T>,
    name: Text<'_>,
    now: Micros,
    event: &CStr,
) {
    if let Some(value) = key.value().filter(|value| value.may_have_lapsed()) {
        value.count_lapsed(now.floor_ms());
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
        ctx.notify(T::GRANTED, name);
    }
}

/// A key is still held, but by fewer or in another mode: whoever can have it now gets it.
#[inline]
pub(crate) fn hand_on<T: Leased>(
    ctx: Context,
    key: &mut Key<'_, T>,
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
        ctx.notify(T::GRANTED, name);
    }
}

/// Grants to as many at the head of the queue as can have the key, in the unit that is
/// running, and says to how many. `is_free`: what is stored no longer counts.
fn advance<T: Leased>(
    ctx: Context,
    key: &mut Key<'_, T>,
    name: Text<'_>,
    now: Micros,
    mut is_free: bool,
) -> usize {
    let db = ctx.db();
    let mut granted = 0;
    while let Some(wanted) = with(|waiting| waiting.head(db, name.bytes()).map(Wanted::new)) {
        if wanted.wants.kind() != T::KIND {
            if is_free || key.value().is_none() {
                // Its turn comes when this key is closed.
                look_soon(db, name.bytes());
                break;
            }
            refuse_head(db, name.bytes(), Error::WrongType);
            continue;
        }
        let grant = match T::grant(ctx, key, name, &wanted, is_free, now) {
            Ok(None) => break,
            Ok(Some(grant)) => grant,
            Err(error) => {
                refuse_head(db, name.bytes(), error);
                continue;
            }
        };
        tokens::raise(grant.token);
        is_free = false;
        if let Some(group) = with(|waiting| waiting.take_head(db, name.bytes())) {
            deliver(T::KIND, db, name, group, grant);
            granted += 1;
        }
    }
    if let Some(end) = free_after(key, now).filter(|_| !is_free) {
        // Not before now, whatever a foreign TTL and a clock that steps say: the deferred
        // writer looks at what is past until nothing is.
        let end = end.max(now.floor_ms());
        with(|waiting| waiting.held_until(db, name.bytes(), end));
    }
    arm();
    granted
}

/// Binds a hold to a connection: SESSION.
pub(crate) fn bind(
    ctx: Context,
    kind: Kind,
    name: Text<'_>,
    owner: &[u8],
    token: Token,
    client: ClientId,
) {
    let bound = Bound {
        kind,
        key: KeyName {
            db: ctx.db(),
            name: name.bytes().into(),
        },
        owner: owner.into(),
        token,
    };
    sessions::bind(client, bound);
}

/// What is stored is about to be replaced by a grant: its lapsed holds are over, and so are
/// the bindings of all it had.
#[inline]
pub(crate) fn replaced<T: Leased>(ctx: Context, key: &mut Key<'_, T>, name: Text<'_>, now: Micros) {
    if let Some(value) = key.value() {
        value.count_lapsed(now.floor_ms());
        sessions::forget(ctx.db(), name.bytes(), |_| false);
    }
}

/// What a waiter got.
pub(crate) struct Grant {
    token: Token,
    /// Not if its owner held it before.
    is_new: bool,
}

impl Grant {
    pub(super) fn new(token: Token) -> Grant {
        Grant {
            token,
            is_new: true,
        }
    }

    pub(super) fn held_before(token: Token) -> Grant {
        Grant {
            token,
            is_new: false,
        }
    }
}

/// What the owner at the head of a queue asks for, as if its waiters had been granted one
/// after the other: the first takes it, the others extend it.
pub(crate) struct Wanted {
    pub(super) owner: Rc<[u8]>,
    pub(super) lease_ms: u64,
    pub(super) meta: Rc<[u8]>,
    pub(super) wants: Wants,
}

impl Wanted {
    /// A place has at least one seat.
    fn new((owner, seats): (&Rc<[u8]>, &[Seat<Wish>])) -> Wanted {
        let (first, others) = seats.split_first().expect("somebody waits in a place");
        let mut wanted = Wanted {
            owner: Rc::clone(owner),
            lease_ms: first.wish.lease_ms,
            meta: Rc::clone(&first.wish.meta),
            wants: first.wish.wants,
        };
        for seat in others {
            wanted.lease_ms = wanted.lease_ms.max(seat.wish.lease_ms);
            wanted.wants.and_later(seat.wish.wants);
        }
        wanted
    }
}

/// Answers an owner's waiters. A new grant is taken back if none of them lives to read it.
fn deliver(kind: Kind, db: i32, name: Text<'_>, group: Group<Wish>, grant: Grant) {
    let Grant { token, is_new } = grant;
    let bound = Bound {
        kind,
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
        kind.counters().granted.hit();
        kind.counters().waited(clock::mono().0 - seat.wish.since.0);
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
