//! Ten thousand readers on one lock: what is done to one of them is done to no other.

use sluice_core::lock::{Acquire, Change, LockEffect, Release, Renew, Request};
use sluice_core::{Blob, Lock, Micros, Millis, State, Token};

const NOW: Micros = Micros(1_750_000_000_000_000);
const NOW_MS: u64 = 1_750_000_000_000;
const MANY: u64 = 10_000;

fn at(ms: u64) -> Micros {
    Micros((NOW_MS + ms) * 1000)
}

/// In no order that follows the tokens'.
fn owner(i: u64) -> Vec<u8> {
    format!("owner-{}", i * 7919 % MANY).into_bytes()
}

/// So that leases end in another order than they began, several in each millisecond.
fn lease_ms(i: u64) -> u64 {
    1 + i * 7 % 1000
}

fn reader(owner: &[u8], lease_ms: u64) -> Request<'_> {
    Request {
        is_shared: true,
        ..Request::exclusive(owner, lease_ms)
    }
}

fn token(i: u64) -> Token {
    Token::new(NOW.0 + i).unwrap()
}

/// A primary, and a replica that hears its effects.
struct Pair {
    primary: Lock,
    replica: Lock,
}

impl Pair {
    fn publish(&mut self, change: &Change, now: Micros) -> Blob {
        let effect = self.primary.effect(change, now);
        let (heard, at) = LockEffect::decode(effect.as_bytes()).unwrap();
        assert_eq!(Lock::apply(Some(&mut self.replica), heard, at), None);
        effect
    }

