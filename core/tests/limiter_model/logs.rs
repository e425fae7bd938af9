//! SLIDINGLOG: the list of all calls.

use crate::rules::{window_bytes, Account, Numbers};

/// How many entries may leave with one that comes.
const MOST_PRUNED: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// What has left, in all: totals are counted from the first call on.
    left: u64,
    /// Instant and cost, in order; those of one instant together.
    calls: Vec<(u64, u64)>,
    numbers: Numbers,
}

impl Log {
    pub(crate) fn unused(numbers: &Numbers) -> Log {
        Log {
            left: 0,
            calls: Vec::new(),
            numbers: *numbers,
        }
    }

    /// A log with these calls, whose totals begin at `left`.
    pub(crate) fn of(numbers: &Numbers, left: u64, calls: Vec<(u64, u64)>) -> Log {
        Log {
            left,
            calls,
            numbers: *numbers,
        }
    }

    /// Whether a call at this instant has left the window that ends at `then`.
    fn has_left(numbers: &Numbers, at: u64, then: u128) -> bool {
        u128::from(at) + u128::from(numbers.length_us()) <= then
    }
}

impl Account for Log {
    fn fits(&self, numbers: &Numbers, cost: u64, then: u128) -> bool {
        let within = self
            .calls
            .iter()
            .filter(|(at, _)| !Log::has_left(numbers, *at, then));
        let spent: u64 = within.map(|(_, cost)| cost).sum();
        spent + cost <= numbers.limit
    }

    fn spend(&mut self, numbers: &Numbers, cost: u64, now: u64) -> Result<(), ()> {
        self.step_back(now);
        let over = |log: &Log| {
            let calls = log.calls.iter();
            calls
                .filter(|(at, _)| Log::has_left(numbers, *at, now.into()))
                .count()
        };
        let pruned = over(self).min(MOST_PRUNED);
        let is_full = (self.calls.len() - over(self)) as u64 >= numbers.most_entries;
        match self.calls.last_mut() {
            Some(last) if last.0 == now || is_full => *last = (now, last.1 + cost),
            _ => self.calls.push((now, cost)),
        }
        for (_, cost) in self.calls.drain(..pruned) {
            self.left = self.left.wrapping_add(cost);
        }
        self.numbers = *numbers;
        Ok(())
    }

    fn refund(&mut self, numbers: &Numbers, mut cost: u64, now: u64) {
        self.step_back(now);
        while let Some(last) = self.calls.last_mut() {
            if Log::has_left(numbers, last.0, now.into()) {
                break;
            }
            let here = cost.min(last.1);
            last.1 -= here;
            cost -= here;
            if last.1 > 0 {
                break;
            }
            self.calls.pop();
        }
        self.numbers = *numbers;
    }

    fn step_back(&mut self, now: u64) -> bool {
        let is_ahead = self.calls.iter().any(|(at, _)| *at > now);
        let mut together: Vec<(u64, u64)> = Vec::new();
        for (at, cost) in self.calls.drain(..) {
            let at = at.min(now);
            match together.last_mut() {
                Some(last) if last.0 == at => last.1 += cost,
                _ => together.push((at, cost)),
            }
        }
        self.calls = together;
        is_ahead
    }

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Shape, limit, window, base, how many, and of each its instant and the total.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![3];
        bytes.extend(window_bytes(&self.numbers));
        bytes.extend(self.left.to_le_bytes());
        bytes.extend((self.calls.len() as u32).to_le_bytes());
        let mut total = self.left;
        for (at, cost) in &self.calls {
            total = total.wrapping_add(*cost);
            bytes.extend(at.to_le_bytes());
            bytes.extend(total.to_le_bytes());
        }
        bytes
    }
}
