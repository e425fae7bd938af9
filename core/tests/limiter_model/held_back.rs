//! Replicas of which each key's effects are held back for a while: what they hold admits
//! nothing that the primary would not.

use crate::key::{bytes_of, receive};
use crate::steps::NOW_US;
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros, State};

const WINDOW_MS: u64 = 1_000;
const WINDOW_US: u64 = WINDOW_MS * 1000;

#[derive(Clone, Debug)]
enum Act {
    Call(u64),
    Charge(u64),
    Refund(u64),
    Block,
}

struct Pair {
    policy: Policy,
    primary: Option<Limiter>,
    replica: Option<Limiter>,
    /// Of the changes that may be held back only every so many is sent.
    every: u64,
    held: u64,
    now: u64,
}

impl Pair {
    fn act(&mut self, act: &Act) {
        let (stored, now) = (self.primary.as_mut(), Micros(self.now));
        let change = match *act {
            Act::Call(cost) => Limiter::decide(stored, &self.policy, cost, now).unwrap().1,
            Act::Charge(cost) => Limiter::charge(stored, &self.policy, cost, now).unwrap().1,
            Act::Refund(cost) => Limiter::refund(stored, &self.policy, cost, now).unwrap().1,
            Act::Block => Limiter::block(stored, 1, now).1,
        };
        let must_send = match change {
            Change::None { .. } => return,
            Change::Gone => return (self.primary, self.replica) = (None, None),
            Change::New(limiter) => {
                self.primary = Some(limiter);
                true
            }
            Change::Changed { must_send, .. } => must_send,
        };
        self.held += 1;
        if must_send || self.held >= self.every {
            self.send();
        }
    }

    fn send(&mut self) {
        self.held = 0;
        let primary = self.primary.as_ref().unwrap();
        let effect = primary.to_effect(Micros(self.now));
        receive(&mut self.replica, effect.as_bytes(), self.now);
        // What they see from here on.
        for part in 0..=66 {
            let then = Micros(self.now + part * WINDOW_US / 64);
            let left = |stored: &Option<Limiter>| {
                let verdict = Limiter::peek(stored.as_ref(), &self.policy, 1, then);
                verdict.unwrap().remaining
            };
            assert!(left(&self.replica) <= left(&self.primary));
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1..=9u64).prop_map(Act::Call),
        2 => (1..=50u64).prop_map(Act::Charge),
        1 => (1..=20u64).prop_map(Act::Refund),
        1 => Just(Act::Block),
    ]
}

fn gap_us() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0u64), 6 => 1..=20_000u64, 1 => 0..=2 * WINDOW_US]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_log_that_lags_is_never_more_permissive_and_catches_up_in_a_window(
        every in 2..=40u64,
        most_entries in prop::sample::select(vec![100u32, 1_000]),
        steps in prop::collection::vec((gap_us(), act()), 1..120),
    ) {
        let policy = Algorithm::SlidingLog.policy(&[b"100", b"1000"], most_entries).unwrap();
        let mut pair = Pair { policy, primary: None, replica: None, every, held: 0, now: NOW_US };
        for (gap_us, act) in &steps {
            pair.now += gap_us;
            pair.act(act);
        }
        // All effects are sent again, for longer than the window.
        pair.every = 1;
        for _ in 0..10 {
            pair.now += WINDOW_US / 8;
            pair.act(&Act::Charge(1));
        }
        prop_assert!(pair.primary.is_some());
        prop_assert_eq!(bytes_of(pair.replica.as_ref()), bytes_of(pair.primary.as_ref()));
    }

    /// The others' effects are whole: the next one makes up for all that were held back.
    #[test]
    fn all_others_are_equal_with_the_next_effect(
        algorithm in prop::sample::select(vec![
            Algorithm::LeakyBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow,
        ]),
        every in 2..=40u64,
        steps in prop::collection::vec((gap_us(), act()), 1..60),
    ) {
        let numbers: &[&[u8]] = match algorithm {
            Algorithm::LeakyBucket => &[b"100", b"100", b"1000"],
            _ => &[b"100", b"1000"],
        };
        let policy = algorithm.policy(numbers, 100).unwrap();
        let mut pair = Pair { policy, primary: None, replica: None, every, held: 0, now: NOW_US };
        for (gap_us, act) in &steps {
            pair.now += gap_us;
            pair.act(act);
        }
        if pair.primary.is_some() {
            pair.send();
        }
        prop_assert_eq!(bytes_of(pair.replica.as_ref()), bytes_of(pair.primary.as_ref()));
    }
}
