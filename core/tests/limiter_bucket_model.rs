//! The bucket family against exact fractions of tokens.
//!
//! The model owes tokens, not ticks: a fraction that drains by count/period each µs, and is
//! rounded only where the design says so. The key beside it applies the core's decisions as
//! `src/limiters.rs` and `src/boundary/key.rs` do.

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, LimiterEffect, Policy, Verdict};
use sluice_core::{Limiter, Micros, Millis, State};

/// The names under which one debt is spent.
const BUCKETS: [Algorithm; 3] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];
const MOST: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const YEAR_US: u64 = YEAR_MS * 1000;
const HOUR_US: u64 = 3_600_000_000;
const NOW_US: u64 = 1_750_000_000_000_300;
/// Instants from here on cannot be stored.
const BOUND_US: u64 = 1 << 61;

// The model ------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    capacity: u64,
    count: u64,
    period_ms: u64,
}

#[derive(Clone, Debug)]
struct Model {
    /// In tokens.
    debt: BigRational,
    at: u64,
    numbers: Numbers,
}

#[derive(Debug)]
struct Answer {
    allowed: bool,
    remaining: BigInt,
    wait_us: BigInt,
    /// Until what is owed ahead of this call has drained.
    hold_us: BigInt,
    reset_us: BigInt,
}

fn whole(value: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(value.into())
}

fn at_least_0(tokens: BigRational) -> BigRational {
    tokens.max(whole(0))
}

impl Numbers {
    fn period_us(&self) -> BigRational {
        whole(self.period_ms) * whole(1000)
    }

    fn tokens_per_us(&self) -> BigRational {
        whole(self.count) / self.period_us()
    }

    fn capacity(&self) -> BigRational {
        whole(self.capacity)
    }

    /// The smallest part of a token that a debt is counted in.
    fn tick(&self) -> BigRational {
        whole(1) / self.period_us()
    }

    /// How long these tokens take to drain, in whole µs.
    fn drain_us(&self, tokens: &BigRational) -> BigInt {
        (tokens / self.tokens_per_us()).ceil().to_integer()
    }

    fn policy(&self, algorithm: Algorithm) -> Policy {
        let texts = [self.capacity, self.count, self.period_ms].map(|n| n.to_string());
        let [capacity, count, period_ms] = &texts;
        algorithm
            .policy(
                &[capacity.as_bytes(), count.as_bytes(), period_ms.as_bytes()],
                100_000,
            )
            .unwrap()
    }
}

impl Model {
    /// In the caller's ticks, rounded up; at most the caller's capacity if that is another
    /// one; drained at the caller's rate since the stored time.
    fn debt_under(&self, numbers: &Numbers, now: u64) -> BigRational {
        let tick = numbers.tick();
        let mut debt = (&self.debt / &tick).ceil() * &tick;
        if numbers.capacity != self.numbers.capacity {
            debt = debt.min(numbers.capacity());
        }
        let elapsed = whole(now.saturating_sub(self.at));
        at_least_0(debt - elapsed * numbers.tokens_per_us())
    }

