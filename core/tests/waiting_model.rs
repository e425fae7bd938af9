//! The waiters' queues against a plain list of everybody who waits.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngAlgorithm;
use sluice_core::waiting::{KeyName, Mono, Seat, WaiterId, Waiting};
use sluice_core::Millis;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

/// Binary, empty, one a prefix of another.
const NAMES: [&[u8]; 4] = [b"", b"k", b"k\0", &[0xff; 300]];
const OWNERS: [&[u8]; 4] = [b"a", b"a\0", b"\r\n", &[0xff; 512]];
const DBS: [i32; 3] = [0, 1, 15];

// Memory, counted for each thread apart, since tests run side by side -----------------------

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // None while the thread ends.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> isize {
    LIVE_BYTES.get()
}

// The registry against a list ----------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Join {
        key: Key,
        owner: usize,
        wait: u64,
        lease: u64,
    },
    Leave(Index),
    /// Of a waiter that has left already, or never was.
    LeaveAgain(Index),
    TakeHead(Key),
    TakeEnded {
        mono: u64,
    },
    HeldUntil {
        key: Key,
        lease: u64,
    },
    Touch(Key),
    TouchDb(Option<usize>),
    TakeDue {
        now: u64,
        found: Found,
    },
}

/// Which of [`DBS`] and [`NAMES`].
type Key = (usize, usize);

/// What the caller of `take_due` says about the key.
#[derive(Clone, Debug)]
enum Found {
    HeldFor(u64),
    /// Grants to the head; the rest waits for that lease.
    Free(u64),
    WrongType,
    LookAgain,
}

/// A waiter in the list: everything about it, in the order in which they came.
#[derive(Clone, Debug)]
struct Entry {
    id: WaiterId,
    db: i32,
    name: &'static [u8],
    owner: &'static [u8],
    until: Mono,
}

/// What is known of a key with a queue.
#[derive(Clone, Debug)]
struct Known {
    db: i32,
    name: &'static [u8],
    lease: Option<Millis>,
    touched: bool,
}

#[derive(Default)]
struct List {
    waiters: Vec<Entry>,
    keys: Vec<Known>,
    gone: Vec<WaiterId>,
}

impl List {
    fn known(&mut self, db: i32, name: &[u8]) -> Option<&mut Known> {
        self.keys
            .iter_mut()
            .find(|key| key.db == db && key.name == name)
    }

    fn on<'a>(&'a self, db: i32, name: &'a [u8]) -> impl Iterator<Item = &'a Entry> {
        self.waiters
            .iter()
            .filter(move |waiter| waiter.db == db && waiter.name == name)
    }

    /// The owner who came first, and the ids of all its waiters in the order they came.
    fn head(&self, db: i32, name: &[u8]) -> Option<(&'static [u8], Vec<WaiterId>)> {
        let owner = self.places(db, name).first().copied()?;
        let seats = self.on(db, name).filter(|waiter| waiter.owner == owner);
        Some((owner, seats.map(|waiter| waiter.id).collect()))
    }

    /// Owners by when the first of each came whose place was never given up. A place stays
    /// while any of its waiters does, so it is not the oldest waiter left that counts.
    fn places(&self, db: i32, name: &[u8]) -> Vec<&'static [u8]> {
        let mut places = Vec::new();
        for waiter in self.on(db, name) {
            if !places.contains(&waiter.owner) {
                places.push(waiter.owner);
            }
        }
        places
    }

    /// Whoever stood behind it at the head may be able to have what it could not.
    fn leave(&mut self, id: WaiterId) {
        let waiter = self.waiters.iter().find(|waiter| waiter.id == id);
        let waiter = waiter.expect("it waits").clone();
        let head = self.head(waiter.db, waiter.name).map(|(owner, _)| owner);
        self.remove(id);
        if head == Some(waiter.owner) {
            if let Some(known) = self.known(waiter.db, waiter.name) {
                known.touched = true;
            }
        }
    }

    fn remove(&mut self, id: WaiterId) {
        let at = self.waiters.iter().position(|waiter| waiter.id == id);
        let left = self.waiters.remove(at.expect("it waits"));
        self.gone.push(id);
        // Its place stays where it was while its owner has another waiter: that one moves to
        // where this one stood.
        let next = self.waiters[at.unwrap()..].iter().position(|waiter| {
            (waiter.db, waiter.name, waiter.owner) == (left.db, left.name, left.owner)
        });
        let has_earlier = self.waiters[..at.unwrap()]
            .iter()
            .any(|w| (w.db, w.name, w.owner) == (left.db, left.name, left.owner));
        if let (Some(next), false) = (next, has_earlier) {
            let heir = self.waiters.remove(at.unwrap() + next);
            self.waiters.insert(at.unwrap(), heir);
        }
        let waiters = &self.waiters;
        self.keys.retain(|key| {
            waiters
                .iter()
                .any(|waiter| waiter.db == key.db && waiter.name == key.name)
        });
    }
}

