//! The semaphore: who holds how many permits of a key, until when, and under which tokens.
//!
//! Only leases are stored. What is free is the limit of whoever asks less the live permits:
//! a release that comes twice can mint nothing, and a crashed holder's permits come back at
//! its deadline by themselves.

mod effect;
mod hold;

pub use effect::{Change, SemaphoreEffect};
pub use hold::{Hold, Request};

use crate::codec::{Blob, Malformed, Reader};
use crate::holders::{Holders, Pruned};
use crate::state::State;
use crate::{Error, Micros, Millis, Token};

/// The state of a semaphore key. A semaphore that nobody holds has no key; a stored one can
/// still be over, when a foreign PERSIST or a stepped clock kept the key longer than the
/// deadlines inside.
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// Never empty while it is stored.
    holders: Holders<Hold>,
    /// Those of all stored holders, live or over.
    permits: u64,
    lapsed: Lapsed,
}

/// How much of what is stored is over, up to an instant that moves with the clock: each
/// lease is counted once as the instant passes its end, so that a call, which may not prune
/// when it is busy, still needs not look at all holders. No part of the state.
#[derive(Clone, Copy, Debug)]
struct Lapsed {
    /// Counted are the holders whose deadline is before this.
    at: Millis,
    permits: u64,
    holders: usize,
}

impl PartialEq for Semaphore {
    fn eq(&self, other: &Semaphore) -> bool {
        self.holders == other.holders
    }
}

impl Eq for Semaphore {}