    /// What a call is answered and, if it is admitted, what is stored.
    fn call(
        stored: Option<&Model>,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> (Answer, Option<Model>) {
        let before = stored.map_or(whole(0), |model| model.debt_under(numbers, now));
        let with_cost = &before + whole(cost);
        let over = at_least_0(&with_cost - numbers.capacity());
        let allowed = over == whole(0);
        let ahead = before.clone();
        let debt = if allowed { with_cost } else { before };
        let free = at_least_0(numbers.capacity() - &debt);
        let hold_us = numbers.drain_us(&ahead);
        let answer = Answer {
            allowed,
            remaining: free.floor().to_integer(),
            wait_us: numbers.drain_us(&over),
            hold_us,
            reset_us: numbers.drain_us(&debt),
        };
        let admitted = allowed.then_some(Model {
            debt,
            at: now,
            numbers: *numbers,
        });
        (answer, admitted)
    }

    /// The stored form: version, shape, debt in ticks, time, capacity, count, period.
    fn bytes(&self) -> Vec<u8> {
        let ticks = &self.debt * self.numbers.period_us();
        assert!(ticks.is_integer(), "{self:?}");
        let ticks = u128::try_from(ticks.to_integer()).unwrap();
        let mut bytes = vec![1, 0];
        bytes.extend(&ticks.to_le_bytes()[..12]);
        bytes.extend(self.at.to_le_bytes());
        bytes.extend((self.numbers.capacity as u32).to_le_bytes());
        bytes.extend((self.numbers.count as u32).to_le_bytes());
        bytes.extend(self.numbers.period_ms.to_le_bytes());
        bytes
    }
}

// The key --------------------------------------------------------------------------------

fn bytes_of(stored: &Option<Limiter>) -> Option<Vec<u8>> {
    let stored = stored.as_ref()?;
    Some(stored.to_stored().as_bytes().to_vec())
}

fn ceil_ms(us: &BigInt) -> BigInt {
    (us + BigInt::from(999)) / BigInt::from(1000)
}

/// `now` and `us` more, if the clock can show that.
fn later(now: u64, us: u128) -> Option<u64> {
    u64::try_from(u128::from(now) + us).ok()
}

#[derive(Default)]
struct Key {
    stored: Option<Limiter>,
    ttl: Option<Millis>,
    model: Option<Model>,
}

impl Key {
    /// With a debt that only a charge, or a RESTORE, can bring about.
    fn overdrawn(numbers: Numbers, share: u16, at: u64) -> Key {
        let most = whole(100 * YEAR_US) * whole(numbers.count);
        let ticks = (most * whole(share) / whole(u16::MAX)).ceil();
        let model = Model {
            debt: ticks * numbers.tick(),
            at,
            numbers,
        };
        let stored = Limiter::from_stored(&model.bytes()).unwrap();
        Key {
            ttl: Some(stored.matters_until().plus(Limiter::TTL_SLACK_MS)),
            stored: Some(stored),
            model: Some(model),
        }
    }

    /// Sets the TTL as a change of what is stored does.
    fn keep(&mut self) {
        let Some(state) = &self.stored else {
            return;
        };
        let needed = state.matters_until();
        let slack = needed..=needed.plus(Limiter::TTL_SLACK_MS);
        if !self.ttl.is_some_and(|ttl| slack.contains(&ttl)) {
            self.ttl = Some(needed.plus(Limiter::TTL_SLACK_MS));
        }
    }

    fn allows(&self, policy: &Policy, cost: u64, now: u64) -> bool {
        let mut stored = self.stored.clone();
        let peeked = Limiter::peek(stored.as_ref(), policy, cost, Micros(now)).unwrap();
        let (decided, _) = Limiter::decide(stored.as_mut(), policy, cost, Micros(now)).unwrap();
        assert_eq!(peeked.allowed, decided.allowed);
        decided.allowed
    }

    fn call(
        &mut self,
        numbers: &Numbers,
        algorithm: Algorithm,
        cost: u64,
        now: u64,
    ) -> Result<Verdict, TestCaseError> {
        let policy = numbers.policy(algorithm);
        prop_assert_eq!(policy.limit(), numbers.capacity);
        let before = self.stored.clone();
        let bytes_before = bytes_of(&before);

        let peeked = Limiter::peek(self.stored.as_ref(), &policy, cost, Micros(now)).unwrap();
        prop_assert_eq!(&bytes_of(&self.stored), &bytes_before);
        let (verdict, change) =
            Limiter::decide(self.stored.as_mut(), &policy, cost, Micros(now)).unwrap();
        let (answer, admitted) = Model::call(self.model.as_ref(), numbers, cost, now);

        // What is answered.
        prop_assert_eq!(verdict.allowed, answer.allowed);
        prop_assert_eq!(verdict.limit, numbers.capacity);
        prop_assert_eq!(BigInt::from(verdict.remaining), answer.remaining);
        let wait_us = match algorithm {
            Algorithm::LeakyBucket if answer.allowed => answer.hold_us,
            _ => answer.wait_us,
        };
        prop_assert_eq!(BigInt::from(verdict.wait_us), wait_us.clone());
        prop_assert_eq!(BigInt::from(verdict.reset_us), answer.reset_us.clone());
        let saturated = |ms: BigInt| ms.min(BigInt::from(i64::MAX));
        let [allowed, limit, remaining, wait_ms, reset_ms] = verdict.reply();
        prop_assert_eq!(allowed, u64::from(verdict.allowed));
        prop_assert_eq!(limit, numbers.capacity);
        prop_assert_eq!(remaining, verdict.remaining);
        prop_assert_eq!(BigInt::from(wait_ms), saturated(ceil_ms(&wait_us)));
        prop_assert_eq!(BigInt::from(reset_ms), saturated(ceil_ms(&answer.reset_us)));

        // A peek says the same, but of the key as it is.
        Key::check_peek(&before, &policy, cost, now, &peeked, &verdict)?;

        // What is stored.
        let stepped_back = self.model.as_ref().is_some_and(|model| model.at > now);
        let own = self.model.as_ref().is_some_and(|m| m.numbers == *numbers);
        let ends = ceil_ms(&(BigInt::from(now) + answer.reset_us));
        let until_asked = (!own).then(|| ends.min(BigInt::from(Millis::BOUND - 1)));
        match change {
            Change::New(state) => {
                prop_assert!(verdict.allowed && self.model.is_none());
                self.model = admitted;
                self.stored = Some(state);
                self.keep();
            }
            Change::Changed { must_send, until } if verdict.allowed => {
                // Another policy than the stored one may not be kept back.
                prop_assert_eq!((must_send, until), (!own, None));
                prop_assert!(self.model.is_some());
                self.model = admitted;
                self.keep();
            }
            Change::Changed { must_send, until } => {
                prop_assert!(must_send && stepped_back);
                if let Some(model) = &mut self.model {
                    model.at = now;
                }
                self.keep();
                self.outlive(until, until_asked)?;
            }
            Change::Gone => prop_assert!(false, "a call drains nothing"),
            Change::None { until } => {
                prop_assert!(!verdict.allowed && !stepped_back);
                prop_assert_eq!(&bytes_of(&self.stored), &bytes_before);
                self.outlive(until, until_asked)?;
            }
        }
        let bytes = self.model.as_ref().map(Model::bytes);
        prop_assert_eq!(bytes_of(&self.stored), bytes);
        self.check_encoding(now)?;
        self.check_ttl(now, &verdict)?;

        self.check_promises(&policy, cost, now, &verdict)?;
        Ok(verdict)
    }