/// A wish that says when it is dropped.
type Wish = Rc<()>;

struct Pair {
    real: Waiting<Wish>,
    list: List,
    wish: Wish,
    next_id: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            real: Waiting::default(),
            list: List::default(),
            wish: Rc::new(()),
            next_id: 1,
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Join {
                key,
                owner,
                wait,
                lease,
            } => self.join(*key, *owner, Mono(*wait), Millis(*lease)),
            Step::Leave(which) => {
                if !self.list.waiters.is_empty() {
                    let id = which.get(&self.list.waiters).id;
                    assert!(self.real.leave(id));
                    self.list.leave(id);
                }
            }
            Step::LeaveAgain(which) => {
                let mut ids = self.list.gone.clone();
                ids.push(WaiterId(u64::MAX));
                assert!(!self.real.leave(*which.get(&ids)));
            }
            Step::TakeHead((db, name)) => self.take_head(DBS[*db], NAMES[*name]),
            Step::TakeEnded { mono } => self.take_ended(Mono(*mono)),
            Step::HeldUntil { key, lease } => {
                let (db, name) = (DBS[key.0], NAMES[key.1]);
                self.held_until(db, name, Millis(*lease));
            }
            Step::Touch((db, name)) => {
                let (db, name) = (DBS[*db], NAMES[*name]);
                let waited = match self.list.known(db, name) {
                    Some(known) => {
                        (known.lease, known.touched) = (None, true);
                        true
                    }
                    None => false,
                };
                assert_eq!(self.real.touch(db, name), waited);
            }
            Step::TouchDb(which) => {
                let db = which.map(|db| DBS[db]);
                for known in &mut self.list.keys {
                    if db.is_none_or(|db| db == known.db) {
                        (known.lease, known.touched) = (None, true);
                    }
                }
                self.real.touch_db(db);
            }
            Step::TakeDue { now, found } => self.take_due(Millis(*now), found),
        }
    }

    fn join(&mut self, key: Key, owner: usize, until: Mono, lease: Millis) {
        let (db, name, owner) = (DBS[key.0], NAMES[key.1], OWNERS[owner]);
        let id = WaiterId(self.next_id);
        self.next_id += 1;
        let seat = Seat {
            id,
            wish: Rc::clone(&self.wish),
        };
        self.real.join((db, name), owner, seat, until, lease);
        self.list.waiters.push(Entry {
            id,
            db,
            name,
            owner,
            until,
        });
        match self.list.known(db, name) {
            Some(known) => known.lease = Some(lease),
            None => self.list.keys.push(Known {
                db,
                name,
                lease: Some(lease),
                touched: false,
            }),
        }
    }

    fn take_head(&mut self, db: i32, name: &[u8]) {
        let expected = self.list.head(db, name);
        let taken = self.real.take_head(db, name);
        let Some((owner, ids)) = expected else {
            assert!(taken.is_none());
            return;
        };
        let taken = taken.expect("somebody waits");
        assert_eq!(&*taken.owner, owner);
        let taken: Vec<_> = taken.seats.iter().map(|seat| seat.id).collect();
        assert_eq!(taken, ids);
        for id in ids {
            self.list.remove(id);
        }
    }

    fn take_ended(&mut self, now: Mono) {
        let earliest = self.list.waiters.iter().map(|waiter| waiter.until).min();
        let has_ended = self.real.ended(now).is_some();
        assert_eq!(has_ended, earliest.is_some_and(|earliest| earliest <= now));
        match self.real.take_ended(now) {
            None => assert!(earliest.is_none_or(|earliest| earliest > now)),
            Some(id) => {
                let waiter = self.list.waiters.iter().find(|waiter| waiter.id == id);
                let until = waiter.expect("it waits").until;
                assert_eq!(Some(until), earliest);
                assert!(until <= now);
                self.list.leave(id);
            }
        }
    }

    fn held_until(&mut self, db: i32, name: &[u8], lease: Millis) {
        self.real.held_until(db, name, lease);
        if let Some(known) = self.list.known(db, name) {
            known.lease = Some(lease);
        }
    }

    fn take_due(&mut self, now: Millis, found: &Found) {
        let is_touched = self.list.keys.iter().any(|key| key.touched);
        let earliest = self.list.keys.iter().filter_map(|key| key.lease).min();
        let Some(KeyName { db, name }) = self.real.take_due(now) else {
            assert!(!is_touched);
            // A lease lives through its last millisecond.
            assert!(earliest.is_none_or(|earliest| earliest >= now));
            return;
        };
        let known = self.list.known(db, &name).expect("somebody waits for it");
        if is_touched {
            assert!(known.touched, "a touched key comes before any lease");
        } else {
            assert_eq!(known.lease, earliest);
            assert!(known.lease.is_some_and(|lease| lease < now));
        }
        (known.lease, known.touched) = (None, false);
        // The caller owes an answer.
        match found {
            Found::HeldFor(ms) => self.held_until(db, &name, now.plus(*ms)),
            Found::Free(ms) => {
                self.take_head(db, &name);
                self.held_until(db, &name, now.plus(*ms));
            }
            Found::WrongType => {
                while self.real.len_of(db, &name) > 0 {
                    self.take_head(db, &name);
                }
                assert!(self.real.take_head(db, &name).is_none());
            }
            Found::LookAgain => {
                assert!(self.real.touch(db, &name));
                let known = self.list.known(db, &name).expect("still waited for");
                known.touched = true;
            }
        }
    }

    fn check(&self) {
        let (real, list) = (&self.real, &self.list);
        assert_eq!(real.len(), list.waiters.len());
        assert_eq!(real.is_empty(), list.waiters.is_empty());
        for db in DBS {
            for name in NAMES {
                assert_eq!(real.len_of(db, name), list.on(db, name).count());
                let head = real.head(db, name).map(|(owner, seats)| {
                    let ids: Vec<_> = seats.iter().map(|seat| seat.id).collect();
                    (owner.to_vec(), ids)
                });
                let expected = list.head(db, name);
                assert_eq!(head, expected.map(|(owner, ids)| (owner.to_vec(), ids)));
            }
        }
        assert_eq!(real.len_of(7, NAMES[1]), 0);

        let next_end = list.waiters.iter().map(|waiter| waiter.until).min();
        assert_eq!(real.next_end(), next_end);
        let is_touched = list.keys.iter().any(|key| key.touched);
        let next_lease = list.keys.iter().filter_map(|key| key.lease).min();
        let next_due = if is_touched {
            Some(Millis(0))
        } else {
            next_lease
        };
        assert_eq!(real.next_due(), next_due);
        for key in &list.keys {
            assert!(key.touched || key.lease.is_some(), "{key:?} is forgotten");
        }

        let mut keys: Vec<_> = real
            .keys()
            .iter()
            .map(|key| (key.db, key.name.to_vec()))
            .collect();
        let mut expected: Vec<_> = list
            .keys
            .iter()
            .map(|key| (key.db, key.name.to_vec()))
            .collect();
        keys.sort();
        expected.sort();
        assert_eq!(keys, expected);
        assert_eq!(Rc::strong_count(&self.wish) - 1, list.waiters.len());
    }
}

