//! The lock against a history that forgets nothing.
//!
//! The model keeps every grant, extension and end that ever was as a plain record, and
//! answers each question by reading all of them again. The server beside it applies the
//! core's decisions as `src/commands/lock_*.rs` do.

use proptest::prelude::*;
use sluice_core::lock::{Acquire, Release, Renew, Request};
use sluice_core::{Error, Lock, Micros, Millis, State, Token};

const KEYS: usize = 2;

/// With and without an allocation of their own, one a prefix of another.
const OWNERS: [&[u8]; 3] = [b"a", b"a\0", &[0xff; 100]];
const METAS: [&[u8]; 3] = [b"", b"host-1", &[b'm'; 1024]];

const YEAR_MS: u64 = 31_536_000_000;
const HOUR_US: i64 = 3_600_000_000;

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        key: usize,
        owner: usize,
        lease_ms: u64,
        meta: usize,
    },
    Release {
        key: usize,
        owner: usize,
        token: Presented,
        keep_ms: Option<u64>,
    },
    Renew {
        key: usize,
        owner: usize,
        lease_ms: u64,
        token: Presented,
    },
    ForceRelease {
        key: usize,
        token: Presented,
    },
    /// DEL, eviction, FLUSHALL.
    Lose {
        key: usize,
    },
    /// The server removes the key if its TTL is over; without it, it stays as after PERSIST.
    Expire {
        key: usize,
    },
    /// A loaded or replicated token, this far above the clock.
    Receive {
        ahead_us: i64,
    },
    Clock(Clock),
}

/// The TOKEN that a client sends.
#[derive(Clone, Debug)]
enum Presented {
    None,
    /// Of the last grant on this key, this much off it.
    Last {
        off: i64,
    },
    /// Of the first grant on this key.
    First,
}

#[derive(Clone, Debug)]
enum Clock {
    By(i64),
    /// To the last millisecond of what is stored under a key, and this far on.
    ToEnd {
        key: usize,
        offset_us: i64,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Integer(u64),
    Nil,
    Error(Error),
}

// The model ------------------------------------------------------------------------------

#[derive(Default)]
struct History(Vec<Record>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Record {
    Granted {
        key: usize,
        owner: usize,
        meta: usize,
        token: u64,
        at_ms: u64,
        until_ms: u64,
    },
    Extended {
        key: usize,
        until_ms: u64,
    },
    Kept {
        key: usize,
        token: u64,
        until_ms: u64,
    },
    Freed {
        key: usize,
    },
    Received {
        token: u64,
    },
}

/// What is stored under a key, be it over or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Nothing,
    Held {
        owner: usize,
        meta: usize,
        token: u64,
        at_ms: u64,
        until_ms: u64,
    },
    Kept {
        token: u64,
        until_ms: u64,
    },
}

impl History {
    fn stored(&self, of: usize) -> Stored {
        let mut stored = Stored::Nothing;
        for record in &self.0 {
            match (*record, &mut stored) {
                (
                    Record::Granted {
                        key,
                        owner,
                        meta,
                        token,
                        at_ms,
                        until_ms,
                    },
                    stored,
                ) if key == of => {
                    *stored = Stored::Held {
                        owner,
                        meta,
                        token,
                        at_ms,
                        until_ms,
                    };
                }
                (
                    Record::Extended { key, until_ms },
                    Stored::Held {
                        until_ms: until, ..
                    },
                ) if key == of => *until = until_ms.max(*until),
                (
                    Record::Kept {
                        key,
                        token,
                        until_ms,
                    },
                    stored,
                ) if key == of => *stored = Stored::Kept { token, until_ms },
                (Record::Freed { key }, stored) if key == of => *stored = Stored::Nothing,
                _ => {}
            }
        }
        stored
    }

    /// The same, if it is not over.
    fn live(&self, key: usize, now_us: u64) -> Stored {
        match self.stored(key) {
            Stored::Held { until_ms, .. } | Stored::Kept { until_ms, .. }
                if now_us / 1000 > until_ms =>
            {
                Stored::Nothing
            }
            stored => stored,
        }
    }

