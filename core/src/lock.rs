//! The lock: who holds a key, until when, and under which fencing token.

use crate::codec::{Blob, Malformed, Reader};
use crate::state::State;
use crate::{Error, Identity, Micros, Millis, Token};

/// The state of a lock key. A free lock has no key; a stored one can still be over, when a
/// foreign PERSIST or a stepped clock kept the key longer than the deadline inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Exclusive(Hold),
    /// Released with KEEP: nobody holds it and nobody gets it before `until` is past.
    Kept {
        /// The token of the hold that was released.
        token: Token,
        until: Millis,
    },
}

// The promise of one allocation of at most 96 bytes for a lock with a UUID for an owner.
const _: () = assert!(std::mem::size_of::<Lock>() <= 96 && Identity::INLINE >= 36);

/// One owner's hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub token: Token,
    /// The last millisecond in which this hold lives.
    pub deadline: Millis,
    /// When it was granted.
    pub granted: Millis,
    /// How many releases free it.
    pub holds: u32,
    pub holder: Identity,
}

/// What LOCK.ACQUIRE asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub owner: &'a [u8],
    pub lease_ms: u64,
    pub meta: &'a [u8],
}

/// What it gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock was free: store this instead of whatever is there.
    Granted(Lock, Token),
    /// The owner holds it already: its first reply was lost, or it asks twice. `extended`
    /// says whether the deadline moved.
    Retried {
        token: Token,
        extended: bool,
    },
    Busy,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    /// Not held by this owner (under this token): nothing changes.
    NotHeld,
    /// Free: delete the key.
    Freed,
    /// Store this instead.
    Kept(Lock),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Renew {
    Lost,
    /// The lease that is left, ≥ 1 ms, and whether the deadline moved.
    Left {
        ms: u64,
        extended: bool,
    },
}

impl Lock {
    /// Decides an ACQUIRE against the stored state, which a retry extends in place.
    ///
    /// The deadline counts from the floor of now in milliseconds. A retry never shortens
    /// it, and keeps everything else as the first grant had it.
    pub fn acquire(
        stored: Option<&mut Lock>,
        request: &Request<'_>,
        now: Micros,
        high_water: u64,
    ) -> Result<Acquire, Error> {
        let now_ms = now.floor_ms();
        match stored {
            Some(lock) if !lock.is_over(now_ms) => match lock {
                Lock::Exclusive(hold) if hold.holder.owner() == request.owner => {
                    Ok(Acquire::Retried {
                        token: hold.token,
                        extended: hold.extend(request.lease_ms, now_ms),
                    })
                }
                _ => Ok(Acquire::Busy),
            },
            _ => {
                let (lock, token) = Lock::grant(request, now, high_water)?;
                Ok(Acquire::Granted(lock, token))
            }
        }
    }

    /// A new hold, for a lock that is free. The lease starts now.
    pub fn grant(
        request: &Request<'_>,
        now: Micros,
        high_water: u64,
    ) -> Result<(Lock, Token), Error> {
        let token = Token::next(high_water, now)?;
        let granted = now.floor_ms();
        let hold = Hold {
            token,
            deadline: granted.plus(request.lease_ms),
            granted,
            holds: 1,
            holder: Identity::new(request.owner, request.meta),
        };
        Ok((Lock::Exclusive(hold), token))
    }

    /// Whether `owner` holds it now.
    pub fn is_held_by(&self, owner: &[u8], now: Micros) -> bool {
        self.live_hold_of(owner, None, now.floor_ms()).is_some()
    }

    /// Gives one hold of `owner` back. With `keep_ms` a lock that this would free stays
    /// unavailable to everyone for that long.
    pub fn release(
        &self,
        owner: &[u8],
        token: Option<Token>,
        keep_ms: Option<u64>,
        now: Micros,
    ) -> Release {
        let now_ms = now.floor_ms();
        match (self.live_hold_of(owner, token, now_ms), keep_ms) {
            (None, _) => Release::NotHeld,
            (Some(_), None) => Release::Freed,
            (Some(hold), Some(ms)) => Release::Kept(Lock::Kept {
                token: hold.token,
                until: now_ms.plus(ms),
            }),
        }
    }

