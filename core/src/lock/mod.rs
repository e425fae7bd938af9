//! The lock: who holds a key, until when, and under which fencing tokens.

mod effect;
mod hold;

pub use effect::{Change, LockEffect};
pub use hold::{Hold, Request};

use crate::codec::{Blob, Malformed, Reader};
use crate::holders::{Held, Holders};
use crate::state::State;
use crate::{Error, Micros, Millis, Token};

/// The readers of a shared lock.
pub type Readers = Holders<Hold>;

/// The state of a lock key. A free lock has no key; a stored one can still be over, when a
/// foreign PERSIST or a stepped clock kept the key longer than the deadlines inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Exclusive(Hold),
    /// Never empty while it is stored.
    Shared(Box<Readers>),
    /// Released with KEEP: nobody holds it and nobody gets it before `until` is past.
    Kept {
        /// The token of the hold that was released.
        token: Token,
        until: Millis,
    },
}

// The promise of one allocation of at most 96 bytes for a lock with a UUID for an owner.
const _: () = assert!(std::mem::size_of::<Lock>() <= 96 && crate::Identity::INLINE >= 36);

/// What LOCK.ACQUIRE gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock was free, or held by this only reader: store this instead of whatever is
    /// there.
    Granted(Lock, Token),
    /// One more reader: the stored state has it already.
    Joined(Token, Change),
    /// The owner holds it already: its first reply was lost, it asks twice, or it enters
    /// again. `None`: nothing changed.
    Retried(Token, Option<Change>),
    /// `is_upgrade`: by a reader among others, which would never be granted by waiting.
    Busy { is_upgrade: bool },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    /// Not held by this owner (under this token): nothing changes.
    NotHeld,
    /// Free, after a hold that began then: delete the key.
    Freed { granted: Millis },
    /// Store this instead.
    Kept { lock: Lock, granted: Millis },
    /// Still held, by other readers than the one who began then, or by this owner: changed
    /// in place.
    Held {
        change: Change,
        ended: Option<Millis>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Renew {
    Lost,
    /// The lease that is left in ms, and what changed if the deadline moved.
    Left(u64, Option<Change>),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Downgrade {
    NotHeld,
    /// It was shared before.
    Already,
    /// Store this instead.
    Shared(Lock),
}

impl Lock {
    /// Decides an ACQUIRE against the stored state, and changes that in place where it can.
    ///
    /// `others_wait` says that clients queue for the key: whoever does not hold it yet
    /// comes after them. An upgrade by the only reader stands before the queue, which waits
    /// for this reader anyway.
    #[inline]
    pub fn acquire(
        stored: Option<&mut Lock>,
        request: &Request<'_>,
        others_wait: bool,
        now: Micros,
        high_water: u64,
    ) -> Result<Acquire, Error> {
        let now_ms = now.floor_ms();
        let busy = Ok(Acquire::Busy { is_upgrade: false });
        let lock = match stored {
            Some(lock) if !lock.is_over(now_ms) => lock,
            _ if others_wait => return busy,
            _ => return Lock::grant(request, now, high_water),
        };
        match lock {
            Lock::Exclusive(hold) if hold.is_of(request.owner, None) => {
                let changed = hold.again(request, now_ms);
                Ok(Acquire::Retried(hold.token, changed.then(Change::whole)))
            }
            Lock::Shared(readers) => match readers.of(request.owner, now_ms) {
                Some(hold) if request.is_shared => {
                    let token = hold.token;
                    let changed = readers.change(token, |hold| hold.again(request, now_ms));
                    let change = (changed == Some(true)).then(|| {
                        let lapsed = readers.prune(now_ms);
                        Change::reader(token, lapsed)
                    });
                    Ok(Acquire::Retried(token, change))
                }
                Some(hold) if readers.is_alone(hold.token, now_ms) => {
                    let token = Token::next(high_water, now)?;
                    let mut hold = hold.clone();
                    hold.token = token;
                    hold.again(request, now_ms);
                    Ok(Acquire::Granted(Lock::Exclusive(hold), token))
                }
                Some(_) => Ok(Acquire::Busy { is_upgrade: true }),
                None if request.is_shared && !others_wait => {
                    let token = Token::next(high_water, now)?;
                    let lapsed = readers.prune(now_ms);
                    readers.put(Hold::new(request, token, now));
                    Ok(Acquire::Joined(token, Change::reader(token, lapsed)))
                }
                None => busy,
            },
            _ => busy,
        }
    }

    /// A first hold, for a lock that is free.
    #[inline]
    fn grant(request: &Request<'_>, now: Micros, high_water: u64) -> Result<Acquire, Error> {
        let token = Token::next(high_water, now)?;
        Ok(Acquire::Granted(Lock::held(request, token, now), token))
    }

    /// The lock as `request` gets it under `token`.
    #[inline]
    pub fn held(request: &Request<'_>, token: Token, now: Micros) -> Lock {
        let hold = Hold::new(request, token, now);
        if request.is_shared {
            Lock::shared(hold)
        } else {
            Lock::Exclusive(hold)
        }
    }

    fn shared(hold: Hold) -> Lock {
        let mut readers = Box::<Readers>::default();
        readers.put(hold);
        Lock::Shared(readers)
    }

    /// Gives one hold of `owner` back. With `keep_ms` a lock that this would free stays
    /// unavailable to everyone for that long.
    #[inline]
    pub fn release(
        &mut self,
        owner: &[u8],
        token: Option<Token>,
        keep_ms: Option<u64>,
        now: Micros,
    ) -> Release {
        let now_ms = now.floor_ms();
        let Some(hold) = self.live_hold_of(owner, token, now_ms) else {
            return Release::NotHeld;
        };
        let (token, holds, granted) = (hold.token, hold.holds, hold.granted);
        match self {
            Lock::Exclusive(hold) if holds > 1 => {
                hold.holds -= 1;
                Release::Held {
                    change: Change::whole(),
                    ended: None,
                }
            }
            Lock::Shared(readers) if holds > 1 => {
                readers.change(token, |hold| hold.holds -= 1);
                Release::Held {
                    change: Change::reader(token, readers.prune(now_ms)),
                    ended: None,
                }
            }
            Lock::Shared(readers) if !readers.is_alone(token, now_ms) => {
                readers.remove(token);
                Release::Held {
                    change: Change::reader_gone(token, readers.prune(now_ms)),
                    ended: Some(granted),
                }
            }
            _ => match keep_ms {
                None => Release::Freed { granted },
                Some(ms) => {
                    let until = now_ms.plus(ms);
                    let lock = Lock::Kept { token, until };
                    Release::Kept { lock, granted }
                }
            },
        }
    }

    /// Takes the whole hold of `owner` away, however often it entered: its connection closed,
    /// or never read its grant.
    pub fn revoke(&mut self, owner: &[u8], token: Token, now: Micros) -> Release {
        if !self.is_held_by(owner, Some(token), now) {
            return Release::NotHeld;
        }
        match self {
            Lock::Exclusive(hold) => hold.holds = 1,
            Lock::Shared(readers) => {
                readers.change(token, |hold| hold.holds = 1);
            }
            Lock::Kept { .. } => {}
        }
        self.release(owner, Some(token), None, now)
    }

    /// Extends the lease of `owner` to at least `lease_ms` from now, MAXHOLD permitting.
    /// Never shortens it and never brings a lost one back; moves nobody else's.
    #[inline]
    pub fn renew(
        &mut self,
        owner: &[u8],
        lease_ms: u64,
        token: Option<Token>,
        now: Micros,
    ) -> Renew {
        let now_ms = now.floor_ms();
        if !self.can_renew(owner, token, now) {
            return Renew::Lost;
        }
        let Some(hold) = self.live_hold_of(owner, token, now_ms) else {
            return Renew::Lost;
        };
        let token = hold.token;
        let extend = |hold: &mut Hold| {
            let extended = hold.extend(lease_ms, now_ms);
            (hold.deadline.since(now_ms), extended)
        };
        match self {
            Lock::Exclusive(hold) => {
                let (left, extended) = extend(hold);
                Renew::Left(left, extended.then(Change::whole))
            }
            Lock::Shared(readers) => match readers.change(token, extend) {
                None => Renew::Lost,
                Some((left, false)) => Renew::Left(left, None),
                Some((left, true)) => {
                    let lapsed = readers.prune(now_ms);
                    Renew::Left(left, Some(Change::reader(token, lapsed)))
                }
            },
            Lock::Kept { .. } => Renew::Lost,
        }
    }

    /// Whether `owner` holds it, and MAXHOLD leaves it a millisecond or more.
    pub fn can_renew(&self, owner: &[u8], token: Option<Token>, now: Micros) -> bool {
        let now = now.floor_ms();
        self.live_hold_of(owner, token, now)
            .is_some_and(|hold| hold.max.is_none_or(|max| max > now))
    }

    /// Makes an exclusive hold a shared one, under the same token.
    pub fn downgrade(&self, owner: &[u8], token: Option<Token>, now: Micros) -> Downgrade {
        match (self, self.live_hold_of(owner, token, now.floor_ms())) {
            (_, None) => Downgrade::NotHeld,
            (Lock::Exclusive(hold), Some(_)) => Downgrade::Shared(Lock::shared(hold.clone())),
            _ => Downgrade::Already,
        }
    }

    /// Whether an operator's FORCERELEASE finds something to end: anything live, or with
    /// `token` only a live holder that has it.
    pub fn can_force_release(&self, token: Option<Token>, now: Micros) -> bool {
        let now_ms = now.floor_ms();
        !self.is_over(now_ms)
            && token.is_none_or(|token| self.live_holds(now_ms).any(|hold| hold.token == token))
    }

    /// Whether `owner` holds it exclusively now, and under which token.
    pub fn exclusive_token_of(&self, owner: &[u8], now: Micros) -> Option<Token> {
        match self {
            Lock::Exclusive(_) => self
                .live_hold_of(owner, None, now.floor_ms())
                .map(|hold| hold.token),
            _ => None,
        }
    }

    /// Whether `owner` holds it now, in any mode, and under `token` if that is given.
    pub fn is_held_by(&self, owner: &[u8], token: Option<Token>, now: Micros) -> bool {
        self.live_hold_of(owner, token, now.floor_ms()).is_some()
    }

    /// The latest deadline inside: the TTL the key should have.
    pub fn deadline(&self) -> Millis {
        match self {
            Lock::Exclusive(hold) => hold.deadline,
            Lock::Shared(readers) => readers.deadline(),
            Lock::Kept { until, .. } => *until,
        }
    }

    pub fn is_over(&self, now: Millis) -> bool {
        self.deadline().is_past(now)
    }

    /// The highest token inside.
    pub fn token(&self) -> Option<Token> {
        match self {
            Lock::Exclusive(hold) => Some(hold.token),
            Lock::Shared(readers) => readers.last_token(),
            Lock::Kept { token, .. } => Some(*token),
        }
    }

    /// The highest token of those that still count: of a live hold, or of a kept lock.
    pub fn live_token(&self, now: Millis) -> Option<Token> {
        match self {
            Lock::Kept { token, .. } => Some(*token),
            _ => self.live_holds(now).map(|hold| hold.token).max(),
        }
    }

    /// What LOCK.INFO calls it.
    pub fn mode(&self) -> &'static str {
        match self {
            Lock::Exclusive(_) => "exclusive",
            Lock::Shared(_) => "shared",
            Lock::Kept { .. } => "kept",
        }
    }

    /// Everything stored that is or was held, in the order of the grants.
    pub fn holds(&self) -> Box<dyn Iterator<Item = &Hold> + '_> {
        match self {
            Lock::Exclusive(hold) => Box::new(std::iter::once(hold)),
            Lock::Shared(readers) => Box::new(readers.iter()),
            Lock::Kept { .. } => Box::new(std::iter::empty()),
        }
    }

    pub fn live_holds(&self, now: Millis) -> impl Iterator<Item = &Hold> {
        self.holds().filter(move |hold| !hold.is_over(now))
    }

    /// Whether a hold with this token is stored, live or over.
    pub fn has(&self, token: Token) -> bool {
        match self {
            Lock::Exclusive(hold) => hold.token == token,
            Lock::Shared(readers) => readers.get(token).is_some(),
            Lock::Kept { .. } => false,
        }
    }

    /// Bytes of an owner that lie in an allocation of their own, for the defragmenter.
    pub fn heap_mut(&mut self) -> Option<&mut Box<[u8]>> {
        match self {
            Lock::Exclusive(hold) => hold.holder.heap_mut(),
            _ => None,
        }
    }

    /// Roughly the bytes it takes beside its own allocation.
    pub fn heap_size(&self) -> usize {
        match self {
            Lock::Exclusive(hold) => hold.holder.heap_len(),
            Lock::Shared(readers) => {
                let holders = readers.iter().map(|hold| hold.holder.heap_len());
                readers.heap_size() + holders.sum::<usize>()
            }
            Lock::Kept { .. } => 0,
        }
    }

    #[inline]
    fn live_hold_of(&self, owner: &[u8], token: Option<Token>, now: Millis) -> Option<&Hold> {
        let hold = match self {
            Lock::Exclusive(hold) => Some(hold).filter(|hold| !hold.is_over(now)),
            Lock::Shared(readers) => readers.of(owner, now),
            Lock::Kept { .. } => None,
        };
        hold.filter(|hold| hold.is_of(owner, token))
    }
}

