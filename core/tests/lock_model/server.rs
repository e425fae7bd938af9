//! What the module does with the core's decisions (`src/commands/lock_*.rs`), and replicas
//! that hear nothing but its effects.

use crate::history::{History, Holding, Stored};
use crate::steps::{received, Ask, Clock, Reply, Step, KEYS, METAS, OWNERS};
use sluice_core::lock::{Acquire, Change, Downgrade, Hold, LockEffect, Release, Renew, Request};
use sluice_core::{Lock, Micros, Millis, State};

pub(crate) type Keys = [Option<Lock>; KEYS];

pub(crate) struct Server {
    pub(crate) now: u64,
    pub(crate) high_water: u64,
    pub(crate) keys: Keys,
    pub(crate) replicas: [Replica; 2],
    pub(crate) effects: usize,
}

/// Hears every effect this often.
pub(crate) struct Replica {
    times: usize,
    pub(crate) keys: Keys,
}

impl Replica {
    fn new(times: usize) -> Replica {
        let keys = Keys::default();
        Replica { times, keys }
    }

    fn hear(&mut self, key: usize, effect: &[u8]) {
        for _ in 0..self.times {
            let (effect, now) = LockEffect::decode(effect).unwrap();
            if let Some(lock) = Lock::apply(self.keys[key].as_mut(), effect, now) {
                self.keys[key] = Some(lock);
            }
        }
    }
}

impl Server {
    pub(crate) fn new(now: u64) -> Server {
        Server {
            now,
            high_water: 0,
            keys: Keys::default(),
            replicas: [Replica::new(1), Replica::new(2)],
            effects: 0,
        }
    }

    pub(crate) fn now(&self) -> Micros {
        Micros(self.now)
    }

    pub(crate) fn apply(&mut self, step: &Step, history: &History) -> Reply {
        let now = self.now();
        match *step {
            Step::Acquire(ref ask) => self.acquire(ask),
            Step::Release {
                key,
                owner,
                ref token,
                keep_ms,
            } => {
                let token = history.presented(key, owner, token);
                let before = self.keys[key].clone();
                let release = self.keys[key].as_mut().map_or(Release::NotHeld, |lock| {
                    lock.release(OWNERS[owner], token, keep_ms, now)
                });
                self.released(key, before, release)
            }
            Step::Revoke {
                key,
                owner,
                ref token,
            } => {
                let token = history.revoked(key, owner, token);
                let before = self.keys[key].clone();
                let release = self.keys[key].as_mut().map_or(Release::NotHeld, |lock| {
                    lock.revoke(OWNERS[owner], token, now)
                });
                assert!(!matches!(release, Release::Kept { .. }));
                self.released(key, before, release)
            }
            Step::Renew {
                key,
                owner,
                lease_ms,
                ref token,
            } => {
                let token = history.presented(key, owner, token);
                let before = self.keys[key].clone();
                let renew = self.keys[key].as_mut().map_or(Renew::Lost, |lock| {
                    lock.renew(OWNERS[owner], lease_ms, token, now)
                });
                match renew {
                    Renew::Lost => Reply::Integer(0),
                    Renew::Left(ms, change) => {
                        self.changed(key, before, change);
                        Reply::Integer(ms)
                    }
                }
            }
            Step::Downgrade {
                key,
                owner,
                ref token,
            } => {
                let token = history.presented(key, owner, token);
                let lock = self.keys[key].as_ref();
                match lock.map_or(Downgrade::NotHeld, |lock| {
                    lock.downgrade(OWNERS[owner], token, now)
                }) {
                    Downgrade::NotHeld => Reply::Integer(0),
                    Downgrade::Already => Reply::Already,
                    Downgrade::Shared(lock) => {
                        self.set(key, lock);
                        Reply::Integer(1)
                    }
                }
            }
            Step::ForceRelease { key, ref token } => {
                let token = history.presented(key, 0, token);
                let found = self.keys[key]
                    .as_ref()
                    .is_some_and(|lock| lock.can_force_release(token, now));
                if found {
                    self.remove(key);
                }
                Reply::Integer(found.into())
            }
            Step::Lose { key } => {
                self.remove(key);
                Reply::Nil
            }
            Step::Expire { key } => {
                if self.keys[key]
                    .as_ref()
                    .is_some_and(|lock| lock.is_over(now.floor_ms()))
                {
                    self.remove(key);
                }
                Reply::Nil
            }
            Step::Receive { ahead_us } => {
                self.high_water = self.high_water.max(received(self.now, ahead_us));
                Reply::Nil
            }
            Step::Clock(ref clock) => {
                self.step_clock(clock);
                Reply::Nil
            }
        }
    }

