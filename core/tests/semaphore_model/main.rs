//! The semaphore against a plain list of leases.
//!
//! The model (`leases.rs`) keeps the leases that were granted. The server beside it
//! (`server.rs`) applies the core's decisions as `src/commands/sem_*.rs` do, and feeds two
//! replicas with nothing but effects: one of them gets each twice.

mod cases;
mod holders;
mod leases;
mod server;
mod steps;

use holders::START_US;
use leases::{Lease, Model};
use proptest::prelude::*;
use server::{bytes, Server};
use sluice_core::semaphore::{Hold, SemaphoreEffect};
use sluice_core::{Micros, Millis, Semaphore, State, Token};
use steps::{step, Reply, Step, FEW, MANY, OWNERS};

fn lease(hold: &Hold) -> Lease {
    Lease {
        owner: OWNERS
            .iter()
            .position(|owner| owner == hold.holder.owner())
            .expect("one of the owners"),
        token: hold.token.get(),
        permits: hold.permits,
        granted_ms: hold.granted.0,
        deadline_ms: hold.deadline.0,
    }
}

/// Everything that the semaphore says about itself.
fn check_answers(key: &mut Semaphore, live: &[Lease], now: Millis) {
    let stored: Vec<Lease> = key.holds().map(lease).collect();
    let held: Vec<Lease> = key.live_holds(now).map(lease).collect();
    assert_eq!(held, live);
    assert_eq!(key.len(), stored.len());
    assert!(!key.is_empty());
    let sum = |leases: &[Lease]| leases.iter().map(|l| u64::from(l.permits)).sum::<u64>();
    assert_eq!(key.permits(), sum(&stored));
    assert_eq!(key.live_permits(now), sum(live));
    assert_eq!(key.is_over(now), live.is_empty());
    let latest = stored.iter().map(|l| l.deadline_ms).max();
    assert_eq!(Some(key.deadline().0), latest);
    let next = live.iter().map(|l| l.deadline_ms).min();
    assert_eq!(key.next_deadline(now).map(|at| at.0), next);
    assert_eq!(
        key.last_token().map(Token::get),
        stored.last().map(|l| l.token)
    );
}

/// An append-only file that is written anew makes the same of nothing.
fn check_rebuild(key: &Semaphore) {
    let mut made = None;
    for blob in key.rebuild() {
        let (effect, now) = SemaphoreEffect::decode(blob.as_bytes()).unwrap();
        if let Some(whole) = Semaphore::apply(made.as_mut(), effect, now) {
            made = Some(whole);
        }
    }
    assert_eq!(made.as_ref(), Some(key));
}

fn run(steps: &[Step]) {
    let (mut model, mut server, mut now) = (Model::default(), Server::default(), START_US);
    for step in steps {
        if let Step::Clock(us) = step {
            now = now.saturating_add_signed(*us);
        }
        let (before, mark) = (bytes(&server.key), server.high_water);
        let mut reloaded = server.reloaded();
        let reply = server.apply(step, Micros(now));
        assert_eq!(reply, model.apply(step, now), "{step:?} at {now}");
        assert_eq!(
            reloaded.apply(step, Micros(now)),
            reply,
            "{step:?} at {now}"
        );
        assert_eq!(bytes(&reloaded.key), bytes(&server.key));

        let is_negative = matches!(reply, Reply::Nil | Reply::Error(_) | Reply::Number(0));
        if is_negative && !matches!(step, Step::Lose | Step::Expire) {
            assert_eq!(bytes(&server.key), before, "{step:?} changed something");
        }
        let live = model.live(now);
        if let (Step::Acquire { limit, .. }, true) = (step, server.high_water > mark) {
            let taken: u32 = live.iter().map(|lease| lease.permits).sum();
            assert!(taken <= *limit, "{step:?} was granted beside {live:?}");
        }
        for replica in &server.replicas {
            assert_eq!(bytes(replica), bytes(&server.key), "{step:?}");
        }
        match server.key.as_mut() {
            None => assert!(live.is_empty()),
            Some(key) => {
                check_answers(key, &live, Millis(now / 1000));
                check_rebuild(key);
                let (whole, at) = Semaphore::from_effect(key.to_effect(Micros(now)).as_bytes())
                    .expect("an effect is read");
                assert_eq!((&whole, at), (&*key, Micros(now)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn agrees_with_a_list_of_many_leases(steps in prop::collection::vec(step(MANY), 200..400)) {
        run(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn agrees_with_a_list_of_leases(steps in prop::collection::vec(step(FEW), 1..60)) {
        run(&steps);
    }
}