/// What SEM.ACQUIRE gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquire {
    /// Nobody held a permit: store this instead of whatever is there.
    Granted(Semaphore, Token),
    /// One more holder: the stored state has it already.
    Joined(Token, Change),
    /// The holder has these permits already: its first reply was lost, or it asks twice.
    /// `None`: nothing changed.
    Retried(Token, Option<Change>),
    /// Too few are free, or others come first.
    Busy,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing held by this holder (under this token): nothing changes.
    NotHeld,
    /// These were the last: delete the key.
    Freed { permits: u32, granted: Millis },
    /// Others hold permits still: changed in place.
    Returned {
        permits: u32,
        granted: Millis,
        token: Token,
        change: Change,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Renew {
    Lost,
    /// The lease that is left in ms, its token, and what changed if the deadline moved.
    Left(u64, Token, Option<Change>),
}

impl Semaphore {
    /// The highest limit, and so the most permits one call can ask for.
    pub const MAX_PERMITS: u32 = 1_000_000;
    /// As many may hold permits of one key.
    pub const MAX_HOLDERS: usize = 100_000;

    /// Decides an ACQUIRE against the stored state, and changes that in place where it can.
    ///
    /// `others_wait` says that clients queue for the key: whoever does not hold permits yet
    /// comes after them.
    pub fn acquire(
        stored: Option<&mut Semaphore>,
        request: &Request<'_>,
        others_wait: bool,
        now: Micros,
        high_water: u64,
    ) -> Result<Acquire, Error> {
        request.check()?;
        let now_ms = now.floor_ms();
        let semaphore = match stored {
            Some(semaphore) if !semaphore.is_over(now_ms) => semaphore,
            _ if others_wait => return Ok(Acquire::Busy),
            _ => {
                let token = Token::next(high_water, now)?;
                let first = Semaphore::of(Hold::new(request, token, now));
                return Ok(Acquire::Granted(first, token));
            }
        };
        if let Some(hold) = semaphore.live_hold_of(request.owner, None, now_ms) {
            return match hold.permits {
                permits if permits != request.permits => Err(Error::PermitsChanged { permits }),
                _ => {
                    let token = hold.token;
                    let change = semaphore.extend(token, request.lease_ms, now_ms);
                    Ok(Acquire::Retried(token, change))
                }
            };
        }
        if others_wait || !semaphore.has_room(request, now_ms) {
            return Ok(Acquire::Busy);
        }
        if semaphore.live_len(now_ms) >= Semaphore::MAX_HOLDERS {
            return Err(Error::TooManyHolders);
        }
        let token = Token::next(high_water, now)?;
        let lapsed = semaphore.prune(now_ms);
        semaphore.put(Hold::new(request, token, now));
        Ok(Acquire::Joined(token, Change::hold(token, lapsed)))
    }

    /// Whether what is asked for is free. Permits granted under a higher limit than this
    /// may be more than it.
    fn has_room(&mut self, request: &Request<'_>, now: Millis) -> bool {
        let wanted = self.live_permits(now) + u64::from(request.permits);
        wanted <= u64::from(request.limit)
    }

    /// Gives back all permits of `owner`.
    pub fn release(&mut self, owner: &[u8], token: Option<Token>, now: Micros) -> Release {
        let now_ms = now.floor_ms();
        let Some(hold) = self.live_hold_of(owner, token, now_ms) else {
            return Release::NotHeld;
        };
        let (permits, granted, token) = (hold.permits, hold.granted, hold.token);
        if self.holders.is_alone(token, now_ms) {
            return Release::Freed { permits, granted };
        }
        self.remove(token);
        Release::Returned {
            permits,
            granted,
            token,
            change: Change::gone(token, self.prune(now_ms)),
        }
    }

    /// Extends the lease of `owner` to at least `lease_ms` from now. Never shortens it and
    /// never brings a lost one back; moves nobody else's.
    pub fn renew(
        &mut self,
        owner: &[u8],
        lease_ms: u64,
        token: Option<Token>,
        now: Micros,
    ) -> Renew {
        let now_ms = now.floor_ms();
        let Some(hold) = self.live_hold_of(owner, token, now_ms) else {
            return Renew::Lost;
        };
        let (token, deadline) = (hold.token, hold.deadline);
        let change = self.extend(token, lease_ms, now_ms);
        let left = deadline.since(now_ms).max(lease_ms);
        Renew::Left(left, token, change)
    }

    /// The latest deadline inside: the TTL the key should have.
    pub fn deadline(&self) -> Millis {
        self.holders.deadline()
    }

    pub fn is_over(&self, now: Millis) -> bool {
        self.deadline().is_past(now)
    }

    /// The earliest deadline that is not past: the next permits to come back by themselves.
    pub fn next_deadline(&self, now: Millis) -> Option<Millis> {
        self.holders.first_end_from(now)
    }

    /// The highest token inside.
    pub fn last_token(&self) -> Option<Token> {
        self.holders.last_token()
    }

    /// Everything stored that is or was held, in the order of the grants.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holders.iter()
    }

    pub fn live_holds(&self, now: Millis) -> impl Iterator<Item = &Hold> {
        self.holds().filter(move |hold| !hold.is_over(now))
    }

    /// Permits that are stored, of leases that may be over.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// Permits that are held now.
    pub fn live_permits(&mut self, now: Millis) -> u64 {
        self.count_lapsed(now);
        self.permits - self.lapsed.permits
    }

    /// Holders that are stored, live or over.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    fn live_len(&mut self, now: Millis) -> usize {
        self.count_lapsed(now);
        self.holders.len() - self.lapsed.holders
    }

    /// Roughly the bytes it takes beside its own allocation.
    pub fn heap_size(&self) -> usize {
        self.holders.heap_size()
            + self
                .holds()
                .map(|hold| hold.holder.heap_len())
                .sum::<usize>()
    }

    fn of(hold: Hold) -> Semaphore {
        let mut semaphore = Semaphore::new(Holders::default());
        semaphore.put(hold);
        semaphore
    }

    fn new(holders: Holders<Hold>) -> Semaphore {
        Semaphore {
            permits: holders.iter().map(|hold| u64::from(hold.permits)).sum(),
            holders,
            lapsed: Lapsed {
                at: Millis(0),
                permits: 0,
                holders: 0,
            },
        }
    }

    fn get(&self, token: Token) -> Option<&Hold> {
        self.holders.get(token)
    }

    fn live_hold_of(&self, owner: &[u8], token: Option<Token>, now: Millis) -> Option<&Hold> {
        let hold = self.holders.of(owner, now)?;
        token
            .is_none_or(|token| token == hold.token)
            .then_some(hold)
    }

    fn put(&mut self, hold: Hold) {
        if let Some(token) = self.holders.token_of(hold.holder.owner()) {
            self.remove(token);
        }
        self.remove(hold.token);
        self.permits += u64::from(hold.permits);
        if self.lapsed.counts(&hold) {
            self.lapsed.add(&hold);
        }
        self.holders.put(hold);
    }

    fn remove(&mut self, token: Token) -> Option<Hold> {
        let hold = self.holders.remove(token)?;
        self.permits -= u64::from(hold.permits);
        if self.lapsed.counts(&hold) {
            self.lapsed.subtract(&hold);
        }
        Some(hold)
    }

    /// Removes holders whose leases are over, of many a part.
    fn prune(&mut self, now: Millis) -> Pruned<Hold> {
        let (over, before) = self.holders.over(now);
        let holds = over.into_iter().filter_map(|token| self.remove(token));
        Pruned {
            holds: holds.collect(),
            before,
        }
    }

    /// Extends a live lease, and if that moves it, prunes those that are over.
    fn extend(&mut self, token: Token, lease_ms: u64, now: Millis) -> Option<Change> {
        // A live lease is none that counts as lapsed, unless the clock has stepped back.
        self.count_lapsed(now);
        let extended = self
            .holders
            .change(token, |hold| hold.extend(lease_ms, now));
        (extended == Some(true)).then(|| Change::hold(token, self.prune(now)))
    }

    /// Moves the instant up to which lapsed leases are counted, either way, by those whose
    /// deadlines it passes.
    fn count_lapsed(&mut self, now: Millis) {
        let at = self.lapsed.at;
        for hold in self.holders.ending(at.min(now), at.max(now)) {
            if at < now {
                self.lapsed.add(hold);
            } else {
                self.lapsed.subtract(hold);
            }
        }
        self.lapsed.at = now;
    }
}

impl Lapsed {
    fn counts(&self, hold: &Hold) -> bool {
        hold.deadline < self.at
    }

    fn add(&mut self, hold: &Hold) {
        self.permits += u64::from(hold.permits);
        self.holders += 1;
    }

    fn subtract(&mut self, hold: &Hold) {
        self.permits -= u64::from(hold.permits);
        self.holders -= 1;
    }
}

impl State for Semaphore {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        self.holders.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Semaphore, Malformed> {
        Holders::decode(from).map(Semaphore::new)
    }

    fn to_effect(&self, now: Micros) -> Blob {
        self.whole_effect(now)
    }

    fn from_effect(bytes: &[u8]) -> Result<(Semaphore, Micros), Malformed> {
        match SemaphoreEffect::decode(bytes)? {
            (SemaphoreEffect::Whole(semaphore), now) => Ok((semaphore, now)),
            _ => Err(Malformed::Corrupt),
        }
    }
}
