//! What a change of a lock looks like to replicas and the append-only file: the whole state
//! where it is small, one reader where there may be thousands.

use super::{Hold, Lock};
use crate::codec::{Blob, Malformed, Reader};
use crate::state::State;
use crate::{Micros, Token};

/// What changed in a stored lock, for its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    what: What,
    /// Readers whose leases had run out and that are gone now.
    pub lapsed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Whole,
    Reader(Token),
    ReaderGone(Token),
}

impl Change {
    pub fn whole() -> Change {
        Change {
            what: What::Whole,
            lapsed: 0,
        }
    }

    pub(super) fn reader(token: Token, lapsed: u64) -> Change {
        Change {
            what: What::Reader(token),
            lapsed,
        }
    }

    pub(super) fn reader_gone(token: Token, lapsed: u64) -> Change {
        Change {
            what: What::ReaderGone(token),
            lapsed,
        }
    }
}

/// An effect as a replica reads it. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEffect {
    Whole(Lock),
    /// Adds or replaces one reader; others whose leases were over are gone.
    Reader(Hold),
    /// Removes one reader; others whose leases were over are gone.
    ReaderGone(Token),
}

/// First bytes of effects that are no whole state.
const READER: u8 = 16;
const READER_GONE: u8 = 17;

impl Lock {
    /// A change that says again how `owner` holds it.
    pub fn unchanged(&self, owner: &[u8]) -> Change {
        match self {
            Lock::Shared(readers) => readers
                .token_of(owner)
                .map_or(Change::whole(), |token| Change::reader(token, 0)),
            _ => Change::whole(),
        }
    }

    /// The effect that carries `change`, which has been made already.
    #[inline]
    pub fn effect(&self, change: &Change, now: Micros) -> Blob {
        match change.what {
            What::Whole => self.to_effect(now),
            What::Reader(token) => self.reader_effect(token, now),
            What::ReaderGone(token) => {
                let mut out = effect_head(now, READER_GONE);
                out.u64(token.get());
                out
            }
        }
    }

    fn reader_effect(&self, token: Token, now: Micros) -> Blob {
        let hold = match self {
            Lock::Shared(readers) => readers.get(token),
            _ => None,
        };
        match hold {
            None => self.to_effect(now),
            Some(hold) => {
                let mut out = effect_head(now, READER);
                hold.encode(&mut out);
                out
            }
        }
    }

    /// Effects that make this state from nothing, each of bounded size: for a rewritten
    /// append-only file. They prune nobody.
    pub fn rebuild(&self) -> Vec<Blob> {
        let never = Micros(0);
        match self {
            Lock::Shared(readers) => readers
                .iter()
                .map(|hold| self.effect(&Change::reader(hold.token, 0), never))
                .collect(),
            _ => vec![self.effect(&Change::whole(), never)],
        }
    }

    /// Applies an effect to what is stored. `None`: the stored state has been changed in
    /// place; else store this instead.
    pub fn apply(stored: Option<&mut Lock>, effect: LockEffect, now: Micros) -> Option<Lock> {
        let now = now.floor_ms();
        match (stored, effect) {
            (_, LockEffect::Whole(lock)) => Some(lock),
            (Some(Lock::Shared(readers)), LockEffect::Reader(hold)) => {
                readers.prune(now);
                readers.put(hold);
                None
            }
            (_, LockEffect::Reader(hold)) => Some(Lock::shared(hold)),
            (Some(Lock::Shared(readers)), LockEffect::ReaderGone(token)) => {
                readers.prune(now);
                readers.remove(token);
                None
            }
            (_, LockEffect::ReaderGone(_)) => None,
        }
    }
}

fn effect_head(now: Micros, kind: u8) -> Blob {
    let mut out = Blob::new();
    out.u8(Lock::VERSION);
    out.u64(now.0);
    out.u8(kind);
    out
}

impl LockEffect {
    /// The effect, and the clock of the primary that wrote it.
    pub fn decode(bytes: &[u8]) -> Result<(LockEffect, Micros), Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Lock::VERSION)?;
        let now = from.clock()?;
        let effect = match from.u8()? {
            READER => LockEffect::Reader(Hold::decode(&mut from)?),
            READER_GONE => LockEffect::ReaderGone(from.token()?),
            kind => LockEffect::Whole(Lock::decode_kind(kind, &mut from)?),
        };
        from.finish()?;
        Ok((effect, now))
    }

    /// The highest token it brings.
    pub fn token(&self) -> Option<Token> {
        match self {
            LockEffect::Whole(lock) => lock.token(),
            LockEffect::Reader(hold) => Some(hold.token),
            LockEffect::ReaderGone(token) => Some(*token),
        }
    }
}
