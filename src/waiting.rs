//! The waiters of this server: joining a queue, handing a lock over, and the one function
//! that writes outside of clients' commands.
//!
//! A release grants to the head of the queue itself, in the same unit. Everything else that
//! can free a lock only notes that its key has to be looked at; [`serve`] then does, from a
//! timer and from cron. What is granted in the middle of a DEL, an expiry or a FLUSH would
//! reach replicas before that, and be erased by it.

use crate::boundary::args::{OwnedText, Text};
use crate::boundary::blocking::{self, Answer};
use crate::boundary::context::{Context, Reply};
use crate::boundary::datatype::Unlinked;
use crate::boundary::key::Key;
use crate::boundary::{clock, timer};
use crate::sessions::{Bound, ClientId};
use crate::{metrics, sessions, settings, tokens, types};
use sluice_core::lock::{Acquire, Release, Request};
use sluice_core::waiting::{Group, KeyName, Mono, Seat, WaiterId, Waiting};
use sluice_core::{Error, Lock, Micros, Millis, Token};
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::{Rc, Weak};
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
    static DELIVERIES: RefCell<Vec<Weak<Delivery>>> = const { RefCell::new(Vec::new()) };
    static REVOKED: RefCell<Vec<Revoked>> = const { RefCell::new(Vec::new()) };
    static SLOTS_CHECKED: Cell<Mono> = const { Cell::new(Mono(0)) };
}

/// How many holds are about to be taken back.
static TO_REVOKE: AtomicUsize = AtomicUsize::new(0);

fn with_revoked<R>(f: impl FnOnce(&mut Vec<Revoked>) -> R) -> R {
    REVOKED.with_borrow_mut(|revoked| {
        let result = f(revoked);
        TO_REVOKE.store(revoked.len(), Relaxed);
        result
    })
}

/// How many grants are on their way to their clients, until the end of this turn of the
/// server's loop.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// An owner is told that it holds a lock: what was to be taken back from it, or would be if
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

/// How many wait, to be asked on every command without a look into the registry.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// A hold to be taken back: a grant that none of its clients lived to read, or one that was
/// bound to a connection that closed.
type Revoked = Bound;

/// A grant on its way to its clients, shared by their answers. When the last is dropped and
/// none was handed over, it is to be undone.
struct Delivery {
    grant: RefCell<Option<Revoked>>,
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
    let delivery = Rc::new(Delivery {
        grant: RefCell::new(is_new.then_some(bound)),
    });
    UNDER_WAY.fetch_add(1, Relaxed);
    DELIVERIES.with_borrow_mut(|deliveries| deliveries.push(Rc::downgrade(&delivery)));
    for seat in group.seats {
        let delivery = Rc::clone(&delivery);
        let answer = Answer {
            reply: Ok(Reply::Integer(token.get())),
            handed_over: Some(Box::new(move || drop(delivery.grant.take()))),
        };
        blocking::answer(seat.id, answer);
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

/// A connection has closed: the holds bound to it are taken back soon.
pub(crate) fn closed(client: ClientId) {
    let bound = sessions::closed(client);
    if !bound.is_empty() {
        metrics::LOCK_SESSIONS_CLOSED.add(bound.len() as u64);
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
    let has_work = TO_REVOKE.load(Relaxed) > 0
        || with(|waiting| waiting.next_due()).is_some_and(|due| due.is_past(now.floor_ms()));
    if has_work && !ctx.is_primary() {
        return;
    }
    if has_work && ctx.must_not_propagate() {
        timer::arm(PAUSED_RETRY_MS);
        return;
    }
    for hold in with_revoked(std::mem::take) {
        revoke(ctx, &hold);
    }
    while let Some(key) = with(|waiting| waiting.take_due(now.floor_ms())) {
        look_at(ctx, &key, now);
    }
    arm();
}

/// As [`serve`], about ten times a second whatever the clocks do; and once a second, in a
/// cluster, whether the waited keys are still ours.
pub(crate) fn cron(ctx: Context) {
    if nobody_waits() && TO_REVOKE.load(Relaxed) == 0 {
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

/// Takes a hold back, if it still is there under its token, which stays used.
fn revoke(ctx: Context, hold: &Revoked) {
    let text = OwnedText::new(&hold.key.name);
    let name = text.text();
    let now = clock::now();
    ctx.select_db(hold.key.db);
    let Ok(mut key) = Key::<Lock>::open_to_write(ctx, name) else {
        return;
    };
    let Some(lock) = key.value() else {
        return;
    };
    match lock.revoke(&hold.owner, hold.token, now) {
        Release::Freed { granted } => {
            metrics::held(now.floor_ms().since(granted));
            hand_over_or_remove(ctx, &mut key, name, now, c"lock.released");
        }
        Release::Held { change, ended } => {
            if let Some(granted) = ended {
                metrics::held(now.floor_ms().since(granted));
            }
            types::lock::publish(ctx, &mut key, name, &change, now);
            hand_on(ctx, &mut key, name, now, Some(c"lock.released"));
        }
        Release::NotHeld | Release::Kept { .. } => {}
    }
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
