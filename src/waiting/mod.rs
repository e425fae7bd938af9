//! The waiters of this server: joining a queue, handing a key over, and the one function
//! that writes outside of clients' commands.
//!
//! A release grants to the head of the queue itself, in the same unit. Everything else that
//! can free a lock only notes that its key has to be looked at; [`serve`] then does, from a
//! timer and from cron. What is granted in the middle of a DEL, an expiry or a FLUSH would
//! reach replicas before that, and be erased by it.

mod grant;
mod leased;
mod lock;
mod revoke;
mod semaphore;

pub(crate) use grant::{bind, hand_on, hand_over_or_remove, queue_goes_first, replaced};
pub(crate) use leased::{Ask, Kind, Leased};
pub(crate) use lock::upgraded_connection;
pub(crate) use revoke::{closed, confirmed, role_changed};
pub(crate) use semaphore::give_back;

use crate::boundary::args::{OwnedText, Text};
use crate::boundary::blocking::{self, Answer};
use crate::boundary::context::{Context, Reply};
use crate::boundary::datatype::Unlinked;
use crate::boundary::key::Key;
use crate::boundary::{clock, timer};
use crate::sessions::ClientId;
use crate::{metrics, sessions, settings};
use leased::{Wants, Wish};
use sluice_core::waiting::{KeyName, Mono, Seat, WaiterId, Waiting};
use sluice_core::{Error, Lock, Micros, Millis, Semaphore};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How long to leave it alone while the server must not write, in ms.
const PAUSED_RETRY_MS: u64 = 10;
/// How often waited keys are checked for a slot that left, in µs.
const SLOT_CHECK_US: u64 = 1_000_000;

thread_local! {
    // The server's main thread only. Never borrowed across a call into the server, which
    // may call back: opening a key can expire it, and that touches it here.
    static WAITING: RefCell<Waiting<Wish>> = RefCell::default();
    static SLOTS_CHECKED: Cell<Mono> = const { Cell::new(Mono(0)) };
}

/// How many wait, to be asked on every command without a look into the registry.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

fn with<R>(f: impl FnOnce(&mut Waiting<Wish>) -> R) -> R {
    WAITING.with_borrow_mut(|waiting| {
        let result = f(waiting);
        WAITERS.store(waiting.len(), Relaxed);
        result
    })
}

pub(crate) fn waiters() -> u64 {
    WAITERS.load(Relaxed) as u64
}

#[inline]
fn nobody_waits() -> bool {
    WAITERS.load(Relaxed) == 0
}

/// Waiters on one key of the running command's database.
#[inline]
pub(crate) fn len_of(ctx: Context, name: Text<'_>) -> usize {
    if nobody_waits() {
        return 0;
    }
    with(|waiting| waiting.len_of(ctx.db(), name.bytes()))
}

/// Whether anybody waits for a key whose time is not over.
pub(crate) fn is_waited_for(ctx: Context, name: Text<'_>) -> bool {
    if len_of(ctx, name) == 0 {
        return false;
    }
    answer_ended();
    len_of(ctx, name) > 0
}

/// Lets the running command's client wait, at most `wait_ms`. `end` is when the next lease
/// ends.
pub(crate) fn join<'a>(
    ctx: Context,
    name: Text<'_>,
    ask: impl Into<Ask<'a>>,
    session: Option<ClientId>,
    wait_ms: u64,
    end: Millis,
) -> Result<(), Error> {
    let ask = ask.into();
    answer_ended();
    check_place(ctx, name, ask)?;
    let most = settings::MAX_WAITERS_PER_KEY.get();
    if len_of(ctx, name) as u64 >= most {
        ask.wants.kind().counters().queue_full.hit();
        return Err(Error::QueueFull);
    }
    let since = clock::mono();
    let until = Mono(since.0 + wait_ms * 1000);
    let seat = Seat {
        id: blocking::block(ctx),
        wish: Wish {
            since,
            lease_ms: ask.lease_ms,
            meta: ask.meta.into(),
            wants: ask.wants,
            session,
        },
    };
    let (db, name) = (ctx.db(), name.bytes());
    let shares_place = with(|waiting| {
        let shares_place = waiting.seats(db, name, ask.owner).is_some();
        waiting.join((db, name), ask.owner, seat, until, end);
        shares_place
    });
    metrics::WAITERS_PEAK.raise(waiters());
    if shares_place {
        // Under a higher limit than before its turn may have come.
        look_soon(db, name);
    }
    arm();
    Ok(())
}

