//! What a limiter key can hold, and its encodings.

use super::blocked::{Block, Blocked};
use super::meter::{ends_at, Meter};
use super::sliding_log::LogDelta;
use super::{Bucket, FixedWindow, SlidingLog, SlidingWindow};
use crate::codec::{Blob, Malformed, Reader};
use crate::{Micros, Millis};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing is used: only below a block.
    Unused,
    /// GCRA, TOKENBUCKET and LEAKYBUCKET share it: a key may be used with any of them.
    Bucket(Bucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(Box<SlidingLog>),
    Blocked(Box<Blocked>),
}

/// Runs one expression on the meter in a shape, whichever it is.
macro_rules! each {
    ($shape:expr, $meter:ident => $does:expr, unused => $unused:expr, blocked($blocked:ident) => $below:expr) => {
        match $shape {
            Shape::Unused => $unused,
            Shape::Bucket($meter) => $does,
            Shape::FixedWindow($meter) => $does,
            Shape::SlidingWindow($meter) => $does,
            Shape::SlidingLog($meter) => $does,
            Shape::Blocked($blocked) => $below,
        }
    };
}

impl Shape {
    /// What errors and RL.INFO call the algorithm.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Shape::Unused => "none",
            Shape::Bucket(_) => Bucket::NAME,
            Shape::FixedWindow(_) => FixedWindow::NAME,
            Shape::SlidingWindow(_) => SlidingWindow::NAME,
            Shape::SlidingLog(_) => SlidingLog::NAME,
            Shape::Blocked(blocked) => blocked.limiter.name(),
        }
    }

    pub(super) fn matters_until(&self) -> Millis {
        each!(self, meter => meter.matters_until(),
        unused => Millis(0),
        blocked(blocked) => {
            ends_at(blocked.block.until, 0).max(blocked.limiter.matters_until())
        })
    }

    pub(super) fn is_drained(&self, now: Micros) -> bool {
        each!(self, meter => meter.is_drained(now),
        unused => true,
        blocked(blocked) => {
            blocked.block.left_us(now) == 0 && blocked.limiter.is_drained(now)
        })
    }

    /// Moves what lies ahead of the clock to now, and says whether anything did.
    pub(super) fn rebase(&mut self, now: Micros) -> bool {
        each!(self, meter => meter.rebase(now),
            unused => false,
            blocked(blocked) => blocked.block.rebase(now) | blocked.limiter.rebase(now))
    }

    pub(super) fn facts(&self, now: Micros) -> Vec<(&'static str, u64)> {
        each!(self, meter => meter.facts(now),
            unused => Vec::new(),
            blocked(blocked) => blocked.limiter.facts(now))
    }

    /// The whole state, or of a log, which may be large, what happened last.
    pub(super) fn encode(&self, out: &mut Blob, log: Log) {
        match self {
            Shape::Unused => out.u8(UNUSED),
            Shape::Bucket(bucket) => {
                out.u8(BUCKET);
                bucket.encode(out);
            }
            Shape::FixedWindow(window) => {
                out.u8(FIXED_WINDOW);
                window.encode(out);
            }
            Shape::SlidingWindow(window) => {
                out.u8(SLIDING_WINDOW);
                window.encode(out);
            }
            Shape::SlidingLog(whole) => match (log, whole.delta()) {
                (Log::Delta, Some(delta)) => {
                    out.u8(LOG_DELTA);
                    delta.encode(out);
                }
                _ => {
                    out.u8(SLIDING_LOG);
                    whole.encode(out);
                }
            },
            Shape::Blocked(blocked) => {
                out.u8(BLOCKED);
                blocked.block.encode(out);
                blocked.limiter.encode(out, log);
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Shape, Malformed> {
        match Encoded::decode(from)? {
            Encoded {
                log: None,
                block: None,
                limiter: Shape::Unused,
            }
            | Encoded { log: Some(_), .. } => Err(Malformed::Corrupt),
            Encoded { block, limiter, .. } => Ok(limiter.under(block)),
        }
    }

    /// This, below a block if there is one.
    pub(super) fn under(self, block: Option<Block>) -> Shape {
        let limiter = self;
        match block {
            None => limiter,
            Some(block) => Shape::Blocked(Box::new(Blocked { block, limiter })),
        }
    }
}

/// How to encode a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Whole,
    Delta,
}

/// What an encoding holds: a shape, or instead of it a change of a log; and a block.
pub(super) struct Encoded {
    pub(super) block: Option<Block>,
    pub(super) log: Option<LogDelta>,
    pub(super) limiter: Shape,
}

impl Encoded {
    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Encoded, Malformed> {
        let (kind, block) = match from.u8()? {
            BLOCKED => {
                let block = Block::decode(from)?;
                (from.u8()?, Some(block))
            }
            kind => (kind, None),
        };
        let mut log = None;
        let limiter = match kind {
            UNUSED if block.is_some() => Shape::Unused,
            BUCKET => Bucket::decode(from)?.into_shape(),
            FIXED_WINDOW => FixedWindow::decode(from)?.into_shape(),
            SLIDING_WINDOW => SlidingWindow::decode(from)?.into_shape(),
            SLIDING_LOG => SlidingLog::decode(from)?.into_shape(),
            LOG_DELTA => {
                log = Some(LogDelta::decode(from)?);
                Shape::Unused
            }
            _ => return Err(Malformed::Corrupt),
        };
        Ok(Encoded {
            block,
            log,
            limiter,
        })
    }
}

/// The first byte of an encoded shape: which of them follows.
const BUCKET: u8 = 0;
const FIXED_WINDOW: u8 = 1;
const SLIDING_WINDOW: u8 = 2;
const SLIDING_LOG: u8 = 3;
const BLOCKED: u8 = 4;
const UNUSED: u8 = 5;
/// In effects only.
const LOG_DELTA: u8 = 16;
