//! The waiters of this server: joining a queue, handing a lock over, and the one function
//! that writes outside of clients' commands.
//!
//! A release grants to the head of the queue itself, in the same unit. Everything else that
//! can free a lock only notes that its key has to be looked at; [`serve`] then does, from a
//! timer and from cron. What is granted in the middle of a DEL, an expiry or a FLUSH would
//! reach replicas before that, and be erased by it.

mod grant;
mod revoke;

pub(crate) use grant::{
    bind, hand_on, hand_over_or_remove, queue_goes_first, replaced, upgraded_connection,
};
pub(crate) use revoke::{closed, confirmed, role_changed};

use crate::boundary::args::{OwnedText, Text};
use crate::boundary::blocking::{self, Answer};
use crate::boundary::context::{Context, Reply};
use crate::boundary::datatype::Unlinked;
use crate::boundary::key::Key;
use crate::boundary::{clock, timer};
use crate::sessions::ClientId;
use crate::{metrics, sessions, settings};
use sluice_core::lock::Request;
use sluice_core::waiting::{KeyName, Mono, Seat, WaiterId, Waiting};
use sluice_core::{Error, Lock, Micros, Millis};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How long to leave it alone while the server must not write, in ms.
const PAUSED_RETRY_MS: u64 = 10;
/// How often waited keys are checked for a slot that left, in µs.
const SLOT_CHECK_US: u64 = 1_000_000;

/// What a waiter asks for.
struct Wish {
    since: Mono,
    lease_ms: u64,
    meta: Rc<[u8]>,
    is_shared: bool,
    maxhold_ms: Option<u64>,
    /// SESSION: the connection to bind to.
    session: Option<ClientId>,
}

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

/// Lets the running command's client wait, at most `wait_ms`, until `lease` or later.
pub(crate) fn join(
    ctx: Context,
    name: Text<'_>,
    request: &Request<'_>,
    session: Option<ClientId>,
    wait_ms: u64,
    lease: Millis,
) -> Result<(), Error> {
    answer_ended();
    let most = settings::MAX_WAITERS_PER_KEY.get();
    if len_of(ctx, name) as u64 >= most {
        metrics::QUEUE_FULL.hit();
        return Err(Error::QueueFull);
    }
    let since = clock::mono();
    let until = Mono(since.0 + wait_ms * 1000);
    let seat = Seat {
        id: blocking::block(ctx),
        wish: Wish {
            since,
            lease_ms: request.lease_ms,
            meta: request.meta.into(),
            is_shared: request.is_shared,
            maxhold_ms: request.maxhold_ms,
            session,
        },
    };
    let (db, name) = (ctx.db(), name.bytes());
    with(|waiting| waiting.join((db, name), request.owner, seat, until, lease));
    metrics::WAITERS_PEAK.raise(waiters());
    arm();
    Ok(())
}

/// When the lock will be free has changed.
#[inline]
pub(crate) fn moved(ctx: Context, key: &mut Key<'_, Lock>, name: Text<'_>) {
    if nobody_waits() {
        return;
    }
    if let Some(lease) = key.value().map(|lock| lock.deadline()) {
        with(|waiting| waiting.held_until(ctx.db(), name.bytes(), lease));
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

/// A lock's key has gone, by whatever way. Writes nothing.
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
    while let Some(id) = with(|waiting| waiting.take_ended(now)) {
        metrics::LOCK_TIMED_OUT.hit();
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
    let Ok(mut key) = Key::<Lock>::open_to_write(ctx, name.text()) else {
        return tell_all(waited.db, &waited.name, Err(Error::WrongType));
    };
    hand_on(ctx, &mut key, name.text(), now, None);
}

/// The last millisecond of the lock that is stored: the deadline inside, or the key's TTL if
/// a foreign EXPIRE or RESTORE made it shorter.
pub(crate) fn free_after(key: &mut Key<'_, Lock>) -> Option<Millis> {
    let ttl = key.deadline();
    let deadline = key.value()?.deadline();
    Some(ttl.map_or(deadline, |ttl| ttl.min(deadline)))
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