    fn high_water(&self) -> u64 {
        let tokens = self.0.iter().map(|record| match record {
            Record::Granted { token, .. } | Record::Received { token } => *token,
            _ => 0,
        });
        tokens.max().unwrap_or(0)
    }

    fn grants(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.0.iter().filter_map(|record| match record {
            Record::Granted { key, token, .. } => Some((*key, *token)),
            _ => None,
        })
    }

    fn presented(&self, of: usize, token: &Presented) -> Option<Token> {
        let mut grants = self.grants().filter(|(key, _)| *key == of);
        let value = match token {
            Presented::None => return None,
            Presented::Last { off } => grants
                .next_back()
                .map_or(1, |(_, token)| token.saturating_add_signed(*off)),
            Presented::First => grants.next().map_or(1, |(_, token)| token),
        };
        Some(Token::new(value.clamp(1, Token::MAX)).unwrap())
    }

    fn apply(&mut self, step: &Step, now_us: u64) -> Reply {
        let now_ms = now_us / 1000;
        match *step {
            Step::Acquire {
                key,
                owner,
                lease_ms,
                meta,
            } => match self.live(key, now_us) {
                Stored::Held {
                    owner: holder,
                    token,
                    ..
                } if holder == owner => {
                    self.0.push(Record::Extended {
                        key,
                        until_ms: now_ms + lease_ms,
                    });
                    Reply::Integer(token)
                }
                Stored::Held { .. } | Stored::Kept { .. } => Reply::Nil,
                Stored::Nothing => {
                    let token = now_us.max(self.high_water() + 1);
                    if token >= 1 << 53 {
                        return Reply::Error(Error::TokensExhausted);
                    }
                    self.0.push(Record::Granted {
                        key,
                        owner,
                        meta,
                        token,
                        at_ms: now_ms,
                        until_ms: now_ms + lease_ms,
                    });
                    Reply::Integer(token)
                }
            },
            Step::Release {
                key,
                owner,
                ref token,
                keep_ms,
            } => {
                let Some(token) = self.held_by(key, owner, token, now_us) else {
                    return Reply::Integer(0);
                };
                self.0.push(match keep_ms {
                    Some(ms) => Record::Kept {
                        key,
                        token,
                        until_ms: now_ms + ms,
                    },
                    None => Record::Freed { key },
                });
                Reply::Integer(1)
            }
            Step::Renew {
                key,
                owner,
                lease_ms,
                ref token,
            } => {
                if self.held_by(key, owner, token, now_us).is_none() {
                    return Reply::Integer(0);
                }
                self.0.push(Record::Extended {
                    key,
                    until_ms: now_ms + lease_ms,
                });
                match self.stored(key) {
                    Stored::Held { until_ms, .. } => Reply::Integer(until_ms - now_ms),
                    _ => unreachable!("it is held"),
                }
            }
            Step::ForceRelease { key, ref token } => {
                let found = match (self.live(key, now_us), self.presented(key, token)) {
                    (Stored::Nothing, _) => false,
                    (_, None) => true,
                    (Stored::Held { token, .. }, Some(given)) => token == given.get(),
                    (Stored::Kept { .. }, Some(_)) => false,
                };
                if found {
                    self.0.push(Record::Freed { key });
                }
                Reply::Integer(found.into())
            }
            Step::Lose { key } => {
                self.0.push(Record::Freed { key });
                Reply::Nil
            }
            Step::Expire { key } => {
                if self.live(key, now_us) == Stored::Nothing {
                    self.0.push(Record::Freed { key });
                }
                Reply::Nil
            }
            Step::Receive { ahead_us } => {
                self.0.push(Record::Received {
                    token: received(now_us, ahead_us),
                });
                Reply::Nil
            }
            Step::Clock(_) => Reply::Nil,
        }
    }