/// An owner that waits already may ask again for the same only.
#[inline]
pub(crate) fn check_place<'a>(
    ctx: Context,
    name: Text<'_>,
    ask: impl Into<Ask<'a>>,
) -> Result<(), Error> {
    if !is_waited_for(ctx, name) {
        return Ok(());
    }
    let (db, name, ask) = (ctx.db(), name.bytes(), ask.into());
    with(|waiting| {
        let first = waiting.seats(db, name, ask.owner).and_then(<[_]>::first);
        first.map_or(Ok(()), |seat| seat.wish.wants.agrees_with(ask.wants))
    })
}

/// When the next lease on a key ends has changed.
#[inline]
pub(crate) fn moved<T: Leased>(ctx: Context, key: &mut Key<'_, T>, name: Text<'_>, now: Micros) {
    if nobody_waits() {
        return;
    }
    if let Some(end) = key.value().map(|value| value.next_end(now.floor_ms())) {
        with(|waiting| waiting.held_until(ctx.db(), name.bytes(), end));
        arm();
    }
}

fn tell(seats: Vec<Seat<Wish>>, reply: Result<Reply, Error>) {
    for seat in seats {
        tell_one(seat.id, reply);
    }
}

fn tell_one(id: WaiterId, reply: Result<Reply, Error>) {
    let answer = Answer {
        reply,
        handed_over: None,
    };
    blocking::answer(id, answer);
}

/// Tells everybody who waits for a key the same.
fn tell_all(db: i32, name: &[u8], reply: Result<Reply, Error>) {
    while let Some(group) = with(|waiting| waiting.take_head(db, name)) {
        tell(group.seats, reply);
    }
}

/// Tells the head of a queue that it will not have the key.
fn refuse_head(db: i32, name: &[u8], error: Error) {
    if let Some(group) = with(|waiting| waiting.take_head(db, name)) {
        tell(group.seats, Err(error));
    }
}

/// A key has gone, by whatever way. Writes nothing.
#[inline]
pub(crate) fn touch(key: Unlinked) {
    if !nobody_waits() {
        look_soon(key.db(), key.name().bytes());
    }
}

fn look_soon(db: i32, name: &[u8]) {
    if with(|waiting| waiting.touch(db, name)) {
        timer::arm(0);
    }
}

/// Something happened to a whole database, or to all.
pub(crate) fn replaced_db(db: Option<i32>) {
    sessions::forget_db(db);
    if !nobody_waits() {
        with(|waiting| waiting.touch_db(db));
        timer::arm(0);
    }
}

/// A waiter has left on its own.
pub(crate) fn left(id: WaiterId) -> bool {
    let waited = with(|waiting| waiting.leave(id));
    arm();
    waited
}

/// Answers the waits that are over. Allowed at any time: it writes nothing.
fn answer_ended() {
    let now = clock::mono();
    let take_ended = |waiting: &mut Waiting<Wish>| {
        let kind = waiting.ended(now)?.wants.kind();
        waiting.take_ended(now).map(|id| (id, kind))
    };
    while let Some((id, kind)) = with(take_ended) {
        kind.counters().timed_out.hit();
        tell_one(id, Ok(Reply::Nil));
    }
}

