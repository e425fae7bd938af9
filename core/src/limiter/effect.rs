//! A limiter as bytes: stored whole, and as effects for replicas and the append-only file.

use super::blocked::Block;
use super::meter::Meter;
use super::shape::{Encoded, Log, Shape};
use super::sliding_log::LogDelta;
use super::Limiter;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Micros, State};

/// An effect as a replica reads it. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimiterEffect {
    Whole(Limiter),
    /// Adds to a log, and takes from it.
    Log {
        delta: LogDelta,
        block: Option<Block>,
    },
}

impl LimiterEffect {
    /// The effect, and the clock of the primary that wrote it.
    pub fn decode(bytes: &[u8]) -> Result<(LimiterEffect, Micros), Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Limiter::VERSION)?;
        let now = from.clock()?;
        let encoded = Encoded::decode(&mut from)?;
        from.finish()?;
        let effect = match encoded {
            Encoded {
                log: Some(delta),
                block,
                ..
            } => LimiterEffect::Log { delta, block },
            Encoded { block, limiter, .. } => LimiterEffect::Whole(limiter.under(block).into()),
        };
        Ok((effect, now))
    }
}

impl Limiter {
    /// Applies an effect to what is stored. `None`: that has been changed in place; else
    /// store this instead.
    pub fn apply(stored: Option<&mut Limiter>, effect: LimiterEffect) -> Option<Limiter> {
        let (delta, block) = match effect {
            LimiterEffect::Whole(limiter) => return Some(limiter),
            LimiterEffect::Log { delta, block } => (delta, block),
        };
        if let Some(limiter) = stored {
            if let Shape::SlidingLog(log) = limiter.limiter_mut() {
                log.apply(&delta);
                limiter.set_block(block);
                return None;
            }
        }
        Some(delta.into_log().into_shape().under(block).into())
    }

    /// An effect that makes this state from nothing: for a rewritten append-only file.
    pub fn rebuild(&self, now: Micros) -> Blob {
        let mut out = effect_head(now);
        self.shape.encode(&mut out, Log::Whole);
        out
    }
}

fn effect_head(now: Micros) -> Blob {
    let mut out = Blob::new();
    out.u8(Limiter::VERSION);
    out.u64(now.0);
    out
}

impl State for Limiter {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        self.shape.encode(out, Log::Whole);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Limiter, Malformed> {
        Shape::decode(from).map(Limiter::from)
    }

    /// Of a log only what happened last: it may be long.
    #[inline]
    fn to_effect(&self, now: Micros) -> Blob {
        let mut out = effect_head(now);
        self.shape.encode(&mut out, Log::Delta);
        out
    }
}