    fn acquire(&mut self, ask: &Ask) -> Reply {
        let &Ask { key, owner, .. } = ask;
        let request = Request {
            owner: OWNERS[owner],
            lease_ms: ask.lease_ms,
            meta: METAS[ask.meta],
            is_shared: ask.is_shared,
            is_reentrant: ask.is_reentrant,
            maxhold_ms: ask.maxhold_ms,
        };
        let (now, high_water) = (self.now(), self.high_water);
        let before = self.keys[key].clone();
        let stored = self.keys[key].as_mut();
        match Lock::acquire(stored, &request, ask.others_wait, now, high_water) {
            Ok(Acquire::Granted(lock, token)) => {
                assert_eq!(lock.token(), Some(token));
                self.high_water = self.high_water.max(token.get());
                self.set(key, lock);
                Reply::Integer(token.get())
            }
            Ok(Acquire::Joined(token, change)) => {
                self.high_water = self.high_water.max(token.get());
                self.changed(key, before, Some(change));
                Reply::Integer(token.get())
            }
            Ok(Acquire::Retried(token, change)) => {
                self.changed(key, before, change);
                Reply::Integer(token.get())
            }
            Ok(Acquire::Busy { is_upgrade: false }) => Reply::Nil,
            Ok(Acquire::Busy { is_upgrade: true }) => Reply::UpgradeBusy,
            Err(error) => Reply::Error(error),
        }
    }

    fn released(&mut self, key: usize, before: Option<Lock>, release: Release) -> Reply {
        match release {
            Release::NotHeld => Reply::Integer(0),
            Release::Freed { granted } => {
                self.remove(key);
                Reply::Released(Some(granted.0))
            }
            Release::Kept { lock, granted } => {
                self.set(key, lock);
                Reply::Released(Some(granted.0))
            }
            Release::Held { change, ended } => {
                self.changed(key, before, Some(change));
                Reply::Released(ended.map(|granted| granted.0))
            }
        }
    }

    fn step_clock(&mut self, clock: &Clock) {
        self.now = match clock {
            Clock::By(us) => self.now.saturating_add_signed(*us),
            Clock::ToEnd {
                key,
                which,
                offset_us,
            } => match &self.keys[*key] {
                Some(lock) => {
                    let mut ends: Vec<u64> = lock.holds().map(|hold| hold.deadline.0).collect();
                    ends.push(lock.deadline().0);
                    (which.get(&ends) * 1000 + 999).saturating_add_signed(*offset_us)
                }
                None => self.now,
            },
        };
    }

    /// Publishes what was changed in place, if anything was.
    fn changed(&mut self, key: usize, before: Option<Lock>, change: Option<Change>) {
        let (before, after) = (before.unwrap(), self.keys[key].as_ref().unwrap());
        assert_eq!(change.is_some(), before != *after);
        let Some(change) = change else {
            return;
        };
        let now_ms = self.now().floor_ms();
        let is_over = |hold: &&Hold| hold.is_over(now_ms);
        let over: Vec<Hold> = before.holds().filter(is_over).cloned().collect();
        let mut lapsed = change.lapsed.holds.clone();
        lapsed.sort_by_key(|hold| hold.token);
        assert_eq!(lapsed, over, "who lapsed is told");
        assert_eq!(after.holds().filter(is_over).count(), 0, "and is pruned");
        let effect = after.effect(&change, self.now());
        self.propagate(key, effect.as_bytes());
    }

    /// Stores something new, and publishes it.
    fn set(&mut self, key: usize, lock: Lock) {
        let effect = lock.to_effect(self.now());
        assert_eq!(
            lock.effect(&Change::whole(), self.now()).as_bytes(),
            effect.as_bytes()
        );
        self.keys[key] = Some(lock);
        self.propagate(key, effect.as_bytes());
    }

    fn propagate(&mut self, key: usize, effect: &[u8]) {
        assert_eq!(LockEffect::decode(effect).unwrap().1, self.now());
        self.effects += 1;
        for replica in &mut self.replicas {
            replica.hear(key, effect);
        }
    }

    /// DEL, on the replicas too.
    fn remove(&mut self, key: usize) {
        self.keys[key] = None;
        for replica in &mut self.replicas {
            replica.keys[key] = None;
        }
    }

    /// The lock in the model's words.
    pub(crate) fn stored(&self, key: usize) -> Stored {
        match &self.keys[key] {
            None => Stored::Nothing,
            Some(Lock::Exclusive(hold)) => Stored::Exclusive(holding(hold)),
            Some(Lock::Shared(readers)) => {
                assert!(!readers.is_empty());
                assert_eq!(readers.len(), readers.iter().count());
                Stored::Shared(readers.iter().map(holding).collect())
            }
            Some(Lock::Kept { token, until }) => Stored::Kept {
                token: token.get(),
                until_ms: until.0,
            },
        }
    }
}

pub(crate) fn holding(hold: &Hold) -> Holding {
    let Hold {
        token,
        deadline,
        granted,
        max,
        holds,
        holder,
    } = hold;
    Holding {
        owner: index(&OWNERS, holder.owner()),
        meta: index(&METAS, holder.meta()),
        token: token.get(),
        at_ms: granted.0,
        until_ms: deadline.0,
        max_ms: max.map(|Millis(ms)| ms),
        holds: *holds,
    }
}

fn index(all: &[&[u8]], one: &[u8]) -> usize {
    all.iter().position(|bytes| *bytes == one).unwrap()
}

/// What DUMP and DIGEST would see.
pub(crate) fn bytes(keys: &Keys) -> [Option<Vec<u8>>; KEYS] {
    std::array::from_fn(|key| {
        let lock = keys[key].as_ref()?;
        Some(lock.to_stored().as_bytes().to_vec())
    })
}
