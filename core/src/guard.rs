//! The checking half of fencing: the highest token a resource has seen.

use crate::codec::{Blob, Malformed, Reader};
use crate::state::State;
use crate::{Micros, Millis, Token};

/// A fence guard. It refuses every token below the highest it has accepted, until it
/// expires and forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub token: Token,
    /// The last millisecond in which the guard still remembers.
    pub until: Millis,
}

/// What a guard says to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted; the guard as it stands afterwards, which may be as it was before.
    Accepted(Guard),
    Stale,
}

impl Guard {
    /// How long a guard remembers unless told otherwise: seven days, in ms.
    pub const DEFAULT_PX: u64 = 7 * 24 * 3600 * 1000;
    /// The longest it can be told to: a year, in ms.
    pub const MAX_PX: u64 = 31_536_000_000;

    /// Checks `token` against the stored guard, if any. The memory lasts `px` ms from
    /// here and is never shortened.
    pub fn check(stored: Option<&Guard>, token: Token, px: u64, now: Micros) -> Verdict {
        let now = now.floor_ms();
        let asked = now.plus(px);
        match stored.filter(|guard| !guard.until.is_past(now)) {
            Some(guard) if token < guard.token => Verdict::Stale,
            Some(guard) => Verdict::Accepted(Guard {
                token,
                until: guard.until.max(asked),
            }),
            None => Verdict::Accepted(Guard {
                token,
                until: asked,
            }),
        }
    }
}

impl State for Guard {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        out.u64(self.token.get());
        out.u64(self.until.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Guard, Malformed> {
        Ok(Guard {
            token: from.token()?,
            until: from.instant()?,
        })
    }
}
