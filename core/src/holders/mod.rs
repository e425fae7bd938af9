//! Those who hold a key together, each with its own lease and token: the readers of a lock,
//! the holders of a semaphore.

mod trees;

use crate::codec::{Blob, Malformed, Reader};
use crate::{Micros, Millis, Token};
use trees::Trees;

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

/// Holders that were removed because their leases were over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned<H> {
    pub holds: Vec<H>,
    /// Of many only those whose leases ended before this; `None`: all that were over.
    pub(crate) before: Option<Millis>,
}

impl<H> Pruned<H> {
    pub(crate) fn nobody() -> Pruned<H> {
        Pruned {
            holds: Vec::new(),
            before: None,
        }
    }

    /// The clock of an effect by which a replica removes the same ones.
    pub(crate) fn clock(&self, now: Micros) -> Micros {
        self.before.map_or(now, |before| Micros(before.0 * 1000))
    }
}

/// Holders by token, and so in the order of their grants. Every step is O(log n).
///
/// One whose lease is over stays until a write prunes it: reads merely hide it, so that a
/// replica, which prunes by the same effects, always stores the same.
#[derive(Clone, Debug)]
pub struct Holders<H>(Repr<H>);

/// One or two holders are what most keys have, and to look at a few dozen costs no more than
/// to descend three trees, which take two kilobytes for the first.
#[derive(Clone, Debug)]
enum Repr<H> {
    /// At most [`FEW`], in the order of their tokens.
    Few(Vec<H>),
    Many(Box<Trees<H>>),
}

const FEW: usize = 32;
/// Below this many become few again: half, lest a number that hovers about the limit moves
/// them to and fro.
const FEW_AGAIN: usize = FEW / 2;

impl<H> Default for Holders<H> {
    fn default() -> Self {
        Holders(Repr::Few(Vec::new()))
    }
}

impl<H: Held> PartialEq for Holders<H> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<H: Held + Eq> Eq for Holders<H> {}