    /// The token of the live hold that `owner` has, if `token` does not contradict it.
    fn held_by(&self, key: usize, owner: usize, token: &Presented, now_us: u64) -> Option<u64> {
        match self.live(key, now_us) {
            Stored::Held {
                owner: holder,
                token: held,
                ..
            } if holder == owner => match self.presented(key, token) {
                Some(given) if given.get() != held => None,
                _ => Some(held),
            },
            _ => None,
        }
    }
}

fn received(now_us: u64, ahead_us: i64) -> u64 {
    now_us
        .saturating_add_signed(ahead_us)
        .clamp(1, (1 << 53) - 1)
}

// The server -----------------------------------------------------------------------------

/// What the module does with the core's decisions, and a replica that hears its effects.
#[derive(Default)]
struct Server {
    now: u64,
    high_water: u64,
    keys: [Option<Lock>; KEYS],
    replica: [Option<Lock>; KEYS],
}

impl Server {
    fn apply(&mut self, step: &Step, history: &History) -> Reply {
        let now = Micros(self.now);
        match *step {
            Step::Acquire {
                key,
                owner,
                lease_ms,
                meta,
            } => {
                let request = Request {
                    owner: OWNERS[owner],
                    lease_ms,
                    meta: METAS[meta],
                };
                let before = self.deadline(key);
                match Lock::acquire(self.keys[key].as_mut(), &request, now, self.high_water) {
                    Ok(Acquire::Granted(lock, token)) => {
                        assert_eq!(lock.token(), token);
                        self.high_water = self.high_water.max(token.get());
                        self.keys[key] = Some(lock);
                        self.publish(key);
                        Reply::Integer(token.get())
                    }
                    Ok(Acquire::Retried { token, extended }) => {
                        assert_eq!(extended, self.deadline(key) != before);
                        if extended {
                            self.publish(key);
                        }
                        Reply::Integer(token.get())
                    }
                    Ok(Acquire::Busy) => Reply::Nil,
                    Err(error) => Reply::Error(error),
                }
            }
            Step::Release {
                key,
                owner,
                ref token,
                keep_ms,
            } => {
                let token = history.presented(key, token);
                let release = self.keys[key].as_ref().map_or(Release::NotHeld, |lock| {
                    lock.release(OWNERS[owner], token, keep_ms, now)
                });
                match release {
                    Release::NotHeld => return Reply::Integer(0),
                    Release::Freed => self.remove(key),
                    Release::Kept(lock) => {
                        self.keys[key] = Some(lock);
                        self.publish(key);
                    }
                }
                Reply::Integer(1)
            }
            Step::Renew {
                key,
                owner,
                lease_ms,
                ref token,
            } => {
                let token = history.presented(key, token);
                let before = self.deadline(key);
                let renew = self.keys[key].as_mut().map_or(Renew::Lost, |lock| {
                    lock.renew(OWNERS[owner], lease_ms, token, now)
                });
                match renew {
                    Renew::Lost => Reply::Integer(0),
                    Renew::Left { ms, extended } => {
                        assert!(ms >= 1);
                        assert_eq!(extended, self.deadline(key) != before);
                        if extended {
                            self.publish(key);
                        }
                        Reply::Integer(ms)
                    }
                }
            }
            Step::ForceRelease { key, ref token } => {
                let token = history.presented(key, token);
                let found = self.keys[key]
                    .as_ref()
                    .is_some_and(|lock| lock.can_force_release(token, now));
                if found {
                    self.remove(key);
                }
                Reply::Integer(found.into())
            }
            Step::Lose { key } => {
                self.remove(key);
                Reply::Nil
            }
            Step::Expire { key } => {
                if self.keys[key]
                    .as_ref()
                    .is_some_and(|lock| lock.is_over(now.floor_ms()))
                {
                    self.remove(key);
                }
                Reply::Nil
            }
            Step::Receive { ahead_us } => {
                self.high_water = self.high_water.max(received(self.now, ahead_us));
                Reply::Nil
            }
            Step::Clock(ref clock) => {
                self.now = match *clock {
                    Clock::By(us) => self.now.saturating_add_signed(us),
                    Clock::ToEnd { key, offset_us } => match &self.keys[key] {
                        Some(lock) => {
                            (lock.deadline().0 * 1000 + 999).saturating_add_signed(offset_us)
                        }
                        None => self.now,
                    },
                };
                Reply::Nil
            }
        }
    }