    /// A denial under another policy lengthens the TTL to what that policy needs.
    fn outlive(
        &mut self,
        until: Option<Millis>,
        asked: Option<BigInt>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(until.map(|ms| BigInt::from(ms.0)), asked);
        if let Some(until) = until {
            if self.ttl.is_some_and(|ttl| ttl < until) {
                self.ttl = Some(until.plus(Limiter::TTL_SLACK_MS));
            }
        }
        Ok(())
    }

    fn check_peek(
        before: &Option<Limiter>,
        policy: &Policy,
        cost: u64,
        now: u64,
        peeked: &Verdict,
        decided: &Verdict,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(peeked.allowed, decided.allowed);
        prop_assert_eq!(peeked.limit, decided.limit);
        prop_assert_eq!(peeked.wait_us, decided.wait_us);
        let again = Limiter::peek(before.as_ref(), policy, cost, Micros(now)).unwrap();
        prop_assert_eq!(&again, peeked);
        if decided.allowed {
            prop_assert_eq!(peeked.remaining, decided.remaining + cost);
            // A call may cost less than a µs drains.
            prop_assert!(peeked.reset_us <= decided.reset_us);
        } else {
            prop_assert_eq!(peeked, decided);
        }
        Ok(())
    }

    fn check_encoding(&self, now: u64) -> Result<(), TestCaseError> {
        let Some(stored) = &self.stored else {
            return Ok(());
        };
        let read = Limiter::from_stored(stored.to_stored().as_bytes());
        prop_assert_eq!(read.as_ref(), Ok(stored));
        let effect = stored.to_effect(Micros(now));
        let read = LimiterEffect::decode(effect.as_bytes());
        let whole = LimiterEffect::Whole(stored.clone());
        prop_assert_eq!(read, Ok((whole, Micros(now))));
        Ok(())
    }

    /// The key outlives what this caller's policy sees in it.
    fn check_ttl(&self, now: u64, verdict: &Verdict) -> Result<(), TestCaseError> {
        let ends_ms = (u128::from(now) + verdict.reset_us).div_ceil(1000);
        let ends_ms = ends_ms.min(u128::from(Millis::BOUND - 1));
        prop_assert!(self.ttl.is_some_and(|ttl| u128::from(ttl.0) >= ends_ms));
        Ok(())
    }

