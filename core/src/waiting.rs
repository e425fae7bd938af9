//! Who waits for which key, in which order, and until when.
//!
//! A key's queue is strictly first in, first out. A place in it belongs to an owner, not to
//! a connection: one that asks again while it waits (its client timed out and tried another
//! connection) waits in the place it has, and one grant answers all its waiters.
//!
//! Nothing here waits by itself. Whoever keeps the registry asks what is due: waits that
//! ended, on the monotonic clock, and keys to look at, because a lease ended or because
//! something happened to them. A key with a queue is always one or the other: its holder's
//! lease is known, or it is touched.

use crate::Millis;
use hashlink::{LinkedHashMap, LinkedHashSet};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Microseconds on the monotonic clock, which never steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

/// A waiting client, as the caller numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// A key of one database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    pub db: i32,
    pub name: Rc<[u8]>,
}

/// One waiter in a place, and what it asks for.
#[derive(Debug)]
pub struct Seat<W> {
    pub id: WaiterId,
    pub wish: W,
}

/// The waiters of one owner, the one that came first in front.
#[derive(Debug)]
pub struct Group<W> {
    pub owner: Rc<[u8]>,
    pub seats: Vec<Seat<W>>,
}

/// A place in a queue: its owner, and who waits in it.
pub type Place<'a, W> = (&'a Rc<[u8]>, &'a [Seat<W>]);

/// All queues of a server.
pub struct Waiting<W> {
    queues: HashMap<i32, HashMap<Rc<[u8]>, Queue<W>>>,
    waiters: HashMap<WaiterId, Waiter>,
    /// When each wait ends.
    ends: BTreeSet<(Mono, WaiterId)>,
    /// When the holder's lease on a waited key ends.
    leases: BTreeSet<(Millis, u64)>,
    /// Keys to look at as soon as possible.
    touched: LinkedHashSet<u64>,
    keys: HashMap<u64, KeyName>,
    last_key: u64,
}

struct Queue<W> {
    id: u64,
    places: LinkedHashMap<Rc<[u8]>, Vec<Seat<W>>>,
    waiters: usize,
    lease: Option<Millis>,
}

struct Waiter {
    key: KeyName,
    owner: Rc<[u8]>,
    until: Mono,
}

impl<W> Default for Waiting<W> {
    fn default() -> Self {
        Waiting {
            queues: HashMap::new(),
            waiters: HashMap::new(),
            ends: BTreeSet::new(),
            leases: BTreeSet::new(),
            touched: LinkedHashSet::new(),
            keys: HashMap::new(),
            last_key: 0,
        }
    }
}

impl<W> Waiting<W> {
    /// Waiters in the whole server.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Waiters on one key.
    pub fn len_of(&self, db: i32, name: &[u8]) -> usize {
        self.queue(db, name).map_or(0, |queue| queue.waiters)
    }

    /// Lets `id` wait at the end of the key's queue, or in the place its owner has there
    /// already. `lease` is when the holder's lease ends.
    pub fn join(
        &mut self,
        (db, name): (i32, &[u8]),
        owner: &[u8],
        seat: Seat<W>,
        until: Mono,
        lease: Millis,
    ) {
        let queues = self.queues.entry(db).or_default();
        let (name, queue) = match queues.get_key_value(name) {
            Some((name, _)) => {
                let name = Rc::clone(name);
                let queue = queues.get_mut(&name).expect("just found");
                (name, queue)
            }
            None => {
                let name: Rc<[u8]> = name.into();
                self.last_key += 1;
                let key = KeyName {
                    db,
                    name: Rc::clone(&name),
                };
                self.keys.insert(self.last_key, key);
                let queue = queues.entry(Rc::clone(&name)).or_insert(Queue {
                    id: self.last_key,
                    places: LinkedHashMap::new(),
                    waiters: 0,
                    lease: None,
                });
                (name, queue)
            }
        };
        let owner = match queue.places.get_key_value(owner) {
            Some((owner, _)) => Rc::clone(owner),
            None => owner.into(),
        };
        let waiter = Waiter {
            key: KeyName { db, name },
            owner: Rc::clone(&owner),
            until,
        };
        self.ends.insert((until, seat.id));
        self.waiters.insert(seat.id, waiter);
        queue.waiters += 1;
        // Not by `entry`, which would move a place that is there to the end.
        match queue.places.get_mut(&owner) {
            Some(seats) => seats.push(seat),
            None => {
                queue.places.insert(owner, vec![seat]);
            }
        }
        set_lease(&mut self.leases, queue, Some(lease));
    }

    /// Forgets a waiter, and says whether it waited. If it was at the head, those behind it
    /// may be able to have what it could not: their key is to be looked at.
    pub fn leave(&mut self, id: WaiterId) -> bool {
        let Some(waiter) = self.waiters.remove(&id) else {
            return false;
        };
        self.ends.remove(&(waiter.until, id));
        let KeyName { db, name } = &waiter.key;
        let queue = queue_mut(&mut self.queues, *db, name).expect("a waiter has a queue");
        queue.waiters -= 1;
        let was_head = queue
            .places
            .front()
            .is_some_and(|(owner, _)| *owner == waiter.owner);
        let place = queue.places.get_mut(&waiter.owner).expect("and a place");
        place.retain(|seat| seat.id != id);
        if place.is_empty() {
            queue.places.remove(&waiter.owner);
        }
        if was_head && queue.waiters > 0 {
            self.touched.insert(queue.id);
        }
        self.drop_if_empty(*db, name);
        true
    }