    fn publish(&mut self, key: usize) {
        let effect = self.keys[key].as_ref().unwrap().to_effect(Micros(self.now));
        let (lock, now) = Lock::from_effect(effect.as_bytes()).unwrap();
        assert_eq!(now, Micros(self.now));
        self.replica[key] = Some(lock);
    }

    fn remove(&mut self, key: usize) {
        self.keys[key] = None;
        self.replica[key] = None;
    }

    fn deadline(&self, key: usize) -> Option<Millis> {
        self.keys[key].as_ref().map(Lock::deadline)
    }

    fn bytes(&self, key: usize) -> Option<Vec<u8>> {
        let lock = self.keys[key].as_ref()?;
        Some(lock.to_stored().as_bytes().to_vec())
    }

    /// The lock in the model's words.
    fn stored(&self, key: usize) -> Stored {
        match &self.keys[key] {
            None => Stored::Nothing,
            Some(Lock::Exclusive(hold)) => {
                assert_eq!(hold.holds, 1);
                Stored::Held {
                    owner: index(&OWNERS, hold.holder.owner()),
                    meta: index(&METAS, hold.holder.meta()),
                    token: hold.token.get(),
                    at_ms: hold.granted.0,
                    until_ms: hold.deadline.0,
                }
            }
            Some(Lock::Kept { token, until }) => Stored::Kept {
                token: token.get(),
                until_ms: until.0,
            },
        }
    }
}

fn index(all: &[&[u8]], one: &[u8]) -> usize {
    all.iter().position(|bytes| *bytes == one).unwrap()
}

// What holds after every step ------------------------------------------------------------

/// The rules that need no model: they are about one key before and after a step.
fn check_change(step: &Step, reply: &Reply, before: Option<&Lock>, after: Option<&Lock>) {
    let (Some(before), Some(after)) = (before, after) else {
        return;
    };
    if before.token() != after.token() {
        assert!(
            matches!((step, reply), (Step::Acquire { .. }, Reply::Integer(t)) if *t == after.token().get()),
            "only a grant changes the token"
        );
    } else if before.hold().is_some() && after.hold().is_some() {
        assert!(
            after.deadline() >= before.deadline(),
            "a hold was shortened"
        );
    }
}

/// Nobody but the holder is served, up to the end of the last millisecond and not longer.
fn check_life(lock: &Lock, high_water: u64) {
    let last = Micros(lock.deadline().0 * 1000 + 999);
    let over = Micros(last.0 + 1);
    let stranger = Request {
        owner: b"stranger",
        lease_ms: 1,
        meta: b"",
    };
    let acquire = |now| Lock::acquire(Some(&mut lock.clone()), &stranger, now, high_water);
    assert_eq!(acquire(last), Ok(Acquire::Busy));
    match Token::next(high_water, over) {
        Ok(token) => {
            assert!(matches!(acquire(over), Ok(Acquire::Granted(_, got)) if got == token));
        }
        Err(error) => assert_eq!(acquire(over), Err(error)),
    }

    let holders = |now| {
        OWNERS
            .iter()
            .filter(|owner| lock.release(owner, None, None, now) == Release::Freed)
            .count()
    };
    assert_eq!(holders(last), usize::from(lock.hold().is_some()));
    assert_eq!(holders(over), 0);
    assert!(lock.can_force_release(None, last));
    assert!(!lock.can_force_release(None, over));
}

fn check_encodings(lock: &Lock, now: u64) {
    let now = Micros(now);
    assert_eq!(
        Lock::from_stored(lock.to_stored().as_bytes()).as_ref(),
        Ok(lock)
    );
    assert_eq!(
        Lock::from_effect(lock.to_effect(now).as_bytes()),
        Ok((lock.clone(), now))
    );
}

fn run(start_us: u64, steps: &[Step]) {
    let mut history = History::default();
    let mut server = Server {
        now: start_us,
        ..Server::default()
    };
    for step in steps {
        let before = server.keys.clone();
        let bytes_before: [_; KEYS] = std::array::from_fn(|key| server.bytes(key));
        let high_water_before = server.high_water;

        let reply = server.apply(step, &history);
        let expected = history.apply(step, server.now);
        assert_eq!(reply, expected, "{step:?} at {}", server.now);
        assert_eq!(server.high_water, history.high_water());

        let refused = match (step, &reply) {
            (Step::Acquire { .. }, Reply::Integer(_)) => false,
            (Step::Acquire { .. }, _) => true,
            (_, Reply::Integer(0)) => true,
            _ => false,
        };
        if refused {
            let bytes: [_; KEYS] = std::array::from_fn(|key| server.bytes(key));
            assert_eq!(bytes, bytes_before, "{step:?} was refused");
            assert_eq!(server.high_water, high_water_before);
        }
        for (key, before) in before.iter().enumerate() {
            assert_eq!(server.stored(key), history.stored(key));
            let after = server.keys[key].as_ref();
            check_change(step, &reply, before.as_ref(), after);
            if let Some(lock) = after {
                check_life(lock, server.high_water);
                check_encodings(lock, server.now);
            }
        }
        assert_eq!(server.replica, server.keys, "an effect was not published");
    }
    let tokens: Vec<u64> = history.grants().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

// Random steps ---------------------------------------------------------------------------

fn lease() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..=5u64, 2 => 1..=10_000u64, 1 => 1..=YEAR_MS]
}

