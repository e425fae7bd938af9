//! Many holders: found by token, by owner and by deadline in O(log n).

use super::Held;
use crate::{Millis, Token};
use std::collections::{BTreeMap, BTreeSet};

/// How many lapsed holders leave in one step, but for those that lapsed in the same ms.
const MOST_PRUNED: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Trees<H> {
    pub(super) holds: BTreeMap<Token, H>,
    owners: BTreeMap<Box<[u8]>, Token>,
    ends: BTreeSet<(Millis, Token)>,
}

impl<H: Held> Trees<H> {
    /// Of holds with different tokens and owners.
    pub(super) fn of(holds: impl IntoIterator<Item = H>) -> Trees<H> {
        let mut trees = Trees {
            holds: BTreeMap::new(),
            owners: BTreeMap::new(),
            ends: BTreeSet::new(),
        };
        for hold in holds {
            trees.insert(hold);
        }
        trees
    }

    /// Neither its token nor its owner is there.
    pub(super) fn insert(&mut self, hold: H) {
        self.owners.insert(hold.owner().into(), hold.token());
        self.ends.insert((hold.deadline(), hold.token()));
        self.holds.insert(hold.token(), hold);
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<H> {
        let hold = self.holds.remove(&token)?;
        self.owners.remove(hold.owner());
        self.ends.remove(&(hold.deadline(), token));
        Some(hold)
    }

    pub(super) fn by_owner(&self, owner: &[u8]) -> Option<&H> {
        self.holds.get(self.owners.get(owner)?)
    }

    /// Changes a hold, keeping the order of ends.
    pub(super) fn change<R>(&mut self, token: Token, f: impl FnOnce(&mut H) -> R) -> Option<R> {
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

    /// Those whose deadline is `from` or later, and before `to`: the earliest first.
    pub(super) fn ending(&self, from: Millis, to: Millis) -> impl Iterator<Item = &H> {
        let range = self.ends.range((from, Token::FIRST)..(to, Token::FIRST));
        range.filter_map(|(_, token)| self.holds.get(token))
    }

    /// The earliest deadline that is `now` or later.
    pub(super) fn first_end_from(&self, now: Millis) -> Option<Millis> {
        let mut ends = self.ends.range((now, Token::FIRST)..);
        ends.next().map(|(end, _)| *end)
    }

    pub(super) fn over(&self, now: Millis) -> (Vec<Token>, Option<Millis>) {
        let mut over = Vec::new();
        let mut last = Millis(0);
        for (end, token) in self.ends.iter().take_while(|(end, _)| end.is_past(now)) {
            // All that ended in one millisecond go together.
            if over.len() >= MOST_PRUNED && *end > last {
                return (over, Some(last.plus(1)));
            }
            over.push(*token);
            last = *end;
        }
        (over, None)
    }

    pub(super) fn last_end(&self) -> Option<Millis> {
        self.ends.last().map(|(end, _)| *end)
    }

    /// Whether no other than the one with this token lives.
    pub(super) fn is_alone(&self, token: Token, now: Millis) -> bool {
        let latest = self.ends.iter().rev();
        let live = latest.take_while(|(end, _)| !end.is_past(now));
        live.take(2).all(|(_, other)| *other == token)
    }

    /// Roughly the bytes it takes.
    pub(super) fn size(&self) -> usize {
        // As measured at 10,000 readers of a lock, their owners aside: three trees whose
        // nodes are about two thirds full.
        const NODE: usize = 310;
        let owners = self.holds.values().map(|hold| hold.owner().len());
        self.holds.len() * NODE + owners.sum::<usize>()
    }
}