    /// The place at the head of a key's queue.
    pub fn head(&self, db: i32, name: &[u8]) -> Option<Place<'_, W>> {
        let (owner, seats) = self.queue(db, name)?.places.front()?;
        Some((owner, seats))
    }

    /// Those who wait for a key in the place of `owner`.
    pub fn seats(&self, db: i32, name: &[u8], owner: &[u8]) -> Option<&[Seat<W>]> {
        let seats = self.queue(db, name)?.places.get(owner)?;
        Some(seats)
    }

    /// Takes the head of a key's queue out of it.
    pub fn take_head(&mut self, db: i32, name: &[u8]) -> Option<Group<W>> {
        let queue = queue_mut(&mut self.queues, db, name)?;
        let (owner, seats) = queue.places.pop_front()?;
        queue.waiters -= seats.len();
        for seat in &seats {
            if let Some(waiter) = self.waiters.remove(&seat.id) {
                self.ends.remove(&(waiter.until, seat.id));
            }
        }
        self.drop_if_empty(db, name);
        Some(Group { owner, seats })
    }

    /// Takes one waiter whose wait is over: the earliest end first. What it asked for is
    /// what [`Waiting::ended`] shows before.
    pub fn take_ended(&mut self, now: Mono) -> Option<WaiterId> {
        let (until, id) = *self.ends.first()?;
        if until > now {
            return None;
        }
        self.leave(id);
        Some(id)
    }

    /// What the waiter asks for whose wait ended first, if one is over.
    pub fn ended(&self, now: Mono) -> Option<&W> {
        let (until, id) = self.ends.first()?;
        if *until > now {
            return None;
        }
        let KeyName { db, name } = &self.waiters[id].key;
        let seats = self.seats(*db, name, &self.waiters[id].owner)?;
        seats
            .iter()
            .find(|seat| seat.id == *id)
            .map(|seat| &seat.wish)
    }

    /// Notes when the lease of a waited key's holder ends now. A key that was touched is still
    /// to be looked at.
    pub fn held_until(&mut self, db: i32, name: &[u8], lease: Millis) {
        if let Some(queue) = queue_mut(&mut self.queues, db, name) {
            set_lease(&mut self.leases, queue, Some(lease));
        }
    }

    /// Something happened to a key: look at it. Says whether anybody waits for it.
    pub fn touch(&mut self, db: i32, name: &[u8]) -> bool {
        match queue_mut(&mut self.queues, db, name) {
            Some(queue) => {
                set_lease(&mut self.leases, queue, None);
                self.touched.insert(queue.id);
                true
            }
            None => false,
        }
    }

    /// Something happened to a whole database, or with `None` to all.
    pub fn touch_db(&mut self, db: Option<i32>) {
        let touched = self
            .queues
            .iter_mut()
            .filter(|(number, _)| db.is_none_or(|db| db == **number))
            .flat_map(|(_, queues)| queues.values_mut());
        for queue in touched {
            set_lease(&mut self.leases, queue, None);
            self.touched.insert(queue.id);
        }
    }

    /// A key to look at: touched, or with a holder whose lease is past. The caller then says
    /// what it found, by [`Waiting::held_until`] or by taking waiters out; what it says
    /// nothing about has to be touched again.
    pub fn take_due(&mut self, now: Millis) -> Option<KeyName> {
        let id = match self.touched.pop_front() {
            Some(id) => id,
            None => {
                let (lease, id) = *self.leases.first()?;
                if !lease.is_past(now) {
                    return None;
                }
                id
            }
        };
        let key = self.keys[&id].clone();
        let queue = queue_mut(&mut self.queues, key.db, &key.name).expect("a key has a queue");
        set_lease(&mut self.leases, queue, None);
        Some(key)
    }

    /// When the next wait ends.
    pub fn next_end(&self) -> Option<Mono> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// When the next lease of a waited key ends; a touched key is due at once.
    pub fn next_due(&self) -> Option<Millis> {
        if self.touched.is_empty() {
            self.leases.first().map(|(lease, _)| *lease)
        } else {
            Some(Millis(0))
        }
    }

    /// Every waited key.
    pub fn keys(&self) -> Vec<KeyName> {
        self.keys.values().cloned().collect()
    }

    fn queue(&self, db: i32, name: &[u8]) -> Option<&Queue<W>> {
        self.queues.get(&db)?.get(name)
    }

    fn drop_if_empty(&mut self, db: i32, name: &[u8]) {
        let Some(queues) = self.queues.get_mut(&db) else {
            return;
        };
        if queues.get(name).is_some_and(|queue| queue.waiters == 0) {
            let mut queue = queues.remove(name).expect("just found");
            set_lease(&mut self.leases, &mut queue, None);
            self.touched.remove(&queue.id);
            self.keys.remove(&queue.id);
            if queues.is_empty() {
                self.queues.remove(&db);
            }
        }
        if self.waiters.is_empty() {
            // A rush of waiters leaves no memory behind.
            *self = Waiting {
                last_key: self.last_key,
                ..Waiting::default()
            };
        }
    }
}

fn queue_mut<'a, W>(
    queues: &'a mut HashMap<i32, HashMap<Rc<[u8]>, Queue<W>>>,
    db: i32,
    name: &[u8],
) -> Option<&'a mut Queue<W>> {
    queues.get_mut(&db)?.get_mut(name)
}

fn set_lease<W>(leases: &mut BTreeSet<(Millis, u64)>, queue: &mut Queue<W>, lease: Option<Millis>) {
    if queue.lease != lease {
        if let Some(old) = queue.lease {
            leases.remove(&(old, queue.id));
        }
        if let Some(new) = lease {
            leases.insert((new, queue.id));
        }
        queue.lease = lease;
    }
}
