//! What is stored, and what is propagated.
//!
//! A stored state (RDB, DUMP) is a version byte and the state. An effect is what a command
//! did, as absolute state, for replicas and the append-only file: version byte, the
//! primary's clock, state. A command is never propagated as the client sent it, because
//! what it does depends on when it runs; its effect gives the same result however late and
//! however often it is applied.

use crate::codec::{Blob, Malformed, Reader};
use crate::Micros;

/// State that can be stored and propagated.
pub trait State: Sized {
    /// The version this build writes, and the newest it reads.
    const VERSION: u8;

    fn encode(&self, out: &mut Blob);
    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed>;

    fn to_stored(&self) -> Blob {
        let mut out = Blob::new();
        out.u8(Self::VERSION);
        self.encode(&mut out);
        out
    }

    fn from_stored(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Self::VERSION)?;
        let state = Self::decode(&mut from)?;
        from.finish()?;
        Ok(state)
    }

    fn to_effect(&self, now: Micros) -> Blob {
        let mut out = Blob::new();
        out.u8(Self::VERSION);
        out.u64(now.0);
        self.encode(&mut out);
        out
    }

    /// The state and the clock of the primary that wrote it.
    fn from_effect(bytes: &[u8]) -> Result<(Self, Micros), Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Self::VERSION)?;
        let now = from.clock()?;
        let state = Self::decode(&mut from)?;
        from.finish()?;
        Ok((state, now))
    }
}