    /// Extends the lease of `owner` to at least `lease_ms` from now. Never shortens it and
    /// never brings a lost one back.
    pub fn renew(
        &mut self,
        owner: &[u8],
        lease_ms: u64,
        token: Option<Token>,
        now: Micros,
    ) -> Renew {
        let now_ms = now.floor_ms();
        if self.live_hold_of(owner, token, now_ms).is_none() {
            return Renew::Lost;
        }
        let Lock::Exclusive(hold) = self else {
            return Renew::Lost;
        };
        let extended = hold.extend(lease_ms, now_ms);
        Renew::Left {
            ms: hold.deadline.since(now_ms),
            extended,
        }
    }

    /// Whether an operator's FORCERELEASE finds something to end: anything live, or with
    /// `token` only a live holder that has it.
    pub fn can_force_release(&self, token: Option<Token>, now: Micros) -> bool {
        let now_ms = now.floor_ms();
        !self.is_over(now_ms)
            && match (self, token) {
                (_, None) => true,
                (Lock::Exclusive(hold), Some(token)) => hold.token == token,
                (Lock::Kept { .. }, Some(_)) => false,
            }
    }

    /// The latest deadline inside: the TTL the key should have.
    pub fn deadline(&self) -> Millis {
        match self {
            Lock::Exclusive(hold) => hold.deadline,
            Lock::Kept { until, .. } => *until,
        }
    }

    pub fn is_over(&self, now: Millis) -> bool {
        self.deadline().is_past(now)
    }

    /// The highest token inside.
    pub fn token(&self) -> Token {
        match self {
            Lock::Exclusive(hold) => hold.token,
            Lock::Kept { token, .. } => *token,
        }
    }

    /// The current hold, live or over; none when kept.
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Lock::Exclusive(hold) => Some(hold),
            Lock::Kept { .. } => None,
        }
    }

    /// The owner's bytes that lie in an allocation of their own, if they do.
    pub fn heap(&self) -> Option<&[u8]> {
        self.hold().and_then(|hold| hold.holder.heap())
    }

    pub fn heap_mut(&mut self) -> Option<&mut Box<[u8]>> {
        match self {
            Lock::Exclusive(hold) => hold.holder.heap_mut(),
            Lock::Kept { .. } => None,
        }
    }

    fn live_hold_of(&self, owner: &[u8], token: Option<Token>, now: Millis) -> Option<&Hold> {
        self.hold().filter(|hold| {
            !hold.deadline.is_past(now)
                && hold.holder.owner() == owner
                && token.is_none_or(|token| token == hold.token)
        })
    }
}

impl State for Lock {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        match self {
            Lock::Exclusive(hold) => {
                out.u8(EXCLUSIVE);
                out.u64(hold.token.get());
                out.u64(hold.deadline.0);
                out.u64(hold.granted.0);
                out.u32(hold.holds);
                hold.holder.encode(out);
            }
            Lock::Kept { token, until } => {
                out.u8(KEPT);
                out.u64(token.get());
                out.u64(until.0);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Lock, Malformed> {
        match from.u8()? {
            EXCLUSIVE => {
                let hold = Hold {
                    token: from.token()?,
                    deadline: from.instant()?,
                    granted: from.instant()?,
                    holds: from.u32()?,
                    holder: Identity::decode(from)?,
                };
                // No command leaves a hold that ended before it began, or no hold at all.
                if hold.holds == 0 || hold.granted > hold.deadline {
                    return Err(Malformed::Corrupt);
                }
                Ok(Lock::Exclusive(hold))
            }
            KEPT => Ok(Lock::Kept {
                token: from.token()?,
                until: from.instant()?,
            }),
            _ => Err(Malformed::Corrupt),
        }
    }
}

/// The first byte of an encoded state: which of the shapes follows.
const EXCLUSIVE: u8 = 0;
const KEPT: u8 = 1;

impl Hold {
    /// Moves the deadline to `lease_ms` from now unless it already lies behind that.
    fn extend(&mut self, lease_ms: u64, now: Millis) -> bool {
        let asked = now.plus(lease_ms);
        let extended = asked > self.deadline;
        if extended {
            self.deadline = asked;
        }
        extended
    }
}