    /// What the verdict says of the calls that may follow.
    fn check_promises(
        &self,
        policy: &Policy,
        cost: u64,
        now: u64,
        verdict: &Verdict,
    ) -> Result<(), TestCaseError> {
        let limit = policy.limit();
        let remaining = verdict.remaining;
        prop_assert!(remaining <= limit);
        prop_assert!(remaining == 0 || self.allows(policy, remaining, now));
        prop_assert!(remaining == limit || !self.allows(policy, remaining + 1, now));

        let [.., wait_ms, reset_ms] = verdict.reply();
        if verdict.allowed {
            let is_held = matches!(policy, Policy::LeakyBucket(_));
            prop_assert!(is_held || verdict.wait_us == 0);
        } else {
            prop_assert!(verdict.wait_us > 0);
            if let Some(then) = later(now, verdict.wait_us) {
                prop_assert!(self.allows(policy, cost, then));
                prop_assert!(!self.allows(policy, cost, then - 1));
            }
            if let Some(then) = later(now, u128::from(wait_ms) * 1000) {
                prop_assert!(self.allows(policy, cost, then));
            }
        }

        let remaining_at = |at| {
            Limiter::peek(self.stored.as_ref(), policy, 1, Micros(at))
                .unwrap()
                .remaining
        };
        prop_assert!(verdict.reset_us > 0);
        if let Some(then) = later(now, verdict.reset_us) {
            prop_assert_eq!(remaining_at(then), limit);
            prop_assert!(remaining_at(then - 1) < limit);
        }
        if let Some(then) = later(now, u128::from(reset_ms) * 1000) {
            prop_assert_eq!(remaining_at(then), limit);
        }
        Ok(())
    }
}

// What happens ---------------------------------------------------------------------------

#[derive(Clone, Debug)]
struct Step {
    clock: Clock,
    /// Of the policies that are used on the key.
    policy: prop::sample::Index,
    own_policy: bool,
    algorithm: Algorithm,
    cost: Cost,
}

#[derive(Clone, Debug)]
enum Clock {
    Stay,
    Forward(u64),
    Back(u64),
    /// So many times what one token takes, and this far on.
    Tokens(u64, i64),
    /// This part of what a full bucket takes, of 255.
    Full(u8),
    /// To where the last call said, and this far on.
    Wait(i64),
    WaitMs,
    Reset(i64),
}

#[derive(Clone, Debug)]
enum Cost {
    One,
    Limit,
    /// This part of the limit, of 65535.
    Share(u16),
    /// What remained after the last call, and this much more.
    Remaining(i64),
}

fn tokens() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..=5u64,
        3 => 6..=1000u64,
        2 => (0..=29u32).prop_map(|bits| 1 << bits),
        2 => MOST - 1..=MOST,
        2 => 1..=MOST,
    ]
}

fn period_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=7u64,
        6 => prop::sample::select(vec![100, 1000, 60_000, 3_600_000, 86_400_000]),
        2 => (0..=34u32).prop_map(|bits| 1 << bits),
        1 => YEAR_MS - 1..=YEAR_MS,
        2 => 1..=YEAR_MS,
    ]
}

/// Makes a full bucket drain within 100 years.
fn with_fewer_tokens(mut numbers: Numbers) -> Numbers {
    let most = u128::from(numbers.count) * u128::from(100 * YEAR_MS);
    let most = most / u128::from(numbers.period_ms);
    numbers.capacity = u128::from(numbers.capacity).min(most) as u64;
    numbers
}

/// The same, the capacity unchanged.
fn with_more_per_period(mut numbers: Numbers) -> Numbers {
    let full_ms = u128::from(numbers.capacity) * u128::from(numbers.period_ms);
    let least = full_ms.div_ceil(u128::from(100 * YEAR_MS)) as u64;
    numbers.count = numbers.count.max(least);
    numbers
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let extreme = prop::sample::select(vec![
        (7_000, 1000),
        (3_000_000, 1000),
        (MOST, 1),
        (MOST - 1, 1),
        (1, YEAR_MS),
        (MOST, YEAR_MS),
        (10, 3),
    ]);
    let rate = prop_oneof![3 => (tokens(), period_ms()), 1 => extreme];
    (tokens(), rate, any::<bool>()).prop_map(|(capacity, (count, period_ms), fewer)| {
        let numbers = Numbers {
            capacity,
            count,
            period_ms,
        };
        if fewer {
            with_fewer_tokens(numbers)
        } else {
            with_more_per_period(numbers)
        }
    })
}

