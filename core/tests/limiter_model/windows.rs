//! The window counters, as the costs of each window, one by one.

use crate::rules::{window_bytes, Account, Numbers};

fn sum(costs: &[u64]) -> u64 {
    costs.iter().sum()
}

/// Takes back from the last costs on; what is left to take.
fn take_back(costs: &mut Vec<u64>, mut cost: u64) -> u64 {
    while let Some(last) = costs.last_mut() {
        let here = cost.min(*last);
        *last -= here;
        cost -= here;
        if *last > 0 {
            break;
        }
        costs.pop();
    }
    cost
}

/// FIXEDWINDOW: only what was spent since the window began counts.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    start: u64,
    costs: Vec<u64>,
    numbers: Numbers,
}

/// Start and end of the window with this alignment that `then` lies in.
pub(crate) fn aligned(numbers: &Numbers, offset_ms: u64, then: u128) -> (i128, i128) {
    let (length, offset) = (
        i128::from(numbers.length_us()),
        i128::from(offset_ms) * 1000,
    );
    let number = (then as i128 - offset).div_euclid(length);
    (offset + number * length, offset + (number + 1) * length)
}

impl Fixed {
    pub(crate) fn unused(numbers: &Numbers, now: u64) -> Fixed {
        Fixed {
            start: now,
            costs: Vec::new(),
            numbers: numbers.stored(),
        }
    }

    fn is_over(&self, numbers: &Numbers, then: u128) -> bool {
        let start = i128::from(self.start).min(then as i128);
        match numbers.align_ms {
            Some(offset) => start < aligned(numbers, offset, then).0.max(0),
            None => then as i128 - start >= i128::from(numbers.length_us()),
        }
    }

    fn enter(&mut self, numbers: &Numbers, now: u64) {
        let is_over = self.is_over(numbers, now.into());
        if is_over {
            self.costs.clear();
        }
        self.start = match numbers.align_ms {
            // One before the epoch has begun with it.
            Some(offset) => aligned(numbers, offset, now.into()).0.max(0) as u64,
            None if is_over => now,
            None => self.start.min(now),
        };
        self.numbers = numbers.stored();
    }
}

impl Account for Fixed {
    fn fits(&self, numbers: &Numbers, cost: u64, then: u128) -> bool {
        self.is_over(numbers, then) || sum(&self.costs) + cost <= numbers.limit
    }

    fn spend(&mut self, numbers: &Numbers, cost: u64, now: u64) -> Result<(), ()> {
        self.enter(numbers, now);
        self.costs.push(cost);
        Ok(())
    }

    fn refund(&mut self, numbers: &Numbers, cost: u64, now: u64) {
        self.enter(numbers, now);
        take_back(&mut self.costs, cost);
    }

    fn step_back(&mut self, now: u64) -> bool {
        let is_ahead = self.start > now;
        self.start = self.start.min(now);
        is_ahead
    }

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Shape, start, count, limit, window.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![1];
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(sum(&self.costs).to_le_bytes());
        bytes.extend(window_bytes(&self.numbers));
        bytes
    }
}

/// SLIDINGWINDOW: what was spent in this window, and in the one before as far as that still
/// overlaps.
#[derive(Clone, Debug)]
pub(crate) struct Sliding {
    start: u64,
    current: Vec<u64>,
    previous: Vec<u64>,
    numbers: Numbers,
}

impl Sliding {
    pub(crate) fn unused(numbers: &Numbers, now: u64) -> Sliding {
        Sliding {
            start: now,
            current: Vec::new(),
            previous: Vec::new(),
            numbers: *numbers,
        }
    }

    /// Steps by the window's length while anything is left.
    fn at(&self, numbers: &Numbers, then: u128) -> Sliding {
        let mut window = self.clone();
        let mut start = u128::from(self.start).min(then);
        while then - start >= u128::from(numbers.length_us()) {
            window.previous = std::mem::take(&mut window.current);
            start += u128::from(numbers.length_us());
            if window.previous.is_empty() {
                start = then;
            }
        }
        window.start = u64::try_from(start).unwrap_or(u64::MAX);
        window
    }
}

impl Account for Sliding {
    fn fits(&self, numbers: &Numbers, cost: u64, then: u128) -> bool {
        let window = self.at(numbers, then);
        // All in parts of the window's length, of which a cost has as many as that has µs.
        let length = u128::from(numbers.length_us());
        let overlap = length.saturating_sub(then - u128::from(window.start));
        let previous = u128::from(sum(&window.previous)) * overlap;
        let current = u128::from(sum(&window.current) + cost) * length;
        previous + current <= u128::from(numbers.limit) * length
    }

    fn spend(&mut self, numbers: &Numbers, cost: u64, now: u64) -> Result<(), ()> {
        *self = self.at(numbers, now.into());
        self.current.push(cost);
        self.numbers = *numbers;
        Ok(())
    }

    fn refund(&mut self, numbers: &Numbers, cost: u64, now: u64) {
        *self = self.at(numbers, now.into());
        let left = take_back(&mut self.current, cost);
        take_back(&mut self.previous, left);
        self.numbers = *numbers;
    }

    fn step_back(&mut self, now: u64) -> bool {
        let is_ahead = self.start > now;
        self.start = self.start.min(now);
        is_ahead
    }

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Shape, start, current, previous, limit, window.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2];
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(sum(&self.current).to_le_bytes());
        bytes.extend(sum(&self.previous).to_le_bytes());
        bytes.extend(window_bytes(&self.numbers));
        bytes
    }
}
