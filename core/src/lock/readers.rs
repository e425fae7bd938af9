//! The readers of a shared lock, each with its own lease and token.

use super::Hold;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Millis, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Readers by token, and so in the order of their grants. Every step is O(log n).
///
/// A reader whose lease is over stays until a write prunes it: reads merely hide it, so that
/// a replica, which prunes by the same effects, always stores the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    holds: BTreeMap<Token, Hold>,
    owners: BTreeMap<Box<[u8]>, Token>,
    ends: BTreeSet<(Millis, Token)>,
}

impl Readers {
    /// Adds a reader, or replaces the one of the same owner.
    pub(super) fn put(&mut self, hold: Hold) {
        if let Some(token) = self.owners.get(hold.holder.owner()) {
            let token = *token;
            self.remove(token);
        }
        self.remove(hold.token);
        self.owners.insert(hold.holder.owner().into(), hold.token);
        self.ends.insert((hold.deadline, hold.token));
        self.holds.insert(hold.token, hold);
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Hold> {
        let hold = self.holds.remove(&token)?;
        self.owners.remove(hold.holder.owner());
        self.ends.remove(&(hold.deadline, token));
        Some(hold)
    }

    /// Removes the readers whose leases are over, and says how many.
    pub(super) fn prune(&mut self, now: Millis) -> u64 {
        let mut pruned = 0;
        while let Some((end, token)) = self.ends.first().copied() {
            if !end.is_past(now) {
                break;
            }
            self.remove(token);
            pruned += 1;
        }
        pruned
    }

    /// The live hold of `owner`.
    pub(super) fn of(&self, owner: &[u8], now: Millis) -> Option<&Hold> {
        let token = self.owners.get(owner)?;
        self.holds.get(token).filter(|hold| !hold.is_over(now))
    }

    pub(super) fn token_of(&self, owner: &[u8]) -> Option<Token> {
        self.owners.get(owner).copied()
    }

    pub(super) fn get(&self, token: Token) -> Option<&Hold> {
        self.holds.get(&token)
    }

    /// Changes a reader's hold, keeping the order of ends.
    pub(super) fn change<R>(&mut self, token: Token, f: impl FnOnce(&mut Hold) -> R) -> Option<R> {
        let hold = self.holds.get_mut(&token)?;
        let before = hold.deadline;
        let result = f(hold);
        let after = hold.deadline;
        if before != after {
            self.ends.remove(&(before, token));
            self.ends.insert((after, token));
        }
        Some(result)
    }

    /// Whether the reader with this token is the only live one.
    pub(super) fn is_alone(&self, token: Token, now: Millis) -> bool {
        let live = self
            .ends
            .iter()
            .rev()
            .take_while(|(end, _)| !end.is_past(now));
        live.take(2).all(|(_, other)| *other == token)
    }

    /// The latest deadline: when the last reader's lease ends.
    pub(super) fn deadline(&self) -> Millis {
        self.ends.last().map_or(Millis(0), |(end, _)| *end)
    }

    pub(super) fn last_token(&self) -> Option<Token> {
        self.holds.keys().next_back().copied()
    }

    pub fn len(&self) -> usize {
        self.holds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// All readers that are stored, live or over, in the order of their grants.
    pub fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values()
    }

    pub(super) fn encode(&self, out: &mut Blob) {
        out.u32(self.len() as u32);
        for hold in self.iter() {
            hold.encode(out);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Readers, Malformed> {
        let count = from.u32()? as usize;
        if count == 0 || count > from.len() / Hold::MIN_LEN {
            return Err(Malformed::Corrupt);
        }
        let mut readers = Readers::default();
        for _ in 0..count {
            let hold = Hold::decode(from)?;
            // In the order of tokens, and one for each owner.
            let in_order = readers.last_token().is_none_or(|last| last < hold.token);
            if !in_order || readers.owners.contains_key(hold.holder.owner()) {
                return Err(Malformed::Corrupt);
            }
            readers.put(hold);
        }
        Ok(readers)
    }
}
