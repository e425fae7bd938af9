//! Those who hold a key together, each with its own lease and token: the readers of a lock,
//! the holders of a semaphore.

use crate::codec::{Blob, Malformed, Reader};
use crate::{Millis, Token};
use std::collections::{BTreeMap, BTreeSet};

/// What one of several holders has.
pub trait Held: Clone + PartialEq {
    /// The fewest bytes that one takes: a count is checked against it before anything is
    /// allocated.
    const MIN_LEN: usize;
    /// How many may hold one key together.
    const MOST: usize;

    fn token(&self) -> Token;
    fn deadline(&self) -> Millis;
    fn owner(&self) -> &[u8];
    fn encode(&self, out: &mut Blob);
    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Holders by token, and so in the order of their grants. Every step is O(log n).
///
/// One whose lease is over stays until a write prunes it: reads merely hide it, so that a
/// replica, which prunes by the same effects, always stores the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders<H> {
    holds: BTreeMap<Token, H>,
    owners: BTreeMap<Box<[u8]>, Token>,
    ends: BTreeSet<(Millis, Token)>,
}

impl<H> Default for Holders<H> {
    fn default() -> Self {
        Holders {
            holds: BTreeMap::new(),
            owners: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }
}

impl<H: Held> Holders<H> {
    /// Adds a holder, or replaces the one of the same owner.
    pub(crate) fn put(&mut self, hold: H) {
        if let Some(token) = self.token_of(hold.owner()) {
            self.remove(token);
        }
        self.remove(hold.token());
        self.owners.insert(hold.owner().into(), hold.token());
        self.ends.insert((hold.deadline(), hold.token()));
        self.holds.insert(hold.token(), hold);
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<H> {
        let hold = self.holds.remove(&token)?;
        self.owners.remove(hold.owner());
        self.ends.remove(&(hold.deadline(), token));
        Some(hold)
    }

    /// Removes the holders whose leases are over, and says how many.
    pub(crate) fn prune(&mut self, now: Millis) -> u64 {
        let mut pruned = 0;
        while let Some(token) = self.first_over(now) {
            self.remove(token);
            pruned += 1;
        }
        pruned
    }

    /// The one whose lease ended first, if it is over.
    pub(crate) fn first_over(&self, now: Millis) -> Option<Token> {
        let (end, token) = *self.ends.first()?;
        end.is_past(now).then_some(token)
    }

    /// The live hold of `owner`.
    pub(crate) fn of(&self, owner: &[u8], now: Millis) -> Option<&H> {
        let token = self.owners.get(owner)?;
        let hold = self.holds.get(token)?;
        (!hold.deadline().is_past(now)).then_some(hold)
    }

    pub(crate) fn token_of(&self, owner: &[u8]) -> Option<Token> {
        self.owners.get(owner).copied()
    }

    pub(crate) fn get(&self, token: Token) -> Option<&H> {
        self.holds.get(&token)
    }

    /// Changes a hold, keeping the order of ends.
    pub(crate) fn change<R>(&mut self, token: Token, f: impl FnOnce(&mut H) -> R) -> Option<R> {
        let hold = self.holds.get_mut(&token)?;
        let before = hold.deadline();
        let result = f(hold);
        let after = hold.deadline();
        if before != after {
            self.ends.remove(&(before, token));
            self.ends.insert((after, token));
        }
        Some(result)
    }

    /// Whether the holder with this token is the only live one.
    pub(crate) fn is_alone(&self, token: Token, now: Millis) -> bool {
        let live = self
            .ends
            .iter()
            .rev()
            .take_while(|(end, _)| !end.is_past(now));
        live.take(2).all(|(_, other)| *other == token)
    }

    /// The latest deadline: when the last lease ends.
    pub(crate) fn deadline(&self) -> Millis {
        self.ends.last().map_or(Millis(0), |(end, _)| *end)
    }

    pub(crate) fn last_token(&self) -> Option<Token> {
        self.holds.keys().next_back().copied()
    }

    pub fn len(&self) -> usize {
        self.holds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// All that are stored, live or over, in the order of their grants.
    pub fn iter(&self) -> impl Iterator<Item = &H> {
        self.holds.values()
    }

    pub(crate) fn encode(&self, out: &mut Blob) {
        out.u32(self.len() as u32);
        for hold in self.iter() {
            hold.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Holders<H>, Malformed> {
        let count = from.u32()? as usize;
        if count == 0 || count > H::MOST.min(from.len() / H::MIN_LEN) {
            return Err(Malformed::Corrupt);
        }
        let mut holders = Holders::default();
        for _ in 0..count {
            let hold = H::decode(from)?;
            // In the order of tokens, and one for each owner.
            let in_order = holders.last_token().is_none_or(|last| last < hold.token());
            if !in_order || holders.token_of(hold.owner()).is_some() {
                return Err(Malformed::Corrupt);
            }
            holders.put(hold);
        }
        Ok(holders)
    }
}
