//! The windows and the log on a real server beside a model that keeps every call and looks through
//! all of them: slow, and written from the definition alone.
//!
//! It finds waits and resets by trying instants instead of solving for them.

use crate::limiter_support::*;
use crate::support::*;

/// All that was spent, oldest first: when, and how much.
type Spent = Vec<(i64, i64)>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fixed,
    Sliding,
    Log,
}

#[derive(Clone)]
struct Model {
    kind: Kind,
    spent: Spent,
    /// When the current window began; of a log nothing.
    start: i64,
}

impl Model {
    /// What it is at this instant: windows that are over have gone, or become the one before.
    fn at(&self, now: i64, window: i64) -> Model {
        let mut model = self.clone();
        let is_new = model.spent.is_empty();
        match model.kind {
            Kind::Log => model.spent.retain(|(at, _)| *at > now - window),
            _ if is_new => model.start = now,
            Kind::Fixed => {
                if now >= model.start + window {
                    model.spent.clear();
                    model.start = now;
                }
            }
            Kind::Sliding => {
                while now >= model.start + window && !model.spent.is_empty() {
                    // What was before the window that is over is forgotten.
                    let start = model.start;
                    model.spent.retain(|(at, _)| *at >= start);
                    model.start += window;
                }
                if model.spent.is_empty() {
                    model.start = now;
                }
            }
        }
        model
    }

    /// What counts now, in parts of which `window` make one call.
    fn used(&self, now: i64, window: i64) -> i128 {
        let parts = |cost: i64, weight: i64| i128::from(cost) * i128::from(weight);
        let of_one = |&(at, cost): &(i64, i64)| match self.kind {
            Kind::Sliding if at < self.start => parts(cost, window - (now - self.start)),
            _ => parts(cost, window),
        };
        self.spent.iter().map(of_one).sum()
    }

    fn fits(&self, cost: i64, limit: i64, now: i64, window: i64) -> bool {
        let model = self.at(now, window);
        let of = |calls: i64| i128::from(calls) * i128::from(window);
        model.used(now, window) + of(cost) <= of(limit)
    }

    /// The first µs from now on at which `holds`, which then holds for good, found by halves.
    fn first(&self, window: i64, holds: impl Fn(i64) -> bool) -> i64 {
        let (mut no, mut yes) = (-1, 2 * window);
        assert!(holds(yes), "nothing takes longer than two windows");
        while yes - no > 1 {
            let middle = (no + yes) / 2;
            match holds(middle) {
                true => yes = middle,
                false => no = middle,
            }
        }
        yes
    }

    /// The reply to a call that is counted if it `spends`.
    fn call(&mut self, cost: i64, policy: (i64, i64), now: i64, spends: Spends) -> [i64; 5] {
        let (limit, window) = policy;
        let mut model = self.at(now, window);
        let fits = model.fits(cost, limit, now, window);
        let waits = model.clone();
        if spends == Spends::Always || (spends == Spends::IfItFits && fits) {
            model.spent.push((now, cost));
            *self = model.clone();
        }
        // The largest cost that fits, by trying them all.
        let remaining = (1..=limit)
            .take_while(|cost| model.fits(*cost, limit, now, window))
            .count();
        let is_unused = |us| model.at(now + us, window).spent.is_empty();
        let reset_us = model.first(window, is_unused);
        let wait_us = match (fits, cost > limit) {
            (true, _) => 0,
            // Never: when the charge is forgotten.
            (false, true) => reset_us,
            (false, false) => waits.first(window, |us| waits.fits(cost, limit, now + us, window)),
        };
        [
            i64::from(fits),
            limit,
            remaining as i64,
            (wait_us + 999) / 1000,
            (reset_us + 999) / 1000,
        ]
    }

    fn refund(&mut self, cost: i64, policy: (i64, i64), now: i64) -> [i64; 5] {
        let mut model = self.at(now, policy.1);
        let mut left = cost;
        while let Some((at, spent)) = model.spent.pop() {
            if spent > left {
                model.spent.push((at, spent - left));
                break;
            }
            left -= spent;
        }
        *self = model.clone();
        let mut five = model.call(1, policy, now, Spends::Never);
        (five[0], five[3]) = (1, 0);
        five
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Spends {
    Never,
    IfItFits,
    Always,
}

fn compare(kind: Kind, algorithm: &str, seed: u64) {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(seed);
    let mut outcomes = [0; 3];
    for policy in [
        (5i64, 1000i64),
        (1, 1),
        (12, 77),
        (30, 60_011),
        (7, 3_600_000),
    ] {
        let (limit, window_ms) = policy;
        let window = window_ms * 1000;
        cmd!(c, "DEL", "k");
        let mut model = Model {
            kind,
            spent: vec![],
            start: 0,
        };
        for n in 0..250 {
            let gap = match random.below(10) {
                0..3 => 0,
                3 => 1,
                4..7 => random.below((window / limit) as u64 + 1) as i64,
                7 => random.below(window as u64) as i64,
                // To the µs at which a window ends that began now.
                8 => window - 1 + random.below(3) as i64,
                _ => random.below(2 * window as u64 + 2) as i64,
            };
            server.clock().advance_us(gap);
            let now = server.clock().now_us();
            let cost = 1 + random.below(limit as u64) as i64;
            let any_cost = 1 + random.below(2 * limit as u64) as i64;
            let of = (limit, window);
            let with = |command: &str, cost: i64| {
                format!("RL.{command} k {algorithm} {limit} {window_ms} COST {cost}")
            };
            let (line, expected) = match random.below(10) {
                0 => (
                    with("CHARGE", any_cost),
                    model.call(any_cost, of, now, Spends::Always),
                ),
                1 => (with("REFUND", any_cost), model.refund(any_cost, of, now)),
                2..4 => (with("PEEK", cost), model.call(cost, of, now, Spends::Never)),
                _ => (
                    format!("RL.{algorithm} k {limit} {window_ms} COST {cost}"),
                    model.call(cost, of, now, Spends::IfItFits),
                ),
            };
            let reply = c.cmd(&words(&line));
            assert_eq!(reply, five(expected), "{seed}, {n} at {now}: {line}");
            outcomes[match expected {
                [1, ..] => 0,
                [_, _, 0, ..] => 1,
                _ => 2,
            }] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 30), "{outcomes:?}");
}

#[test]
fn a_fixed_window_is_what_its_definition_says() {
    compare(Kind::Fixed, "FIXEDWINDOW", 1);
    compare(Kind::Fixed, "FIXEDWINDOW", 2);
}

#[test]
fn a_sliding_window_is_what_its_definition_says() {
    compare(Kind::Sliding, "SLIDINGWINDOW", 3);
    compare(Kind::Sliding, "SLIDINGWINDOW", 4);
}

#[test]
fn a_log_is_what_its_definition_says() {
    compare(Kind::Log, "SLIDINGLOG", 5);
    compare(Kind::Log, "SLIDINGLOG", 6);
}