impl<H: Held> Holders<H> {
    /// Adds a holder, or replaces the one of the same owner.
    pub(crate) fn put(&mut self, hold: H) {
        if let Some(token) = self.token_of(hold.owner()) {
            self.remove(token);
        }
        self.remove(hold.token());
        match &mut self.0 {
            Repr::Few(holds) if holds.len() == FEW => {
                let mut trees = Trees::of(holds.drain(..));
                trees.insert(hold);
                self.0 = Repr::Many(Box::new(trees));
            }
            Repr::Few(holds) => {
                // By half, from one on: a vector grows to four by itself.
                if holds.len() == holds.capacity() {
                    holds.reserve_exact((holds.len() / 2).max(1));
                }
                let at = holds.partition_point(|other| other.token() < hold.token());
                holds.insert(at, hold);
            }
            Repr::Many(trees) => trees.insert(hold),
        }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<H> {
        match &mut self.0 {
            Repr::Few(holds) => {
                let at = position(holds, token)?;
                Some(holds.remove(at))
            }
            Repr::Many(trees) => {
                let hold = trees.remove(token)?;
                if trees.holds.len() < FEW_AGAIN {
                    let holds = std::mem::take(&mut trees.holds);
                    self.0 = Repr::Few(holds.into_values().collect());
                }
                Some(hold)
            }
        }
    }

    /// Removes holders whose leases are over, as [`Holders::over`] tells.
    pub(crate) fn prune(&mut self, now: Millis) -> Pruned<H> {
        let (over, before) = self.over(now);
        let holds = over.into_iter().filter_map(|token| self.remove(token));
        Pruned {
            holds: holds.collect(),
            before,
        }
    }

    /// The holders whose leases are over: all, or of many those that ended first, so that no
    /// step is a long one; then also the instant before which they ended.
    pub(crate) fn over(&self, now: Millis) -> (Vec<Token>, Option<Millis>) {
        match &self.0 {
            Repr::Few(holds) => {
                let over = holds.iter().filter(|hold| hold.deadline().is_past(now));
                (over.map(H::token).collect(), None)
            }
            Repr::Many(trees) => trees.over(now),
        }
    }

    /// Those whose deadline is `from` or later, and before `to`.
    pub(crate) fn ending(&self, from: Millis, to: Millis) -> impl Iterator<Item = &H> {
        let ends = move |hold: &&H| from <= hold.deadline() && hold.deadline() < to;
        let many = self.many().into_iter();
        self.few()
            .iter()
            .filter(ends)
            .chain(many.flat_map(move |trees| trees.ending(from, to)))
    }

    /// The earliest deadline that is `now` or later.
    pub(crate) fn first_end_from(&self, now: Millis) -> Option<Millis> {
        match &self.0 {
            Repr::Few(holds) => holds
                .iter()
                .map(H::deadline)
                .filter(|end| *end >= now)
                .min(),
            Repr::Many(trees) => trees.first_end_from(now),
        }
    }

    /// The live hold of `owner`.
    pub(crate) fn of(&self, owner: &[u8], now: Millis) -> Option<&H> {
        let hold = self.by_owner(owner)?;
        (!hold.deadline().is_past(now)).then_some(hold)
    }

    pub(crate) fn token_of(&self, owner: &[u8]) -> Option<Token> {
        self.by_owner(owner).map(H::token)
    }

    fn by_owner(&self, owner: &[u8]) -> Option<&H> {
        match &self.0 {
            Repr::Few(holds) => holds.iter().find(|hold| hold.owner() == owner),
            Repr::Many(trees) => trees.by_owner(owner),
        }
    }

    pub(crate) fn get(&self, token: Token) -> Option<&H> {
        match &self.0 {
            Repr::Few(holds) => position(holds, token).map(|at| &holds[at]),
            Repr::Many(trees) => trees.holds.get(&token),
        }
    }

    /// Changes a hold, but neither its token nor its owner.
    pub(crate) fn change<R>(&mut self, token: Token, f: impl FnOnce(&mut H) -> R) -> Option<R> {
        match &mut self.0 {
            Repr::Few(holds) => position(holds, token).map(|at| f(&mut holds[at])),
            Repr::Many(trees) => trees.change(token, f),
        }
    }

    /// Whether no other than the holder with this token lives.
    pub(crate) fn is_alone(&self, token: Token, now: Millis) -> bool {
        match &self.0 {
            Repr::Few(holds) => holds
                .iter()
                .all(|hold| hold.token() == token || hold.deadline().is_past(now)),
            Repr::Many(trees) => trees.is_alone(token, now),
        }
    }

    /// The latest deadline: when the last lease ends.
    pub(crate) fn deadline(&self) -> Millis {
        let last = match &self.0 {
            Repr::Few(holds) => holds.iter().map(H::deadline).max(),
            Repr::Many(trees) => trees.last_end(),
        };
        last.unwrap_or(Millis(0))
    }

    pub(crate) fn last_token(&self) -> Option<Token> {
        match &self.0 {
            Repr::Few(holds) => holds.last().map(H::token),
            Repr::Many(trees) => trees.holds.keys().next_back().copied(),
        }
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Few(holds) => holds.len(),
            Repr::Many(trees) => trees.holds.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that are stored, live or over, in the order of their grants.
    pub fn iter(&self) -> impl Iterator<Item = &H> {
        let many = self.many().into_iter();
        self.few()
            .iter()
            .chain(many.flat_map(|trees| trees.holds.values()))
    }

    fn few(&self) -> &[H] {
        match &self.0 {
            Repr::Few(holds) => holds,
            Repr::Many(_) => &[],
        }
    }

    fn many(&self) -> Option<&Trees<H>> {
        match &self.0 {
            Repr::Few(_) => None,
            Repr::Many(trees) => Some(trees),
        }
    }

    /// Roughly the bytes that all take, but what lies in allocations of their own.
    pub(crate) fn heap_size(&self) -> usize {
        match &self.0 {
            Repr::Few(holds) => holds.capacity() * size_of::<H>(),
            Repr::Many(trees) => trees.size(),
        }
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

fn position<H: Held>(holds: &[H], token: Token) -> Option<usize> {
    holds.binary_search_by_key(&token, H::token).ok()
}
