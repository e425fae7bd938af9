//! Fencing tokens.

use crate::codec::{Blob, Malformed, Reader};
use crate::state::State;
use crate::{Error, Micros};

/// A fencing token: 1..=2^53 − 1, so that it is exact in a double (JavaScript, JSON) and
/// fits a signed 64-bit column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    pub(crate) const FIRST: Token = Token(1);
    pub const MAX: u64 = (1 << 53) - 1;

    /// How far above both the high-water mark and the clock a token in a client's RESTORE
    /// may lie. Without a cap one payload could push the counter to its end for good.
    pub const RESTORE_SLACK_US: u64 = 24 * 3600 * 1_000_000;

    /// `None` for 0 and for anything from 2^53 on: such a token was never issued.
    pub fn new(value: u64) -> Option<Token> {
        (1..=Token::MAX).contains(&value).then_some(Token(value))
    }

    pub fn get(self) -> u64 {
        self.0
    }

    /// The token of a new grant: `max(high_water + 1, now in µs)`.
    ///
    /// `high_water` is the highest token this data set is known to have seen (0 for none);
    /// the caller raises it to the result. The counter alone keeps tokens rising on one
    /// server whatever its clock does. Seeding it from the clock keeps them rising across a
    /// failover that lost the last writes, where a plain counter would repeat itself.
    pub fn next(high_water: u64, now: Micros) -> Result<Token, Error> {
        Token::new(now.0.max(high_water.saturating_add(1))).ok_or(Error::TokensExhausted)
    }

    /// Whether a client may bring this token in with RESTORE.
    pub fn is_restorable(self, high_water: u64, now: Micros) -> bool {
        self.0 <= high_water.max(now.0.saturating_add(Token::RESTORE_SLACK_US))
    }
}

/// As a state of its own: the high-water mark.
impl State for Token {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        out.u64(self.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Token, Malformed> {
        from.token()
    }
}