fn key() -> impl Strategy<Value = Key> {
    // Mostly one key, so that queues grow.
    prop_oneof![
        3 => Just((0, 1)),
        2 => (0..DBS.len(), 0..NAMES.len()),
    ]
}

fn instant() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..20u64, 1 => Just(0), 1 => (1u64 << 52)..(1 << 53)]
}

fn found() -> impl Strategy<Value = Found> {
    prop_oneof![
        2 => instant().prop_map(Found::HeldFor),
        3 => instant().prop_map(Found::Free),
        1 => Just(Found::WrongType),
        1 => Just(Found::LookAgain),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (key(), 0..OWNERS.len(), instant(), instant())
            .prop_map(|(key, owner, wait, lease)| Step::Join { key, owner, wait, lease }),
        3 => any::<Index>().prop_map(Step::Leave),
        1 => any::<Index>().prop_map(Step::LeaveAgain),
        2 => key().prop_map(Step::TakeHead),
        2 => instant().prop_map(|mono| Step::TakeEnded { mono }),
        2 => (key(), instant()).prop_map(|(key, lease)| Step::HeldUntil { key, lease }),
        2 => key().prop_map(Step::Touch),
        1 => prop::option::of(0..DBS.len()).prop_map(Step::TouchDb),
        4 => (instant(), found()).prop_map(|(now, found)| Step::TakeDue { now, found }),
    ]
}

