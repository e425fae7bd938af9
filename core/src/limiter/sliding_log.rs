//! SLIDINGLOG: every call with its instant and cost. Exact over any window's length.
//!
//! An entry has the running total of costs up to it, so that what lies within the window is
//! a difference of two, found by halves. Entries leave when something is counted, a bounded
//! number at a time: a denial changes nothing, and no step touches them all.

use super::entries::{Entries, Entry};
use super::fixed_window::MAX_COUNT;
use super::meter::{ends_at, in_shape, Meter};
use super::policy::{LogPolicy, WindowPolicy};
use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// The total before the first entry.
    base: u64,
    /// Never empty while it is stored.
    entries: Entries,
    policy: WindowPolicy,
}

/// What lies within the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    /// The first entries, as many as lie before it.
    over: usize,
    /// The total before the first entry within.
    before: u64,
    cost: u64,
}

/// What changed in a log: behind the entry at `behind` there is only one more, `last`. And
/// all that stands at or below the total `base` is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDelta {
    policy: WindowPolicy,
    base: u64,
    behind: u64,
    last: Entry,
}

impl SlidingLog {
    /// How many entries may leave with one that comes.
    const MOST_PRUNED: usize = 256;

    pub(super) fn window(&self) -> WindowPolicy {
        self.policy
    }

    fn own_policy(&self) -> LogPolicy {
        LogPolicy {
            window: self.policy,
            most_entries: u32::MAX,
        }
    }

    fn total(&self) -> u64 {
        self.entries.last().map_or(self.base, |last| last.total)
    }

    /// The total before the entry with this index.
    fn total_before(&self, index: usize) -> u64 {
        let before = index.checked_sub(1).and_then(|i| self.entries.get(i));
        before.map_or(self.base, |entry| entry.total)
    }

    /// A total counted from the base, so that wrapping around does not matter.
    fn since_base(&self, total: u64) -> u64 {
        total.wrapping_sub(self.base)
    }

    /// Adds `cost` now, or, if `most` entries lie within the window, to the newest of them,
    /// which then counts from now on.
    fn add(&mut self, cost: u64, within: Within, most: usize, now: Micros) {
        // Counted up to the same bound as in windows.
        let cost = cost.min(MAX_COUNT - self.since_base(self.total()));
        let total = self.total().wrapping_add(cost);
        let joins = cost == 0 || self.entries.len() - within.over >= most;
        match self.entries.last_mut() {
            Some(last) if last.at == now.0 || joins => {
                *last = Entry { at: now.0, total };
            }
            _ => self.entries.push(Entry { at: now.0, total }),
        }
    }

    fn prune(&mut self, over: usize) {
        let count = over.min(SlidingLog::MOST_PRUNED);
        self.base = self.total_before(count);
        self.entries.drop_first(count);
    }

    fn us(&self) -> u64 {
        let policy = self.policy;
        policy.us()
    }

    pub(super) fn heap_size(&self) -> usize {
        size_of::<SlidingLog>() + self.entries.heap_size()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What happened last, for an effect.
    pub(super) fn delta(&self) -> Option<LogDelta> {
        let last = *self.entries.last()?;
        let behind = self.entries.len().checked_sub(2);
        let behind = behind.and_then(|i| self.entries.get(i));
        Some(LogDelta {
            policy: self.policy,
            base: self.base,
            behind: behind.map_or(0, |entry| entry.at),
            last,
        })
    }

    /// Changes this log as another has changed: the same again if that had been applied.
    pub(super) fn apply(&mut self, delta: &LogDelta) {
        self.policy = delta.policy;
        let spent = |entry: &Entry| entry.total.wrapping_sub(delta.base) as i64;
        // The last two only for a log that this is no change of, which must stay in order.
        let kept = self.entries.partition_point(|entry| {
            entry.at <= delta.behind
                && entry.at < delta.last.at
                && spent(entry) < spent(&delta.last)
        });
        self.entries.truncate(kept);
        let gone = self.entries.partition_point(|entry| spent(entry) <= 0);
        self.entries.drop_first(gone);
        self.base = delta.base;
        self.entries.push(delta.last);
    }
}

impl LogDelta {
    pub(super) fn into_log(self) -> SlidingLog {
        let mut log = SlidingLog {
            base: self.base,
            entries: Entries::default(),
            policy: self.policy,
        };
        log.entries.push(self.last);
        log
    }

    pub(super) fn encode(&self, out: &mut Blob) {
        self.policy.encode(out);
        out.u64(self.base);
        out.u64(self.behind);
        out.u64(self.last.at);
        out.u64(self.last.total);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<LogDelta, Malformed> {
        let delta = LogDelta {
            policy: WindowPolicy::decode(from)?,
            base: from.u64()?,
            behind: from.clock()?.0,
            last: Entry {
                at: from.clock()?.0,
                total: from.u64()?,
            },
        };
        let spent = delta.last.total.wrapping_sub(delta.base);
        if delta.behind >= delta.last.at.max(1) || !is_spent(spent) {
            return Err(Malformed::Corrupt);
        }
        Ok(delta)
    }
}

/// Whether a difference of totals is one that costs can make.
fn is_spent(difference: u64) -> bool {
    (1..=MAX_COUNT).contains(&difference)
}

impl Meter for SlidingLog {
    type Policy = LogPolicy;
    type Reading = Within;

