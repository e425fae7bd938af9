//! One key, its lock and its queue, on one server.

use crate::acts::{Act, How, Who, Wish, OWNERS};
use sluice_core::lock::{Acquire, Downgrade, Hold, Release, Renew, Request};
use sluice_core::waiting::{Mono, Seat, WaiterId, Waiting};
use sluice_core::{Lock, Micros, Millis, Token};

const KEY: (i32, &[u8]) = (0, b"k");

pub(crate) struct Server {
    pub(crate) now: u64,
    mono: u64,
    high_water: u64,
    key: Option<Lock>,
    pub(crate) waiting: Waiting<Wish>,
    next_id: u64,
    undelivered: Vec<(usize, Token)>,
    // What has to be true is checked on these.
    pub(crate) line: Vec<(usize, Vec<WaiterId>)>,
    /// Who was granted it, in order.
    pub(crate) grants: Vec<usize>,
    last_token: u64,
    pub(crate) timeouts: usize,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            now: 1_750_000_000_000_000,
            mono: 1,
            high_water: 0,
            key: None,
            waiting: Waiting::default(),
            next_id: 1,
            undelivered: Vec::new(),
            line: Vec::new(),
            grants: Vec::new(),
            last_token: 0,
            timeouts: 0,
        }
    }

    fn micros(&self) -> Micros {
        Micros(self.now)
    }

    pub(crate) fn ms(&self) -> Millis {
        self.micros().floor_ms()
    }

    fn is_free(&self) -> bool {
        self.key.as_ref().is_none_or(|lock| lock.is_over(self.ms()))
    }

    fn live(&self) -> Vec<Hold> {
        let live = self.key.iter().flat_map(|lock| lock.live_holds(self.ms()));
        live.cloned().collect()
    }

    pub(crate) fn holders(&self) -> Vec<usize> {
        self.live()
            .iter()
            .map(|hold| {
                let is_it = |owner: &&[u8]| *owner == hold.holder.owner();
                OWNERS.iter().position(is_it).unwrap()
            })
            .collect()
    }

    fn pick(&self, who: &Who) -> usize {
        let holders = self.holders();
        match who {
            Who::Holder(which) if !holders.is_empty() => *which.get(&holders),
            Who::Holder(_) => 0,
            Who::Anybody(owner) => *owner,
        }
    }

    fn granted(&mut self, owner: usize, token: Token) {
        assert!(token.get() > self.last_token, "tokens rise");
        self.last_token = token.get();
        self.high_water = token.get();
        self.grants.push(owner);
    }

    /// Whoever comes next may be able to have it now.
    pub(crate) fn gone(&mut self, id: WaiterId) {
        for (_, ids) in &mut self.line {
            ids.retain(|other| *other != id);
        }
        self.line.retain(|(_, ids)| !ids.is_empty());
        self.waiting.touch(KEY.0, KEY.1);
    }

    fn answer_ended(&mut self) {
        while let Some(id) = self.waiting.take_ended(Mono(self.mono)) {
            self.gone(id);
            self.timeouts += 1;
        }
    }

    /// What the owner at the head asks for: the longest lease of all its waiters, shared only
    /// if all of them do, and all else as the first.
    fn wanted(&self) -> Option<(usize, Wish)> {
        let (owner, seats) = self.waiting.head(KEY.0, KEY.1)?;
        let owner = OWNERS.iter().position(|other| **other == **owner).unwrap();
        let wish = Wish {
            lease_ms: seats.iter().map(|seat| seat.wish.lease_ms).max().unwrap(),
            is_shared: seats.iter().all(|seat| seat.wish.is_shared),
            maxhold_ms: seats[0].wish.maxhold_ms,
        };
        Some((owner, wish))
    }

    fn advance(&mut self, mut is_free: bool) -> usize {
        let mut granted = 0;
        while let Some((owner, wish)) = self.wanted() {
            let request = request(owner, &wish, false);
            let (now, high_water) = (self.micros(), self.high_water);
            let before = self.live();
            let stored = self.key.as_mut().filter(|_| !is_free);
            let token = match Lock::acquire(stored, &request, false, now, high_water).unwrap() {
                Acquire::Busy { .. } => break,
                Acquire::Granted(lock, token) => {
                    let upgrades = before.len() == 1
                        && before[0].holder.owner() == OWNERS[owner]
                        && !wish.is_shared;
                    assert!(is_free || before.is_empty() || upgrades);
                    self.key = Some(lock);
                    self.granted(owner, token);
                    self.undelivered.push((owner, token));
                    token
                }
                Acquire::Joined(token, _) => {
                    assert!(wish.is_shared && !before.is_empty());
                    self.granted(owner, token);
                    self.undelivered.push((owner, token));
                    token
                }
                Acquire::Retried(token, _) => token,
            };
            is_free = false;
            assert!(self.live().iter().any(|hold| hold.token == token));
            self.take_head(owner);
            granted += 1;
        }
        if !is_free {
            self.moved();
        }
        granted
    }

    fn take_head(&mut self, owner: usize) {
        let group = self.waiting.take_head(KEY.0, KEY.1).expect("it was there");
        let (first, ids) = self.line.remove(0);
        assert_eq!(owner, first, "first in, first out");
        assert_eq!(&*group.owner, OWNERS[owner]);
        let seats: Vec<_> = group.seats.iter().map(|seat| seat.id).collect();
        assert_eq!(seats, ids, "one grant answers all of the owner's waiters");
    }

    fn hand_over_or_remove(&mut self) {
        self.answer_ended();
        if self.advance(true) == 0 {
            self.key = None;
        }
    }

    fn hand_on(&mut self) {
        self.answer_ended();
        self.advance(false);
    }

    fn moved(&mut self) {
        if let Some(lease) = self.key.as_ref().map(Lock::deadline) {
            self.waiting.held_until(KEY.0, KEY.1, lease);
        }
        // Somebody left the head and nobody has looked yet: that look is still owed.
        if self.is_head_kept_waiting() {
            self.waiting.touch(KEY.0, KEY.1);
        }
    }

    pub(crate) fn acquire(&mut self, owner: usize, wish: &Wish, is_reentrant: bool, how: How) {
        if self.waiting.len_of(KEY.0, KEY.1) > 0 {
            if !matches!(how, How::Script) {
                self.hand_on();
            } else if self.is_free() {
                self.waiting.touch(KEY.0, KEY.1);
            }
        }
        let others_wait = self.waiting.len_of(KEY.0, KEY.1) > 0;
        let before = self.live();
        let (now, high_water) = (self.micros(), self.high_water);
        let request = request(owner, wish, is_reentrant);
        let stored = self.key.as_mut();
        match Lock::acquire(stored, &request, others_wait, now, high_water).unwrap() {
            Acquire::Granted(lock, token) => {
                let upgrades = before.len() == 1 && before[0].holder.owner() == OWNERS[owner];
                assert!(upgrades || before.is_empty(), "somebody holds it");
                assert!(upgrades || !others_wait, "a newcomer overtook the queue");
                self.key = Some(lock);
                self.granted(owner, token);
                self.moved();
            }
            Acquire::Joined(token, _) => {
                assert!(!others_wait, "a reader overtook the queue");
                self.granted(owner, token);
            }
            Acquire::Retried(token, change) => {
                let is_it =
                    |hold: &Hold| hold.token == token && hold.holder.owner() == OWNERS[owner];
                assert!(before.iter().any(is_it));
                if change.is_some() {
                    self.moved();
                }
            }
            Acquire::Busy { is_upgrade } => {
                let holds = self.holders().contains(&owner);
                assert_eq!(is_upgrade, holds);
                if let (How::Block { wait_us }, false) = (how, is_upgrade) {
                    self.answer_ended();
                    self.join(owner, *wish, wait_us);
                }
            }
        }
    }

    fn join(&mut self, owner: usize, wish: Wish, wait_us: u64) {
        let id = WaiterId(self.next_id);
        self.next_id += 1;
        let lease = self.key.as_ref().map_or(self.ms(), Lock::deadline);
        let seat = Seat { id, wish };
        let until = Mono(self.mono + wait_us);
        self.waiting.join(KEY, OWNERS[owner], seat, until, lease);
        match self.line.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, ids)) => ids.push(id),
            None => self.line.push((owner, vec![id])),
        }
    }

    fn released(&mut self, release: Release) {
        match release {
            Release::NotHeld => {}
            Release::Freed { .. } => self.hand_over_or_remove(),
            Release::Kept { lock, .. } => {
                self.key = Some(lock);
                self.moved();
            }
            Release::Held { .. } => {
                self.moved();
                self.hand_on();
            }
        }
    }

    pub(crate) fn serve(&mut self) {
        self.answer_ended();
        while let Some(key) = self.waiting.take_due(self.ms()) {
            assert_eq!((key.db, &*key.name), KEY);
            if self.is_free() {
                self.key = None;
            }
            self.hand_on();
        }
    }

    pub(crate) fn apply(&mut self, act: &Act) {
        let now = self.micros();
        if matches!(act, Act::Acquire { .. } | Act::Release { .. } | Act::Serve) {
            // Only the very instant of a grant counts.
            self.undelivered.clear();
        }
        match act {
            Act::Acquire {
                owner,
                wish,
                is_reentrant,
                how,
            } => self.acquire(*owner, wish, *is_reentrant, *how),
            Act::Release { who, keep_ms } => {
                let owner = self.pick(who);
                let holds = self.holders().contains(&owner);
                let Some(lock) = self.key.as_mut() else {
                    return;
                };
                let release = lock.release(OWNERS[owner], None, *keep_ms, now);
                assert_eq!(release != Release::NotHeld, holds);
                self.released(release);
            }
            Act::Renew { who, lease_ms } => {
                let owner = self.pick(who);
                let Some(lock) = self.key.as_mut() else {
                    return;
                };
                let renewed = lock.renew(OWNERS[owner], *lease_ms, None, now);
                if matches!(renewed, Renew::Left(_, Some(_))) {
                    self.moved();
                }
            }
            Act::Downgrade(who) => {
                let owner = self.pick(who);
                let lock = self.key.as_ref();
                let downgrade = lock.map(|lock| lock.downgrade(OWNERS[owner], None, now));
                if let Some(Downgrade::Shared(lock)) = downgrade {
                    self.key = Some(lock);
                    self.hand_on();
                }
            }
            Act::ForceRelease => {
                let lock = self.key.as_ref();
                if lock.is_some_and(|lock| lock.can_force_release(None, now)) {
                    self.hand_over_or_remove();
                }
            }
            Act::Lose => {
                if self.key.take().is_some() {
                    self.waiting.touch(KEY.0, KEY.1);
                }
            }
            Act::Leave(which) => {
                let ids: Vec<_> = self.line.iter().flat_map(|(_, ids)| ids.clone()).collect();
                if !ids.is_empty() {
                    let id = *which.get(&ids);
                    assert!(self.waiting.leave(id));
                    self.gone(id);
                }
            }
            Act::Undelivered(which) => {
                if self.undelivered.is_empty() {
                    return;
                }
                let at = which.index(self.undelivered.len());
                let (owner, token) = self.undelivered.swap_remove(at);
                if let Some(lock) = self.key.as_mut() {
                    let release = lock.revoke(OWNERS[owner], token, now);
                    self.released(release);
                }
            }
            Act::Clock(us) => self.now = self.now.saturating_add_signed(*us),
            Act::Pass(us) => {
                self.now += us;
                self.mono += us;
            }
            Act::Serve => self.serve(),
        }
    }

    /// Whether the head of the queue could have the lock, if somebody looked.
    pub(crate) fn is_head_kept_waiting(&self) -> bool {
        let Some((owner, wish)) = self.wanted() else {
            return false;
        };
        let mut lock = self.key.clone();
        let request = request(owner, &wish, false);
        let got = Lock::acquire(lock.as_mut(), &request, false, self.micros(), 0);
        !matches!(got, Ok(Acquire::Busy { .. }))
    }

    pub(crate) fn check(&self) {
        let waiters: usize = self.line.iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(self.waiting.len_of(KEY.0, KEY.1), waiters);
        assert_eq!(self.waiting.len(), waiters);
        let head = self.waiting.head(KEY.0, KEY.1).map(|(owner, _)| &**owner);
        assert_eq!(head, self.line.first().map(|(owner, _)| OWNERS[*owner]));
        if waiters == 0 {
            return;
        }
        // Nobody is forgotten: the queue will be looked at, and in time.
        let due = self
            .waiting
            .next_due()
            .expect("a queue without a next look");
        if self.is_head_kept_waiting() {
            assert!(due.is_past(self.ms()), "it could have it, and nobody looks");
        } else {
            let lock = self.key.as_ref().expect("it could have it");
            assert!(due <= lock.deadline());
        }
    }
}

fn request(owner: usize, wish: &Wish, is_reentrant: bool) -> Request<'static> {
    Request {
        is_shared: wish.is_shared,
        is_reentrant,
        maxhold_ms: wish.maxhold_ms,
        ..Request::exclusive(OWNERS[owner], wish.lease_ms)
    }
}
