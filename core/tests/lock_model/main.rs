//! The lock against a history that forgets nothing, in every mode.
//!
//! The model (`history.rs`) keeps every grant, extension and end that ever was as a plain
//! record. The server beside it (`server.rs`) applies the core's decisions as
//! `src/commands/lock_*.rs` do, and feeds its replicas with nothing but effects.

mod history;
mod rules;
mod server;
mod steps;

use history::History;
use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;
use server::{bytes, Server};
use steps::{start, step, Step, KEYS};

fn run(start_us: u64, steps: &[Step]) {
    let mut history = History::default();
    let mut server = Server::new(start_us);
    for step in steps {
        let before = server.keys.clone();
        let (bytes_before, effects_before) = (bytes(&server.keys), server.effects);
        let high_water_before = server.high_water;

        let reply = server.apply(step, &history);
        let expected = history.apply(step, server.now);
        assert_eq!(reply, expected, "{step:?} at {}", server.now);
        assert_eq!(server.high_water, history.high_water());
        let happens = matches!(
            step,
            Step::Lose { .. } | Step::Expire { .. } | Step::Receive { .. }
        );
        if reply.is_negative() && !happens {
            assert_eq!(bytes(&server.keys), bytes_before, "{step:?} did nothing");
            assert_eq!(server.high_water, high_water_before);
            assert_eq!(server.effects, effects_before);
        }

        for (key, before) in before.iter().enumerate().take(KEYS) {
            let stored = history.stored(key);
            assert_eq!(server.stored(key), stored);
            let Some(after) = server.keys[key].as_ref() else {
                continue;
            };
            if let Some(before) = before {
                rules::check_change(key, step, &reply, before, after);
            }
            let live = stored.clone().live(server.now);
            rules::check_answers(after, &stored, &live, server.now());
            if before.as_ref() != Some(after) {
                rules::check_life(after, server.high_water);
                rules::check_encodings(after, server.now());
            }
        }
        rules::check_replicas(&server);
    }
    let tokens: Vec<u64> = history.grants().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// With the cheap generator: the default one is most of the time of an unoptimized run.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_lock_does_what_its_history_says(
        start_us in start(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(start_us, &steps);
    }
}