    fn len(&self) -> usize {
        match (&self.primary, &self.replica) {
            (Lock::Shared(primary), Lock::Shared(replica)) => {
                assert_eq!(primary.len(), replica.len());
                primary.len()
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(&self) {
        assert_eq!(self.primary, self.replica);
        assert_eq!(
            self.primary.to_stored().as_bytes(),
            self.replica.to_stored().as_bytes()
        );
    }
}

/// Reader i joined at `NOW` under token `NOW + i` for `lease_ms(i)`.
fn crowd() -> Pair {
    let Ok(Acquire::Granted(primary, first)) =
        Lock::acquire(None, &reader(&owner(0), lease_ms(0)), false, NOW, 0)
    else {
        panic!("not granted");
    };
    assert_eq!(first, token(0));
    let replica = primary.clone();
    let mut pair = Pair { primary, replica };
    for i in 1..MANY {
        let (owner, high_water) = (owner(i), NOW.0 + i - 1);
        let request = reader(&owner, lease_ms(i));
        let lock = Some(&mut pair.primary);
        match Lock::acquire(lock, &request, false, NOW, high_water).unwrap() {
            Acquire::Joined(got, change) => {
                assert_eq!((got, change.lapsed.holds.len()), (token(i), 0));
                // As long as one reader, not as all.
                assert!(pair.publish(&change, NOW).as_bytes().len() < 100);
            }
            other => panic!("{other:?}"),
        }
    }
    pair
}

#[test]
fn each_has_its_own_token_and_deadline() {
    let pair = crowd();
    pair.check();
    assert_eq!(pair.len() as u64, MANY);
    for (i, hold) in pair.primary.holds().enumerate() {
        let i = i as u64;
        assert_eq!(hold.token, token(i));
        assert_eq!(hold.holder.owner(), owner(i));
        assert_eq!(hold.deadline, Millis(NOW_MS + lease_ms(i)));
        assert_eq!(hold.holds, 1);
    }
    assert_eq!(pair.primary.deadline(), Millis(NOW_MS + 1000));
    assert_eq!(pair.primary.token(), Some(token(MANY - 1)));
}

#[test]
fn a_renewal_is_of_one() {
    let mut pair = crowd();
    for i in (0..MANY).step_by(97) {
        let owner = owner(i);
        let renew = pair.primary.renew(&owner, 5000 + i, Some(token(i)), NOW);
        let Renew::Left(left, Some(change)) = renew else {
            panic!("{renew:?}");
        };
        assert_eq!((left, change.lapsed.holds.len()), (5000 + i, 0));
        assert!(pair.publish(&change, NOW).as_bytes().len() < 100);
    }
    for (i, hold) in pair.primary.holds().enumerate() {
        let i = i as u64;
        let lease_ms = if i.is_multiple_of(97) {
            5000 + i
        } else {
            lease_ms(i)
        };
        assert_eq!(hold.deadline, Millis(NOW_MS + lease_ms));
    }
    pair.check();
}

#[test]
fn a_retry_is_of_one() {
    let mut pair = crowd();
    for i in (0..MANY).step_by(89) {
        let owner = owner(i);
        let again = Request {
            is_reentrant: true,
            ..reader(&owner, 1)
        };
        let lock = Some(&mut pair.primary);
        match Lock::acquire(lock, &again, true, NOW, NOW.0 + MANY).unwrap() {
            Acquire::Retried(got, Some(change)) => {
                assert_eq!(got, token(i));
                pair.publish(&change, NOW);
            }
            other => panic!("{other:?}"),
        }
    }
    for (i, hold) in pair.primary.holds().enumerate() {
        assert_eq!(hold.holds, if i % 89 == 0 { 2 } else { 1 });
    }
    pair.check();
}

#[test]
fn releases_in_any_order_leave_the_others_until_nobody_is_left() {
    let mut pair = crowd();
    for i in 0..MANY {
        // Neither in the order of tokens, nor of owners, nor of ends.
        let i = i * 3331 % MANY;
        let left = pair.len();
        match pair.primary.release(&owner(i), None, None, NOW) {
            Release::Held { change, ended } => {
                assert_eq!(
                    (change.lapsed.holds.len(), ended),
                    (0, Some(Millis(NOW_MS)))
                );
                assert_eq!(pair.publish(&change, NOW).as_bytes().len(), 18);
                assert!(!pair.primary.has(token(i)));
                assert_eq!(pair.len(), left - 1);
            }
            Release::Freed { granted } => {
                assert_eq!((left, granted), (1, Millis(NOW_MS)));
                return;
            }
            other => panic!("{other:?}"),
        }
        if left.is_multiple_of(1000) {
            pair.check();
        }
    }
    panic!("not freed");
}

/// Exactly the lapsed ones: up to their last millisecond they count.
#[test]
fn a_write_prunes_exactly_who_has_lapsed() {
    let mut pair = crowd();
    let Renew::Left(_, Some(change)) = pair.primary.renew(&owner(0), 100_000, None, NOW) else {
        panic!("not renewed");
    };
    pair.publish(&change, NOW);
    let lives = |i: u64, ms: u64| i == 0 || lease_ms(i) >= ms;
    let (mut left, mut lease) = (MANY, 100_000);
    for ms in [1, 2, 3, 10, 500, 501, 999, 1000, 1001, 1002] {
        // A read and a busy reply hide them, and prune nobody.
        assert_eq!(pair.len() as u64, left);
        let stay = (0..MANY).filter(|i| lives(*i, ms)).count() as u64;
        let live = pair.primary.live_holds(at(ms).floor_ms());
        assert_eq!(live.count() as u64, stay);
        let writer = Request::exclusive(b"w", 1);
        let busy = Lock::acquire(Some(&mut pair.primary), &writer, false, at(ms), NOW.0);
        assert_eq!(busy, Ok(Acquire::Busy { is_upgrade: false }));
        assert_eq!(pair.len() as u64, left);

        // Many leave in parts (`lapsed_holders.rs`).
        loop {
            lease += 1000;
            let renew = pair.primary.renew(&owner(0), lease, None, at(ms));
            let Renew::Left(_, Some(change)) = renew else {
                panic!("{renew:?}");
            };
            left -= change.lapsed.holds.len() as u64;
            pair.publish(&change, at(ms));
            assert_eq!(pair.len() as u64, left);
            if left == stay {
                break;
            }
            assert!(left > stay && change.lapsed.holds.len() >= 256, "at {ms}");
        }
        assert_eq!(left, stay, "at {ms}");
        let tokens: Vec<_> = pair.primary.holds().map(|hold| hold.token).collect();
        let expected: Vec<_> = (0..MANY).filter(|i| lives(*i, ms)).map(token).collect();
        assert_eq!(tokens, expected);
        pair.check();
    }
    assert_eq!(left, 1);
    let upgrade = Request::exclusive(b"owner-0", 1);
    let lock = Some(&mut pair.primary);
    let got = Lock::acquire(lock, &upgrade, true, at(1002), NOW.0 + MANY);
    assert!(matches!(got, Ok(Acquire::Granted(Lock::Exclusive(_), _))));
}

#[test]
fn all_of_them_come_back_from_bytes_and_from_a_rewritten_file() {
    let lock = crowd().primary;
    let bytes = lock.to_stored().as_bytes().to_vec();
    assert_eq!(Lock::from_stored(&bytes).as_ref(), Ok(&lock));
    let mut rebuilt: Option<Lock> = None;
    for effect in lock.rebuild() {
        assert!(effect.as_bytes().len() < 100);
        let (effect, now) = LockEffect::decode(effect.as_bytes()).unwrap();
        if let Some(lock) = Lock::apply(rebuilt.as_mut(), effect, now) {
            rebuilt = Some(lock);
        }
    }
    assert_eq!(rebuilt.unwrap().to_stored().as_bytes(), bytes);
}