impl State for Lock {
    const VERSION: u8 = 1;

    #[inline]
    fn encode(&self, out: &mut Blob) {
        match self {
            Lock::Exclusive(hold) => {
                out.u8(EXCLUSIVE);
                hold.encode(out);
            }
            Lock::Shared(readers) => {
                out.u8(SHARED);
                readers.encode(out);
            }
            Lock::Kept { token, until } => {
                out.u8(KEPT);
                out.u64(token.get());
                out.u64(until.0);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Lock, Malformed> {
        let kind = from.u8()?;
        Lock::decode_kind(kind, from)
    }
}

impl Lock {
    fn decode_kind(kind: u8, from: &mut Reader<'_>) -> Result<Lock, Malformed> {
        match kind {
            EXCLUSIVE => Hold::decode(from).map(Lock::Exclusive),
            SHARED => Readers::decode(from).map(|readers| Lock::Shared(Box::new(readers))),
            KEPT => Ok(Lock::Kept {
                token: from.token()?,
                until: from.instant()?,
            }),
            _ => Err(Malformed::Corrupt),
        }
    }
}

/// The first byte of an encoded state: which of the shapes follows. Effects have more of
/// them (`effect.rs`).
const EXCLUSIVE: u8 = 0;
const KEPT: u8 = 1;
const SHARED: u8 = 2;
