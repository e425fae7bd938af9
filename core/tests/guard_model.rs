//! The fence guard against a list of everything it ever accepted.

use proptest::prelude::*;
use sluice_core::guard::Verdict;
use sluice_core::{Guard, Micros, Millis, State, Token};

const NOW: Micros = Micros(1_750_000_000_000_300);
const NOW_MS: u64 = 1_750_000_000_000;

fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

fn guard(value: u64, until_ms: u64) -> Guard {
    Guard {
        token: token(value),
        until: Millis(until_ms),
    }
}

fn accepted(value: u64, until_ms: u64) -> Verdict {
    Verdict::Accepted(guard(value, until_ms))
}

#[test]
fn the_first_token_is_accepted_whatever_it_is() {
    for value in [1, 5, Token::MAX] {
        assert_eq!(
            Guard::check(None, token(value), 10, NOW),
            accepted(value, NOW_MS + 10)
        );
    }
}

#[test]
fn a_lower_token_is_stale_an_equal_or_higher_one_is_not() {
    let seen = guard(5, NOW_MS + 10);
    let check = |value| Guard::check(Some(&seen), token(value), 10, NOW);
    assert_eq!(check(1), Verdict::Stale);
    assert_eq!(check(4), Verdict::Stale);
    assert_eq!(check(5), accepted(5, NOW_MS + 10));
    assert_eq!(check(6), accepted(6, NOW_MS + 10));
    assert_eq!(check(Token::MAX), accepted(Token::MAX, NOW_MS + 10));
}

#[test]
fn px_counts_from_the_floor_of_now_and_never_shortens() {
    let seen = guard(5, NOW_MS + 10);
    for (px, until) in [(1, 10), (9, 10), (10, 10), (11, 11), (1_000, 1_000)] {
        for value in [5, 6] {
            assert_eq!(
                Guard::check(Some(&seen), token(value), px, NOW),
                accepted(value, NOW_MS + until)
            );
        }
    }
}

#[test]
fn it_remembers_through_its_last_millisecond_and_then_forgets() {
    let seen = guard(5, NOW_MS + 10);
    let check = |us| Guard::check(Some(&seen), token(1), 3, Micros(us));
    assert_eq!(check((NOW_MS + 10) * 1000 + 999), Verdict::Stale);
    assert_eq!(check((NOW_MS + 11) * 1000), accepted(1, NOW_MS + 14));
}

#[test]
fn a_clock_that_stepped_back_shortens_nothing() {
    let seen = guard(5, NOW_MS + 10);
    let before = Micros((NOW_MS - 3_600_000) * 1000);
    assert_eq!(
        Guard::check(Some(&seen), token(4), 10, before),
        Verdict::Stale
    );
    assert_eq!(
        Guard::check(Some(&seen), token(5), 10, before),
        accepted(5, NOW_MS + 10)
    );
}

#[test]
fn the_documented_times() {
    assert_eq!(Guard::DEFAULT_PX, 604_800_000);
    assert_eq!(Guard::MAX_PX, 31_536_000_000);
}

#[derive(Clone, Debug)]
enum Step {
    Check {
        token: u64,
        px: u64,
    },
    Lose,
    Clock(i64),
    /// To the last microsecond that is remembered, and this far on.
    ToEnd(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let px = prop_oneof![3 => 1..=5u64, 1 => 1..=Guard::MAX_PX];
    let token = prop_oneof![6 => 1..=6u64, 1 => Token::MAX - 1..=Token::MAX];
    let clock = prop_oneof![
        Just(0i64),
        Just(1),
        -5_000i64..=5_000,
        Just(3_600_000_000),
        Just(-3_600_000_000)
    ];
    prop_oneof![
        6 => (token, px).prop_map(|(token, px)| Step::Check { token, px }),
        1 => Just(Step::Lose),
        3 => clock.prop_map(Step::Clock),
        2 => prop_oneof![Just(0i64), Just(1), Just(-1)].prop_map(Step::ToEnd),
    ]
}

/// Everything accepted since the guard last forgot: the token, and until when.
#[derive(Default)]
struct Model(Vec<(u64, u64)>);

impl Model {
    fn check(&mut self, token: u64, px: u64, now_ms: u64) -> bool {
        if self.0.iter().all(|(_, until)| *until < now_ms) {
            self.0.clear();
        }
        let accepted = self.0.iter().all(|(seen, _)| *seen <= token);
        if accepted {
            self.0.push((token, now_ms + px));
        }
        accepted
    }

    fn guard(&self) -> Option<Guard> {
        let token = self.0.iter().map(|(token, _)| *token).max()?;
        let until = self.0.iter().map(|(_, until)| *until).max()?;
        Some(guard(token, until))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_guard_does_what_its_history_says(
        start in prop_oneof![Just(0u64), Just(NOW.0)],
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut now = start;
        let mut model = Model::default();
        let mut stored: Option<Guard> = None;
        for step in steps {
            match step {
                Step::Check { token: value, px } => {
                    let before = stored;
                    let verdict = Guard::check(stored.as_ref(), token(value), px, Micros(now));
                    if let Verdict::Accepted(guard) = verdict {
                        stored = Some(guard);
                    }
                    let expected = model.check(value, px, now / 1000);
                    prop_assert_eq!(verdict != Verdict::Stale, expected);
                    if let (Some(before), Some(after)) = (before, stored) {
                        prop_assert!(after.until >= before.until || before.until.0 < now / 1000);
                    }
                }
                Step::Lose => {
                    stored = None;
                    model = Model::default();
                }
                Step::Clock(us) => now = now.saturating_add_signed(us),
                Step::ToEnd(us) => {
                    if let Some(guard) = stored {
                        now = (guard.until.0 * 1000 + 999).saturating_add_signed(us);
                    }
                }
            }
            prop_assert_eq!(stored, model.guard());
            if let Some(guard) = stored {
                prop_assert_eq!(Guard::from_stored(guard.to_stored().as_bytes()), Ok(guard));
                prop_assert_eq!(
                    Guard::from_effect(guard.to_effect(Micros(now)).as_bytes()),
                    Ok((guard, Micros(now)))
                );
            }
        }
    }
}