fn presented() -> impl Strategy<Value = Presented> {
    prop_oneof![
        3 => Just(Presented::None),
        3 => Just(Presented::Last { off: 0 }),
        2 => prop_oneof![Just(-1i64), Just(1)].prop_map(|off| Presented::Last { off }),
        1 => Just(Presented::First),
    ]
}

fn clock() -> impl Strategy<Value = Clock> {
    prop_oneof![
        2 => Just(Clock::By(1)),
        1 => Just(Clock::By(-1)),
        2 => (-5i64..=5).prop_map(|ms| Clock::By(ms * 1000)),
        2 => (-20_000i64..=20_000).prop_map(Clock::By),
        1 => prop_oneof![Just(HOUR_US), Just(-HOUR_US)].prop_map(Clock::By),
        3 => (0..KEYS, prop_oneof![Just(0i64), Just(1), Just(-1), Just(-1000)])
            .prop_map(|(key, offset_us)| Clock::ToEnd { key, offset_us }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let owner = || 0..OWNERS.len();
    prop_oneof![
        8 => (key(), owner(), lease(), 0..METAS.len())
            .prop_map(|(key, owner, lease_ms, meta)| Step::Acquire { key, owner, lease_ms, meta }),
        4 => (key(), owner(), presented(), prop::option::of(lease()))
            .prop_map(|(key, owner, token, keep_ms)| Step::Release { key, owner, token, keep_ms }),
        4 => (key(), owner(), lease(), presented())
            .prop_map(|(key, owner, lease_ms, token)| Step::Renew { key, owner, lease_ms, token }),
        1 => (key(), presented()).prop_map(|(key, token)| Step::ForceRelease { key, token }),
        1 => key().prop_map(|key| Step::Lose { key }),
        1 => key().prop_map(|key| Step::Expire { key }),
        1 => prop_oneof![Just(-1i64), Just(0), Just(1), Just(5_000_000)]
            .prop_map(|ahead_us| Step::Receive { ahead_us }),
        8 => clock().prop_map(Step::Clock),
    ]
}

/// The epoch, today, and an hour or less before the tokens run out.
fn start() -> impl Strategy<Value = u64> {
    let end = (1u64 << 53) - 1;
    prop_oneof![
        1 => 0..=5_000u64,
        6 => 1_750_000_000_000_000u64..1_800_000_000_000_000,
        1 => end - 20..=end,
        1 => end - HOUR_US as u64..=end,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_does_what_its_history_says(
        start_us in start(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(start_us, &steps);
    }
}
