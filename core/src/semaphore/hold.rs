//! One holder's permits, and what SEM.ACQUIRE asks for.

use super::Semaphore;
use crate::codec::{Blob, Malformed, Reader};
use crate::holders::Held;
use crate::{Error, Identity, Micros, Millis, Token};

/// One holder's permits: how many, its lease, its fencing token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub token: Token,
    /// The last millisecond in which these permits are held.
    pub deadline: Millis,
    pub granted: Millis,
    /// 1..=[`Semaphore::MAX_PERMITS`].
    pub permits: u32,
    pub holder: Identity,
}

/// What SEM.ACQUIRE asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub owner: &'a [u8],
    pub lease_ms: u64,
    pub meta: &'a [u8],
    /// Permits, and out of how many: both 1..=[`Semaphore::MAX_PERMITS`].
    pub permits: u32,
    pub limit: u32,
}

impl Request<'_> {
    /// More permits than there will ever be are an error, which no waiting mends.
    pub fn check(&self) -> Result<(), Error> {
        let Request { permits, limit, .. } = *self;
        if permits > limit {
            return Err(Error::PermitsAboveLimit { permits, limit });
        }
        Ok(())
    }
}

impl Hold {
    /// A new hold. The lease counts from the floor of now in milliseconds.
    pub(super) fn new(request: &Request<'_>, token: Token, now: Micros) -> Hold {
        let granted = now.floor_ms();
        Hold {
            token,
            deadline: granted.plus(request.lease_ms),
            granted,
            permits: request.permits,
            holder: Identity::new(request.owner, request.meta),
        }
    }

    pub fn is_over(&self, now: Millis) -> bool {
        self.deadline.is_past(now)
    }

    /// Moves the deadline to `lease_ms` from now, unless it already lies behind that.
    pub(super) fn extend(&mut self, lease_ms: u64, now: Millis) -> bool {
        let asked = now.plus(lease_ms);
        let extended = asked > self.deadline;
        if extended {
            self.deadline = asked;
        }
        extended
    }
}

impl Held for Hold {
    const MIN_LEN: usize = 3 * 8 + 4 + 2 * 2 + 1;
    const MOST: usize = Semaphore::MAX_HOLDERS;

    #[inline]
    fn token(&self) -> Token {
        self.token
    }

    #[inline]
    fn deadline(&self) -> Millis {
        self.deadline
    }

    fn owner(&self) -> &[u8] {
        self.holder.owner()
    }

    fn encode(&self, out: &mut Blob) {
        out.u64(self.token.get());
        out.u64(self.deadline.0);
        out.u64(self.granted.0);
        out.u32(self.permits);
        self.holder.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Hold, Malformed> {
        let hold = Hold {
            token: from.token()?,
            deadline: from.instant()?,
            granted: from.instant()?,
            permits: from.u32()?,
            holder: Identity::decode(from)?,
        };
        let is_possible = (1..=Semaphore::MAX_PERMITS).contains(&hold.permits);
        if !is_possible || hold.granted > hold.deadline {
            return Err(Malformed::Corrupt);
        }
        Ok(hold)
    }
}
