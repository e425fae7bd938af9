//! What a change of a semaphore looks like to replicas and the append-only file: one holder
//! at a time, however many there are.

use super::{Hold, Semaphore};
use crate::codec::{Blob, Malformed, Reader};
use crate::holders::{Held, Pruned};
use crate::state::State;
use crate::{Micros, Token};

/// What changed in a stored semaphore, for its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    what: What,
    /// Holders whose leases had run out and that are gone now.
    pub lapsed: Pruned<Hold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Hold(Token),
    Gone(Token),
}

impl Change {
    pub(super) fn hold(token: Token, lapsed: Pruned<Hold>) -> Change {
        Change {
            what: What::Hold(token),
            lapsed,
        }
    }

    pub(super) fn gone(token: Token, lapsed: Pruned<Hold>) -> Change {
        Change {
            what: What::Gone(token),
            lapsed,
        }
    }
}

/// An effect as a replica reads it. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SemaphoreEffect {
    /// Everything that is stored. A primary sends it for a first holder only.
    Whole(Semaphore),
    /// Adds or replaces one holder; others whose leases were over are gone.
    Hold(Hold),
    /// Removes one holder; others whose leases were over are gone.
    Gone(Token),
}

/// The clock of an effect that prunes nobody.
const NEVER: Micros = Micros(0);

const WHOLE: u8 = 0;
const HOLD: u8 = 1;
const GONE: u8 = 2;

impl Semaphore {
    /// An effect that says again what the hold under `token` is. Nothing has been pruned
    /// here, so it prunes nobody.
    pub fn restate(&self, token: Token) -> Option<Blob> {
        self.get(token).map(|hold| hold_effect(hold, NEVER))
    }

    /// The effect that carries `change`, which has been made already.
    pub fn effect(&self, change: &Change, now: Micros) -> Blob {
        match change.what {
            What::Hold(token) => match self.get(token) {
                Some(hold) => hold_effect(hold, change.lapsed.clock(now)),
                None => self.whole_effect(now),
            },
            What::Gone(token) => {
                let mut out = effect_head(change.lapsed.clock(now), GONE);
                out.u64(token.get());
                out
            }
        }
    }

    pub(super) fn whole_effect(&self, now: Micros) -> Blob {
        let mut out = effect_head(now, WHOLE);
        self.encode(&mut out);
        out
    }

    /// Effects that make this state from nothing, each of bounded size: for a rewritten
    /// append-only file. They prune nobody.
    pub fn rebuild(&self) -> Vec<Blob> {
        self.holds().map(|hold| hold_effect(hold, NEVER)).collect()
    }

    /// Applies an effect to what is stored. `None`: the stored state has been changed in
    /// place; else store this instead.
    pub fn apply(
        stored: Option<&mut Semaphore>,
        effect: SemaphoreEffect,
        now: Micros,
    ) -> Option<Semaphore> {
        let now = now.floor_ms();
        match (stored, effect) {
            (_, SemaphoreEffect::Whole(semaphore)) => Some(semaphore),
            (Some(semaphore), SemaphoreEffect::Hold(hold)) => {
                while !semaphore.prune(now).holds.is_empty() {}
                semaphore.put(hold);
                None
            }
            (None, SemaphoreEffect::Hold(hold)) => Some(Semaphore::of(hold)),
            (Some(semaphore), SemaphoreEffect::Gone(token)) => {
                while !semaphore.prune(now).holds.is_empty() {}
                semaphore.remove(token);
                None
            }
            (None, SemaphoreEffect::Gone(_)) => None,
        }
    }
}

fn hold_effect(hold: &Hold, now: Micros) -> Blob {
    let mut out = effect_head(now, HOLD);
    hold.encode(&mut out);
    out
}

fn effect_head(now: Micros, kind: u8) -> Blob {
    let mut out = Blob::new();
    out.u8(Semaphore::VERSION);
    out.u64(now.0);
    out.u8(kind);
    out
}

impl SemaphoreEffect {
    /// The effect, and the clock of the primary that wrote it.
    pub fn decode(bytes: &[u8]) -> Result<(SemaphoreEffect, Micros), Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Semaphore::VERSION)?;
        let now = from.clock()?;
        let effect = match from.u8()? {
            WHOLE => SemaphoreEffect::Whole(Semaphore::decode(&mut from)?),
            HOLD => SemaphoreEffect::Hold(Hold::decode(&mut from)?),
            GONE => SemaphoreEffect::Gone(from.token()?),
            _ => return Err(Malformed::Corrupt),
        };
        from.finish()?;
        Ok((effect, now))
    }

    /// The highest token it brings.
    pub fn token(&self) -> Option<Token> {
        match self {
            SemaphoreEffect::Whole(semaphore) => semaphore.last_token(),
            SemaphoreEffect::Hold(hold) => Some(hold.token),
            SemaphoreEffect::Gone(token) => Some(*token),
        }
    }
}
