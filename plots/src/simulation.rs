//! What a limiter makes of a load, asked as the server asks it.

use crate::load::SECOND;
use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros};
use std::collections::BTreeMap;
use std::error::Error;

/// Every limiter here admits this many per window, or drains as many in that time.
pub(crate) const LIMIT: i64 = 20;
pub(crate) const WINDOW: i64 = 10 * SECOND;

/// A plot's start on the limiter's clock: a multiple of the window, at which ALIGN 0 starts one.
const START: i64 = 1_700_000_000 * SECOND;

/// An admitted request.
#[derive(Clone, Copy)]
pub(crate) struct Admitted {
    pub(crate) at: i64,
    /// When it goes out: later than it came where the limiter says how long to hold it.
    pub(crate) out: i64,
}

/// The numbers of the policy, as a call has them.
pub(crate) fn numbers(algorithm: Algorithm) -> Vec<String> {
    let value = |name: &&str| match *name {
        "period_ms" | "window_ms" => (WINDOW / 1000).to_string(),
        _ => LIMIT.to_string(),
    };
    algorithm.parameters().iter().map(value).collect()
}

pub(crate) fn policy(algorithm: Algorithm) -> Result<Policy, Box<dyn Error>> {
    let numbers = numbers(algorithm);
    let numbers: Vec<&[u8]> = numbers.iter().map(|number| number.as_bytes()).collect();
    algorithm
        .policy(&numbers, LIMIT as u32)
        .map_err(|error| format!("{}: {error:?}", algorithm.name()).into())
}

pub(crate) fn admitted(policy: &Policy, load: &[i64]) -> Result<Vec<Admitted>, Box<dyn Error>> {
    let mut stored: Option<Limiter> = None;
    let mut admitted = Vec::new();
    for &at in load {
        let now = Micros((START + at) as u64);
        let (verdict, change) = Limiter::decide(stored.as_mut(), policy, 1, now)
            .map_err(|error| format!("{error:?}"))?;
        match change {
            Change::New(limiter) => stored = Some(limiter),
            Change::Gone => stored = None,
            Change::None { .. } | Change::Changed { .. } => {}
        }
        if verdict.allowed {
            let out = at + verdict.wait_us as i64;
            admitted.push(Admitted { at, out });
        }
    }
    Ok(admitted)
}

/// How many of these instants lie within the window that ends now, whenever that changes.
pub(crate) fn in_last_window(instants: impl Iterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut changes = BTreeMap::new();
    for at in instants {
        *changes.entry(at).or_insert(0) += 1;
        *changes.entry(at + WINDOW).or_insert(0) -= 1;
    }
    let mut count = 0;
    let counted = changes.into_iter().map(|(at, change)| {
        count += change;
        (at, count)
    });
    counted.collect()
}
