//! What a change of a lock looks like to replicas and the append-only file: the whole state
//! where it is small, one reader where there may be thousands.

use super::{Hold, Lock};
use crate::codec::{Blob, Malformed, Reader};
use crate::holders::Held;
use crate::holders::Pruned;
use crate::state::State;
use crate::{Micros, Token};

/// What changed in a stored lock, for its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    what: What,
    /// Readers whose leases had run out and that are gone now.
    pub lapsed: Pruned<Hold>,
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
            lapsed: Pruned::nobody(),
        }
    }

    pub(super) fn reader(token: Token, lapsed: Pruned<Hold>) -> Change {
        Change {
            what: What::Reader(token),
            lapsed,
        }
    }

    pub(super) fn reader_gone(token: Token, lapsed: Pruned<Hold>) -> Change {
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

/// The clock of an effect that prunes nobody.
const NEVER: Micros = Micros(0);

/// First bytes of effects that are no whole state.
const READER: u8 = 16;
const READER_GONE: u8 = 17;

impl Lock {
    /// An effect that says again how `owner` holds it. Nothing has been pruned here, so that
    /// of a reader prunes nobody either.
    pub fn restate(&self, owner: &[u8], now: Micros) -> Blob {
        match self {
            Lock::Shared(readers) => match readers.token_of(owner) {
                Some(token) => self.reader_effect(token, NEVER),
                None => self.to_effect(now),
            },
            _ => self.to_effect(now),
        }
    }

    /// The effect that carries `change`, which has been made already.
    #[inline]
    pub fn effect(&self, change: &Change, now: Micros) -> Blob {
        match change.what {
            What::Whole => self.to_effect(now),
            What::Reader(token) => self.reader_effect(token, change.lapsed.clock(now)),
            What::ReaderGone(token) => {
                let mut out = effect_head(change.lapsed.clock(now), READER_GONE);
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
        match self {
            Lock::Shared(readers) => readers
                .iter()
                .map(|hold| self.reader_effect(hold.token, NEVER))
                .collect(),
            _ => vec![self.effect(&Change::whole(), NEVER)],
        }
    }

    /// Applies an effect to what is stored. `None`: the stored state has been changed in
    /// place; else store this instead.
    pub fn apply(stored: Option<&mut Lock>, effect: LockEffect, now: Micros) -> Option<Lock> {
        let now = now.floor_ms();
        match (stored, effect) {
            (_, LockEffect::Whole(lock)) => Some(lock),
            (Some(Lock::Shared(readers)), LockEffect::Reader(hold)) => {
                while !readers.prune(now).holds.is_empty() {}
                readers.put(hold);
                None
            }
            (_, LockEffect::Reader(hold)) => Some(Lock::shared(hold)),
            (Some(Lock::Shared(readers)), LockEffect::ReaderGone(token)) => {
                while !readers.prune(now).holds.is_empty() {}
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