/// With the cheap generator: the default one is most of the time of an unoptimized run.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_registry_does_what_a_list_does(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.apply(step);
            pair.check();
        }
        // Empties in the end, by whatever mixture is left.
        while pair.real.next_end().is_some() {
            pair.take_ended(Mono(u64::MAX));
            pair.check();
        }
        prop_assert_eq!(pair.real.take_due(Millis(u64::MAX)), None);
    }
}

// Single rules --------------------------------------------------------------------------------

/// Joins waiters of key k in database 0: (owner, id).
fn queue(waiters: &[(&[u8], u64)]) -> Waiting<()> {
    let mut waiting = Waiting::default();
    for (owner, id) in waiters {
        let seat = Seat {
            id: WaiterId(*id),
            wish: (),
        };
        waiting.join((0, b"k"), owner, seat, Mono(*id), Millis(100));
    }
    waiting
}

fn drain(waiting: &mut Waiting<()>) -> Vec<(Vec<u8>, Vec<u64>)> {
    std::iter::from_fn(|| waiting.take_head(0, b"k"))
        .map(|group| {
            let ids = group.seats.iter().map(|seat| seat.id.0).collect();
            (group.owner.to_vec(), ids)
        })
        .collect()
}

#[test]
fn an_owner_that_asks_again_waits_in_the_place_it_has() {
    let mut waiting = queue(&[(b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4), (b"b", 5)]);
    let expected = [
        (b"a".to_vec(), vec![1, 3]),
        (b"b".to_vec(), vec![2, 5]),
        (b"c".to_vec(), vec![4]),
    ];
    assert_eq!(drain(&mut waiting), expected);
}

#[test]
fn the_place_stays_when_the_first_of_an_owners_waiters_leaves() {
    let mut waiting = queue(&[(b"a", 1), (b"b", 2), (b"a", 3)]);
    assert!(waiting.leave(WaiterId(1)));
    let expected = [(b"a".to_vec(), vec![3]), (b"b".to_vec(), vec![2])];
    assert_eq!(drain(&mut waiting), expected);
}

#[test]
fn an_owner_whose_last_waiter_left_queues_anew() {
    let mut waiting = queue(&[(b"a", 1), (b"b", 2)]);
    assert!(waiting.leave(WaiterId(1)));
    let seat = Seat {
        id: WaiterId(3),
        wish: (),
    };
    waiting.join((0, b"k"), b"a", seat, Mono(9), Millis(100));
    let expected = [(b"b".to_vec(), vec![2]), (b"a".to_vec(), vec![3])];
    assert_eq!(drain(&mut waiting), expected);
}

#[test]
fn a_lease_is_due_only_behind_its_last_millisecond() {
    let mut waiting = queue(&[(b"a", 1)]);
    assert_eq!(waiting.next_due(), Some(Millis(100)));
    assert_eq!(waiting.take_due(Millis(100)), None);
    let key = waiting.take_due(Millis(101)).unwrap();
    assert_eq!((key.db, &*key.name), (0, &b"k"[..]));
    // Asked for once; what nothing is said about is forgotten until it is touched.
    assert_eq!(waiting.take_due(Millis(101)), None);
    assert!(waiting.touch(0, b"k"));
    assert_eq!(waiting.next_due(), Some(Millis(0)));
    assert!(waiting.take_due(Millis(0)).is_some());
}

