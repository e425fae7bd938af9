//! RL.BLOCK: a penalty that denies everything on a key for a time.

use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::limiter::policy::MAX_PERIOD_MS;
use crate::Micros;

/// A limiter under a block. Rare, and so in an allocation of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub(super) block: Block,
    /// Never itself blocked.
    pub(super) limiter: Shape,
}

/// From when to when everything is denied; `until` is the first instant of the open time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    from: Micros,
    pub(super) until: Micros,
}

impl Block {
    pub(super) fn new(ms: u64, now: Micros) -> Block {
        Block {
            from: now,
            until: Micros(now.0 + ms * 1000),
        }
    }

    /// How many µs are left. After a step back of the clock never more than the whole block.
    pub(super) fn left_us(&self, now: Micros) -> u64 {
        let mut block = *self;
        block.rebase(now);
        block.until.0.saturating_sub(now.0)
    }

    /// Moves a block that has begun ahead of the clock to now, and says whether it has.
    pub(super) fn rebase(&mut self, now: Micros) -> bool {
        let is_ahead = self.from > now;
        if is_ahead {
            self.until = Micros(now.0 + (self.until.0 - self.from.0));
            self.from = now;
        }
        is_ahead
    }

    pub(super) fn encode(&self, out: &mut Blob) {
        out.u64(self.from.0);
        out.u64(self.until.0);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Block, Malformed> {
        let block = Block {
            from: from.clock()?,
            until: from.clock()?,
        };
        match block.until.0.checked_sub(block.from.0) {
            Some(us) if us <= MAX_PERIOD_MS * 1000 => Ok(block),
            _ => Err(Malformed::Corrupt),
        }
    }
}