    const NAME: &'static str = "SLIDINGLOG";

    in_shape!(SlidingLog);

    fn into_shape(self) -> Shape {
        Shape::SlidingLog(Box::new(self))
    }

    fn unused(policy: &LogPolicy, _: Micros) -> SlidingLog {
        SlidingLog {
            base: 0,
            entries: Entries::default(),
            policy: policy.window,
        }
    }

    /// Within the window is what is younger than its length, and what lies ahead of the
    /// clock.
    fn read(&self, policy: &LogPolicy, now: Micros) -> Within {
        let us = policy.window.us();
        let over = self
            .entries
            .partition_point(|entry| entry.at.saturating_add(us) <= now.0);
        let before = self.total_before(over);
        Within {
            over,
            before,
            cost: self.total().wrapping_sub(before),
        }
    }

    fn wait_us(&self, within: Within, policy: &LogPolicy, cost: u64, now: Micros) -> Option<u128> {
        let (limit, us) = (policy.window.limit(), policy.window.us());
        let excess = (within.cost + cost).checked_sub(limit + 1)? + 1;
        if cost > limit {
            return Some(u128::from(us));
        }
        // Enough has left when the first entry has with which the excess is reached.
        let leaving = self.entries.partition_point(|entry| {
            self.since_base(entry.total) < self.since_base(within.before) + excess
        });
        let at = self.entries.get(leaving).map_or(now.0, |entry| entry.at);
        Some(u128::from(at.min(now.0) + us - now.0))
    }

    fn left(&self, within: Within, policy: &LogPolicy, now: Micros) -> (u64, u128) {
        let remaining = policy.window.limit().saturating_sub(within.cost);
        let reset_us = match (within.cost, self.entries.last()) {
            (1.., Some(last)) => last.at.min(now.0) + policy.window.us() - now.0,
            _ => 0,
        };
        (remaining, u128::from(reset_us))
    }

    fn spend(
        &mut self,
        within: Within,
        policy: &LogPolicy,
        cost: u64,
        now: Micros,
    ) -> Result<Within, Error> {
        self.rebase(now);
        self.policy = policy.window;
        self.add(cost, within, policy.most_entries as usize, now);
        self.prune(within.over);
        Ok(self.read(policy, now))
    }

    fn refund(&mut self, within: Within, policy: &LogPolicy, cost: u64, now: Micros) -> Within {
        self.rebase(now);
        self.policy = policy.window;
        let total = self.total().wrapping_sub(cost.min(within.cost));
        // All entries before this one stay as they are, and it has what is left.
        let last = self
            .entries
            .partition_point(|entry| self.since_base(entry.total) < self.since_base(total));
        self.entries.truncate(last + 1);
        if let Some(last) = self.entries.last_mut() {
            last.total = total;
        }
        self.read(policy, now)
    }

    fn rebase(&mut self, now: Micros) -> bool {
        let kept = self.entries.partition_point(|entry| entry.at <= now.0);
        let is_ahead = kept < self.entries.len();
        if is_ahead {
            let total = self.total();
            self.entries.truncate(kept);
            match self.entries.last_mut() {
                Some(last) if last.at == now.0 => last.total = total,
                _ => self.entries.push(Entry { at: now.0, total }),
            }
        }
        is_ahead
    }

    fn is_under(&self, policy: &LogPolicy) -> bool {
        self.window() == policy.window
    }

    fn matters_until(&self) -> Millis {
        let last = self.entries.last().map_or(0, |last| last.at);
        ends_at(Micros(last), u128::from(self.us()))
    }

    fn is_drained(&self, now: Micros) -> bool {
        self.read(&self.own_policy(), now).cost == 0
    }

    fn facts(&self, now: Micros) -> Vec<(&'static str, u64)> {
        let within = self.read(&self.own_policy(), now);
        let entries = self.entries.len() - within.over;
        vec![
            ("window_ms", self.window().window_ms()),
            ("used", within.cost),
            ("entries", entries as u64),
        ]
    }

    fn encode(&self, out: &mut Blob) {
        self.window().encode(out);
        out.u64(self.base);
        out.u32(self.entries.len() as u32);
        for entry in self.entries.iter() {
            out.u64(entry.at);
            out.u64(entry.total);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<SlidingLog, Malformed> {
        let policy = WindowPolicy::decode(from)?;
        let base = from.u64()?;
        let count = from.u32()? as usize;
        if count == 0 || count > from.len() / size_of::<Entry>() {
            return Err(Malformed::Corrupt);
        }
        let mut log = SlidingLog {
            base,
            entries: Entries::default(),
            policy,
        };
        for _ in 0..count {
            let at = from.clock()?.0;
            let total = from.u64()?;
            let is_later = log.entries.last().is_none_or(|last| last.at < at);
            let spent = log.since_base(total);
            if !is_later || !is_spent(spent) || spent <= log.since_base(log.total()) {
                return Err(Malformed::Corrupt);
            }
            log.entries.push(Entry { at, total });
        }
        Ok(log)
    }
}
