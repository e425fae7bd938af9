//! What an algorithm has to know, for everything else to be written once.

use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis};

/// What one algorithm keeps for a key.
///
/// `policy` is always the caller's, which may be another than the one that is stored, and
/// `reading` what [`Meter::read`] made of the state under it at that instant.
pub(super) trait Meter: Sized {
    type Policy;
    /// How much is used at an instant, under a policy.
    type Reading: Copy;

    /// As errors and RL.INFO call it.
    const NAME: &'static str;

    fn in_shape(shape: &Shape) -> Option<&Self>;
    fn in_shape_mut(shape: &mut Shape) -> Option<&mut Self>;
    fn into_shape(self) -> Shape;

    /// As good as new.
    fn unused(policy: &Self::Policy, now: Micros) -> Self;

    /// A clock that stepped back behind the state reads it as if it had been moved to now.
    fn read(&self, policy: &Self::Policy, now: Micros) -> Self::Reading;

    /// After how many µs a call of `cost` would be admitted; `None`: now. Of a cost above
    /// the limit, which never is: after how long the charge no longer matters to others.
    fn wait_us(
        &self,
        reading: Self::Reading,
        policy: &Self::Policy,
        cost: u64,
        now: Micros,
    ) -> Option<u128>;

    /// The largest cost that would be admitted now, and after how many µs that is the whole
    /// limit again.
    fn left(&self, reading: Self::Reading, policy: &Self::Policy, now: Micros) -> (u64, u128);

    /// Counts `cost`, whether it fits or not; what then is used. An error changes nothing.
    fn spend(
        &mut self,
        reading: Self::Reading,
        policy: &Self::Policy,
        cost: u64,
        now: Micros,
    ) -> Result<Self::Reading, Error>;

    /// Takes back up to `cost` of what was spent last; what then is used.
    fn refund(
        &mut self,
        reading: Self::Reading,
        policy: &Self::Policy,
        cost: u64,
        now: Micros,
    ) -> Self::Reading;

    /// Moves what lies ahead of the clock to now, and says whether anything did.
    fn rebase(&mut self, now: Micros) -> bool;

    /// Whether it was last used under this policy.
    fn is_under(&self, policy: &Self::Policy) -> bool;

    /// The last millisecond in which the state matters to a call under its own policy.
    fn matters_until(&self) -> Millis;

    /// Whether it is as good as new under its own policy.
    fn is_drained(&self, now: Micros) -> bool;

    /// What RL.INFO shows beside limit, remaining and reset_ms.
    fn facts(&self, now: Micros) -> Vec<(&'static str, u64)>;

    fn encode(&self, out: &mut Blob);
    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// How a meter is found in a shape that has a variant of its name.
macro_rules! in_shape {
    ($meter:ident) => {
        fn in_shape(shape: &Shape) -> Option<&$meter> {
            match shape {
                Shape::$meter(meter) => Some(meter),
                _ => None,
            }
        }

        fn in_shape_mut(shape: &mut Shape) -> Option<&mut $meter> {
            match shape {
                Shape::$meter(meter) => Some(meter),
                _ => None,
            }
        }
    };
}
pub(super) use in_shape;

/// The millisecond in which `us` from `from` are over. Saturates at what a TTL can be.
pub(super) fn ends_at(from: Micros, us: u128) -> Millis {
    let end_ms = (u128::from(from.0) + us).div_ceil(1000);
    Millis(u64::try_from(end_ms).map_or(Millis::BOUND - 1, |ms| ms.min(Millis::BOUND - 1)))
}