#[test]
fn a_wait_is_over_in_the_microsecond_of_its_end() {
    let mut waiting = queue(&[(b"a", 7)]);
    assert_eq!(waiting.take_ended(Mono(6)), None);
    assert_eq!(waiting.take_ended(Mono(7)), Some(WaiterId(7)));
    assert!(waiting.is_empty());
}

/// Whoever stands behind may be able to have what the head could not: a reader behind a
/// writer that gave up, beside the readers that it waited for. Nothing else will look.
#[test]
fn a_key_whose_head_left_is_to_be_looked_at() {
    let mut waiting = queue(&[(b"w", 1), (b"r", 2)]);
    assert_eq!(waiting.next_due(), Some(Millis(100)));
    assert!(waiting.leave(WaiterId(1)));
    assert_eq!(waiting.next_due(), Some(Millis(0)));

    let mut waiting = queue(&[(b"w", 1), (b"r", 2)]);
    assert_eq!(waiting.take_ended(Mono(1)), Some(WaiterId(1)));
    assert_eq!(waiting.next_due(), Some(Millis(0)));

    // Of an owner's two, the one that asked for it exclusively.
    let mut waiting = queue(&[(b"w", 1), (b"w", 2)]);
    assert!(waiting.leave(WaiterId(1)));
    assert_eq!(waiting.next_due(), Some(Millis(0)));

    // Behind the head nothing changes.
    let mut waiting = queue(&[(b"w", 1), (b"r", 2)]);
    assert!(waiting.leave(WaiterId(2)));
    assert_eq!(waiting.next_due(), Some(Millis(100)), "not the head");
}

/// `n` waiters come and go: on one key or each on its own, and in each of the ways to go.
fn rush(waiting: &mut Waiting<Box<[u8]>>, n: u64, keys: u64, how: u64) {
    let key_of = |id: u64| format!("key-{}", id % keys).into_bytes();
    for id in 1..=n {
        let owner = format!("owner-{id}");
        let seat = Seat {
            id: WaiterId(id),
            wish: vec![0; 100].into(),
        };
        let key = key_of(id);
        waiting.join((0, &key), owner.as_bytes(), seat, Mono(id), Millis(id));
    }
    waiting.touch_db(None);
    match how {
        0 => (1..=n).for_each(|id| assert!(waiting.leave(WaiterId(id)))),
        1 => (1..=n).for_each(|_| assert!(waiting.take_ended(Mono(n)).is_some())),
        _ => {
            while let Some(key) = waiting.take_due(Millis(0)) {
                while waiting.take_head(key.db, &key.name).is_some() {}
            }
        }
    }
}

#[test]
fn ten_thousand_waiters_leave_no_memory_behind() {
    let mut waiting = Waiting::default();
    let before = live_bytes();
    for how in 0..3 {
        for keys in [1, 10_000] {
            rush(&mut waiting, 10_000, keys, how);
            assert!(waiting.is_empty());
            assert_eq!((waiting.next_end(), waiting.next_due()), (None, None));
            assert!(waiting.keys().is_empty());
            assert_eq!(live_bytes(), before, "{keys} keys, left by way {how}");
        }
    }
}

#[test]
fn beside_one_who_stays_memory_does_not_grow() {
    let mut waiting = Waiting::default();
    let seat = Seat {
        id: WaiterId(0),
        wish: vec![0; 100].into(),
    };
    waiting.join((0, b"other"), b"o", seat, Mono(u64::MAX), Millis(u64::MAX));
    rush(&mut waiting, 10_000, 10_000, 0);
    let once = live_bytes();
    for round in 0..6 {
        rush(&mut waiting, 10_000, 10_000, round % 2);
        assert_eq!(waiting.len(), 1);
        // A hash table that holds tombstones may double once, by chance of its seed.
        let live = live_bytes();
        assert!(live <= 2 * once, "round {round}: {live} after {once}");
    }
}
