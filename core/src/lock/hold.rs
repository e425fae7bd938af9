//! One owner's hold on a lock.

use crate::codec::{Blob, Malformed, Reader};
use crate::holders::Held;
use crate::{Identity, Micros, Millis, Token};

/// One owner's hold: its lease, its fencing token, and how often it entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub token: Token,
    /// The last millisecond in which this hold lives.
    pub deadline: Millis,
    /// When it was first granted.
    pub granted: Millis,
    /// MAXHOLD: no command moves the deadline past this.
    pub max: Option<Millis>,
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
    pub is_shared: bool,
    pub is_reentrant: bool,
    pub maxhold_ms: Option<u64>,
}

impl<'a> Request<'a> {
    /// An exclusive one without options.
    pub fn exclusive(owner: &'a [u8], lease_ms: u64) -> Request<'a> {
        Request {
            owner,
            lease_ms,
            meta: b"",
            is_shared: false,
            is_reentrant: false,
            maxhold_ms: None,
        }
    }
}

impl Hold {
    /// A new hold. The lease counts from the floor of now in milliseconds, and ends with
    /// MAXHOLD at the latest.
    #[inline]
    pub(super) fn new(request: &Request<'_>, token: Token, now: Micros) -> Hold {
        let granted = now.floor_ms();
        let max = request.maxhold_ms.map(|ms| granted.plus(ms));
        let mut hold = Hold {
            token,
            deadline: granted,
            granted,
            max,
            holds: 1,
            holder: Identity::new(request.owner, request.meta),
        };
        hold.extend(request.lease_ms, granted);
        hold
    }

    pub fn is_over(&self, now: Millis) -> bool {
        self.deadline.is_past(now)
    }

    pub(super) fn is_of(&self, owner: &[u8], token: Option<Token>) -> bool {
        self.holder.owner() == owner && token.is_none_or(|token| token == self.token)
    }

    /// Moves the deadline to `lease_ms` from now, MAXHOLD permitting, unless it already lies
    /// behind that.
    #[inline]
    pub(super) fn extend(&mut self, lease_ms: u64, now: Millis) -> bool {
        let asked = now.plus(lease_ms);
        let asked = self.max.map_or(asked, |max| asked.min(max));
        let extended = asked > self.deadline;
        if extended {
            self.deadline = asked;
        }
        extended
    }

    /// The same owner asks again: an idempotent retry, or with REENTRANT one hold more. All
    /// other options stay those of the first grant. Says whether anything changed.
    pub(super) fn again(&mut self, request: &Request<'_>, now: Millis) -> bool {
        let extended = self.extend(request.lease_ms, now);
        if request.is_reentrant {
            self.holds = self.holds.saturating_add(1);
        }
        extended || request.is_reentrant
    }
}

impl Held for Hold {
    const MIN_LEN: usize = 4 * 8 + 4 + 2 * 2 + 1;
    const MOST: usize = u32::MAX as usize;

    fn token(&self) -> Token {
        self.token
    }

    fn deadline(&self) -> Millis {
        self.deadline
    }

    fn owner(&self) -> &[u8] {
        self.holder.owner()
    }

    #[inline]
    fn encode(&self, out: &mut Blob) {
        out.u64(self.token.get());
        out.u64(self.deadline.0);
        out.u64(self.granted.0);
        out.u64(self.max.map_or(NO_MAX, |max| max.0));
        out.u32(self.holds);
        self.holder.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Hold, Malformed> {
        let hold = Hold {
            token: from.token()?,
            deadline: from.instant()?,
            granted: from.instant()?,
            max: Some(from.instant()?).filter(|max| max.0 != NO_MAX),
            holds: from.u32()?,
            holder: Identity::decode(from)?,
        };
        // No command leaves a hold that ended before it began or after it had to, nor one
        // that nobody holds.
        let outlives_max = hold.max.is_some_and(|max| hold.deadline > max);
        if hold.holds == 0 || hold.granted > hold.deadline || outlives_max {
            return Err(Malformed::Corrupt);
        }
        Ok(hold)
    }
}

/// MAXHOLD is at least 1 ms after a grant, so that 0 is free to say that there is none.
const NO_MAX: u64 = 0;