/// The deferred writer: the only one that writes outside a client's command.
pub(crate) fn serve(ctx: Context) {
    answer_ended();
    let now = clock::now();
    let has_work = revoke::is_due()
        || with(|waiting| waiting.next_due()).is_some_and(|due| due.is_past(now.floor_ms()));
    if has_work && !ctx.is_primary() {
        return;
    }
    if has_work && ctx.must_not_propagate() {
        timer::arm(PAUSED_RETRY_MS);
        return;
    }
    revoke::revoke_all(ctx);
    while let Some(key) = with(|waiting| waiting.take_due(now.floor_ms())) {
        look_at(ctx, &key, now);
    }
    arm();
}

/// As [`serve`], about ten times a second whatever the clocks do; and once a second, in a
/// cluster, whether the waited keys are still ours.
pub(crate) fn cron(ctx: Context) {
    if nobody_waits() && !revoke::is_due() {
        return;
    }
    serve(ctx);
    let now = clock::mono();
    if nobody_waits() || now.0 - SLOTS_CHECKED.get().0 < SLOT_CHECK_US || !ctx.is_cluster() {
        return;
    }
    SLOTS_CHECKED.set(now);
    for key in with(|waiting| waiting.keys()) {
        if !ctx.serves(OwnedText::new(&key.name).text()) {
            tell_all(key.db, &key.name, Err(Error::SlotMoved));
        }
    }
}

/// Looks at a waited key and does what its state asks for.
fn look_at(ctx: Context, waited: &KeyName, now: Micros) {
    let name = OwnedText::new(&waited.name);
    ctx.select_db(waited.db);
    if !ctx.serves(name.text()) {
        return tell_all(waited.db, &waited.name, Err(Error::SlotMoved));
    }
    // Those who wait for a kind of key that this one is not are told so, one after the other.
    while let Some(kind) = head_kind(waited) {
        let is_served = match kind {
            Kind::Lock => serve_head::<Lock>(ctx, waited, name.text(), now),
            Kind::Semaphore => serve_head::<Semaphore>(ctx, waited, name.text(), now),
        };
        if is_served && head_kind(waited) == Some(kind) {
            // It is busy.
            break;
        }
    }
}

/// What kind of key the head of a queue waits for.
fn head_kind(waited: &KeyName) -> Option<Kind> {
    with(|waiting| {
        let (_, seats) = waiting.head(waited.db, &waited.name)?;
        seats.first().map(|seat| seat.wish.wants.kind())
    })
}

/// Serves the head of a queue, which waits for a `T`, and who comes after it. Says whether the
/// key is or was free to become a `T`; if not, the head has been told.
fn serve_head<T: Leased>(ctx: Context, waited: &KeyName, name: Text<'_>, now: Micros) -> bool {
    match Key::<T>::open_to_write(ctx, name) {
        Ok(mut key) => {
            hand_on(ctx, &mut key, name, now, None);
            true
        }
        Err(error) => {
            refuse_head(waited.db, &waited.name, error);
            false
        }
    }
}

/// The last millisecond before somebody may be granted what is busy now: the next deadline
/// inside, or the key's TTL if a foreign EXPIRE or RESTORE made it shorter.
#[inline]
pub(crate) fn free_after<T: Leased>(key: &mut Key<'_, T>, now: Micros) -> Option<Millis> {
    let ttl = key.deadline();
    let end = key.value()?.next_end(now.floor_ms());
    Some(ttl.map_or(end, |ttl| ttl.min(end)))
}

/// Sets the timer for whatever is due next.
fn arm() {
    let (end, lease) = with(|waiting| (waiting.next_end(), waiting.next_due()));
    let until_end = end.map(|end| end.0.saturating_sub(clock::mono().0).div_ceil(1000));
    // A lease lives through its last millisecond.
    let until_free = lease.map(|lease| (lease.0 + 1).saturating_sub(clock::now().floor_ms().0));
    if let Some(ms) = until_end.into_iter().chain(until_free).min() {
        timer::arm(ms);
    }
}