/// One policy and some others, each of which shares this or that with the first.
fn policies() -> impl Strategy<Value = Vec<Numbers>> {
    let other = (numbers(), any::<[bool; 3]>());
    (numbers(), prop::collection::vec(other, 0..3)).prop_map(|(first, others)| {
        let mut all = vec![first];
        for (mut numbers, [capacity, count, period]) in others {
            if capacity {
                numbers.capacity = first.capacity;
            }
            if count {
                numbers.count = first.count;
            }
            if period {
                numbers.period_ms = first.period_ms;
            }
            all.push(with_more_per_period(numbers));
        }
        all
    })
}

fn clock() -> impl Strategy<Value = Clock> {
    let near = || -1..=1i64;
    prop_oneof![
        6 => Just(Clock::Stay),
        1 => Just(Clock::Forward(1)),
        1 => (0..=2000u64).prop_map(Clock::Forward),
        1 => Just(Clock::Forward(HOUR_US)),
        1 => (1..=100 * YEAR_US).prop_map(Clock::Forward),
        1 => Just(Clock::Back(1)),
        1 => Just(Clock::Back(HOUR_US)),
        1 => (1..=100 * YEAR_US).prop_map(Clock::Back),
        4 => near().prop_map(|off| Clock::Tokens(1, off)),
        2 => (2..=20u64, near()).prop_map(|(n, off)| Clock::Tokens(n, off)),
        2 => any::<u8>().prop_map(Clock::Full),
        4 => near().prop_map(Clock::Wait),
        1 => Just(Clock::WaitMs),
        2 => near().prop_map(Clock::Reset),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let cost = prop_oneof![
        4 => Just(Cost::One),
        2 => Just(Cost::Limit),
        3 => any::<u16>().prop_map(Cost::Share),
        4 => (-1..=1i64).prop_map(Cost::Remaining),
    ];
    let algorithm = prop::sample::select(BUCKETS.to_vec());
    let policy = (any::<prop::sample::Index>(), any::<bool>());
    (clock(), policy, algorithm, cost).prop_map(|(clock, (policy, own_policy), algorithm, cost)| {
        Step {
            clock,
            policy,
            own_policy,
            algorithm,
            cost,
        }
    })
}

fn part(of: u128, share: u128, most: u128) -> u64 {
    u64::try_from(of * share / most).unwrap_or(u64::MAX)
}

fn moved(clock: &Clock, now: u64, numbers: &Numbers, last: Option<&Verdict>) -> u64 {
    let period_us = u128::from(numbers.period_ms) * 1000;
    let count = u128::from(numbers.count);
    let forward = |us: u128| now.saturating_add(u64::try_from(us).unwrap_or(u64::MAX));
    let to = match *clock {
        Clock::Stay => now,
        Clock::Forward(us) => now.saturating_add(us),
        Clock::Back(us) => now.saturating_sub(us),
        Clock::Tokens(n, off) => {
            forward((u128::from(n) * period_us).div_ceil(count)).saturating_add_signed(off)
        }
        Clock::Full(share) => {
            let full_us = u128::from(numbers.capacity) * period_us / count;
            now.saturating_add(part(full_us, u128::from(share), 255))
        }
        Clock::Wait(off) => {
            forward(last.map_or(0, |verdict| verdict.wait_us)).saturating_add_signed(off)
        }
        Clock::WaitMs => forward(last.map_or(0, |verdict| {
            let [.., wait_ms, _] = verdict.reply();
            u128::from(wait_ms) * 1000
        })),
        Clock::Reset(off) => {
            forward(last.map_or(0, |verdict| verdict.reset_us)).saturating_add_signed(off)
        }
    };
    to.min(BOUND_US - 1)
}

fn cost(cost: &Cost, limit: u64, last: Option<&Verdict>) -> u64 {
    let cost = match *cost {
        Cost::One => 1,
        Cost::Limit => limit,
        Cost::Share(share) => part(u128::from(limit), u128::from(share), 65535),
        Cost::Remaining(off) => last
            .map_or(limit, |verdict| verdict.remaining)
            .saturating_add_signed(off),
    };
    cost.clamp(1, limit)
}

fn run(
    mut key: Key,
    policies: &[Numbers],
    start: u64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut now = start;
    let mut last = None;
    for step in steps {
        let numbers = if step.own_policy {
            &policies[0]
        } else {
            step.policy.get(policies)
        };
        now = moved(&step.clock, now, numbers, last.as_ref());
        let cost = cost(&step.cost, numbers.capacity, last.as_ref());
        last = Some(key.call(numbers, step.algorithm, cost, now)?);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 350, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_owes_exactly_what_the_fractions_say(
        policies in policies(),
        start in prop_oneof![1 => Just(0), 6 => Just(NOW_US), 1 => Just(BOUND_US - HOUR_US)],
        steps in prop::collection::vec(step(), 1..30),
    ) {
        run(Key::default(), &policies, start, &steps)?;
    }

    #[test]
    fn so_does_one_that_was_charged_beyond_its_capacity(
        policies in policies(),
        share in prop_oneof![Just(u16::MAX), Just(1), any::<u16>()],
        at in prop_oneof![Just(NOW_US), 0..BOUND_US],
        steps in prop::collection::vec(step(), 1..10),
    ) {
        run(Key::overdrawn(policies[0], share, at), &policies, NOW_US, &steps)?;
    }
}

// The policy changes on a live key -------------------------------------------------------

fn exhausted(numbers: Numbers) -> Key {
    let mut key = Key::default();
    let verdict = key.call(&numbers, Algorithm::Gcra, numbers.capacity, NOW_US);
    assert!(verdict.unwrap().allowed);
    key
}

/// The reply to one more token at once.
fn next(key: &mut Key, numbers: Numbers) -> [u64; 5] {
    let verdict = key.call(&numbers, Algorithm::TokenBucket, 1, NOW_US);
    verdict.unwrap().reply()
}

fn numbers_of(capacity: u64, count: u64, period_ms: u64) -> Numbers {
    Numbers {
        capacity,
        count,
        period_ms,
    }
}

#[test]
fn a_debt_is_read_in_tokens_whatever_the_period() {
    let mut key = exhausted(numbers_of(10, 10, 60_000));
    for (period_ms, wait_ms) in [(60_000, 6_000), (3_600_000, 360_000), (10, 1), (1, 1)] {
        assert_eq!(
            next(&mut key, numbers_of(10, 10, period_ms)),
            [0, 10, 0, wait_ms, period_ms]
        );
    }
}

#[test]
fn a_debt_that_is_no_whole_tick_of_the_caller_is_rounded_up_to_one() {
    let per_seven = numbers_of(7, 1, 7);
    let mut key = Key::default();
    let mut call = |cost, at| {
        let verdict = key.call(&per_seven, Algorithm::Gcra, cost, NOW_US + at);
        assert!(verdict.unwrap().allowed);
    };
    call(1, 0);
    // One token and 6,999 of 7,000 parts.
    call(1, 1);
    // In thousandths that is 2, and the 7 of the capacity are not reached.
    let [allowed, _, remaining, wait_ms, reset_ms] = key
        .call(&numbers_of(7, 1, 1), Algorithm::Gcra, 5, NOW_US + 1)
        .unwrap()
        .reply();
    assert_eq!([allowed, remaining, wait_ms, reset_ms], [1, 0, 0, 7]);
}

#[test]
fn a_smaller_capacity_locks_nobody_out_beyond_its_own_full_window() {
    let mut key = exhausted(numbers_of(1_000, 1_000, 3_600_000));
    assert_eq!(
        next(&mut key, numbers_of(10, 10, 60_000)),
        [0, 10, 0, 6_000, 60_000]
    );
    // Nothing was stored: the first policy still owes all of it.
    assert_eq!(
        next(&mut key, numbers_of(1_000, 1_000, 3_600_000)),
        [0, 1_000, 0, 3_600, 3_600_000]
    );
}

#[test]
fn an_overdraft_stands_under_its_own_capacity_and_no_other() {
    let own = numbers_of(10, 10, 1_000);
    let twice = Model {
        debt: whole(20),
        at: NOW_US,
        numbers: own,
    };
    let mut key = Key {
        stored: Some(Limiter::from_stored(&twice.bytes()).unwrap()),
        ttl: Some(Millis(Millis::BOUND)),
        model: Some(twice),
    };
    assert_eq!(next(&mut key, own), [0, 10, 0, 1_100, 2_000]);
    assert_eq!(
        next(&mut key, numbers_of(10, 10, 60_000)),
        [0, 10, 0, 66_000, 120_000]
    );
    assert_eq!(
        next(&mut key, numbers_of(9, 9, 1_000)),
        [0, 9, 0, 112, 1_000]
    );
    assert_eq!(
        next(&mut key, numbers_of(21, 10, 1_000)),
        [1, 21, 0, 0, 2_100]
    );
}
