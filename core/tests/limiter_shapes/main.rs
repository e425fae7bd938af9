//! The windows, logs and blocks as bytes: exactly these bytes, and nothing else is read.
//! (Buckets: `../limiter_codec.rs`.)

mod damage;
mod fields;
mod foreign;
mod format;

use sluice_core::limiter::{Algorithm, Change, LimiterEffect, Policy};
use sluice_core::{Limiter, Malformed, Micros, State};

const CLOCK: Micros = Micros(0x0011_5253_5455_5657);

/// `literal` may have spaces between the fields.
fn unhex(literal: &str) -> Vec<u8> {
    let digits: Vec<u8> = literal.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn policy(algorithm: Algorithm, numbers: &[u64]) -> Policy {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    algorithm.policy(&texts, 1_000_000).unwrap()
}

/// Calls with these costs at these instants, all of which are admitted.
fn called(policy: &Policy, calls: &[(u64, u64)]) -> Limiter {
    let mut stored: Option<Limiter> = None;
    for (at, cost) in calls {
        let (verdict, change) =
            Limiter::decide(stored.as_mut(), policy, *cost, Micros(*at)).unwrap();
        assert!(verdict.allowed);
        if let Change::New(limiter) = change {
            stored = Some(limiter);
        }
    }
    stored.unwrap()
}

fn blocked(mut limiter: Option<Limiter>, ms: u64, now: u64) -> Limiter {
    match Limiter::block(limiter.as_mut(), ms, Micros(now)) {
        (_, Change::New(limiter)) => limiter,
        _ => limiter.unwrap(),
    }
}

fn stored(body: &[u8]) -> Vec<u8> {
    [&[1], body].concat()
}

fn effect(body: &[u8]) -> Vec<u8> {
    [&[1], &CLOCK.0.to_le_bytes()[..], body].concat()
}

/// Reads `bytes` as a stored state. What is accepted is written back as the same bytes, and
/// fit for use.
fn read_stored(bytes: &[u8]) -> Result<(), Malformed> {
    let state = Limiter::from_stored(bytes)?;
    assert_eq!(state.to_stored().as_bytes(), bytes);
    use_it(&state);
    Ok(())
}

/// The same as an effect, on a key that is not there.
fn read_effect(bytes: &[u8]) -> Result<(), Malformed> {
    let (effect, now) = LimiterEffect::decode(bytes)?;
    let state = Limiter::apply(None, effect.clone()).unwrap();
    // A log that has just been made has one entry only, so that this is the same delta
    // but for what it is to stand behind.
    let written = state.to_effect(now);
    if let LimiterEffect::Whole(_) = &effect {
        let rebuilt = state.rebuild(now);
        assert_eq!(rebuilt.as_bytes(), bytes);
    } else {
        assert_eq!(written.as_bytes().len(), bytes.len());
    }
    use_it(&state);
    Ok(())
}

/// Every command on what a client brought in with RESTORE: none may overflow.
fn use_it(state: &Limiter) {
    let most = 1_000_000_000;
    let year_ms = 31_536_000_000;
    let policies = [
        policy(Algorithm::Gcra, &[7, 7, 7]),
        policy(Algorithm::FixedWindow, &[most, year_ms]),
        policy(Algorithm::FixedWindow, &[1, 1])
            .aligned(b"7")
            .unwrap(),
        policy(Algorithm::SlidingWindow, &[most, year_ms]),
        policy(Algorithm::SlidingWindow, &[1, 1]),
        policy(Algorithm::SlidingLog, &[1_000_000, year_ms]),
        policy(Algorithm::SlidingLog, &[1, 1]),
    ];
    for now in [0, CLOCK.0, Micros::BOUND - 1].map(Micros) {
        for policy in state.policy().iter().chain(&policies) {
            for cost in [1, policy.limit()] {
                let _ = Limiter::peek(Some(state), policy, cost, now);
                let _ = Limiter::decide(Some(&mut state.clone()), policy, cost, now);
                let _ = Limiter::charge(Some(&mut state.clone()), policy, most, now);
                let _ = Limiter::refund(Some(&mut state.clone()), policy, cost, now);
                let _ = Limiter::refuse(Some(&mut state.clone()), policy, now);
            }
        }
        let _ = Limiter::block(Some(&mut state.clone()), 1, now);
        let _ = (
            state.blocked_us(now),
            state.is_drained(now),
            state.facts(now),
        );
        let _ = state.to_effect(now);
    }
    let _ = (
        state.matters_until(),
        state.algorithm(),
        state.heap_size(),
        state.entries(),
    );
}
