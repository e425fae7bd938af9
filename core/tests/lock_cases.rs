//! The lock's edges, and faults reported against other lock libraries, one scenario each.

use sluice_core::lock::{Acquire, Change, Hold, Release, Renew, Request};
use sluice_core::{Error, Identity, Lock, Micros, Millis, Token};

/// A clock in the middle of a millisecond.
const NOW: Micros = Micros(1_750_000_000_000_300);
const NOW_MS: u64 = 1_750_000_000_000;

fn at_ms(ms: u64) -> Micros {
    Micros(ms * 1000)
}

fn request(owner: &[u8], lease_ms: u64) -> Request<'_> {
    Request::exclusive(owner, lease_ms)
}

/// While nobody waits for the key.
fn acquire(
    stored: Option<&mut Lock>,
    request: &Request<'_>,
    now: Micros,
    high_water: u64,
) -> Result<Acquire, Error> {
    Lock::acquire(stored, request, false, now, high_water)
}

const BUSY: Acquire = Acquire::Busy { is_upgrade: false };
const FREED: Release = Release::Freed {
    granted: Millis(NOW_MS),
};

/// The only hold in it.
fn hold(lock: &Lock) -> &Hold {
    let holds: Vec<_> = lock.holds().collect();
    assert_eq!(holds.len(), 1);
    holds[0]
}

fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

/// Owner `a` holds it since `NOW` for ten ms.
fn held() -> Lock {
    match acquire(None, &request(b"a", 10), NOW, 0) {
        Ok(Acquire::Granted(lock, _)) => lock,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grant_is_stored_as_asked() {
    let asked = Request {
        meta: b"host",
        ..request(b"a", 10)
    };
    let hold = Hold {
        token: token(NOW.0),
        deadline: Millis(NOW_MS + 10),
        granted: Millis(NOW_MS),
        max: None,
        holds: 1,
        holder: Identity::new(b"a", b"host"),
    };
    assert_eq!(
        acquire(None, &asked, NOW, 0),
        Ok(Acquire::Granted(Lock::Exclusive(hold), token(NOW.0)))
    );
}

#[test]
fn the_deadline_counts_from_the_floor_of_now() {
    for us in [0, 1, 999] {
        match acquire(None, &request(b"a", 1), Micros(NOW_MS * 1000 + us), 0) {
            Ok(Acquire::Granted(lock, _)) => assert_eq!(lock.deadline(), Millis(NOW_MS + 1)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_hold_lives_through_the_millisecond_of_its_deadline() {
    let last = Micros((NOW_MS + 10) * 1000 + 999);
    let over = at_ms(NOW_MS + 11);
    let mut lock = held();
    assert_eq!(
        acquire(Some(&mut lock.clone()), &request(b"b", 1), last, NOW.0),
        Ok(BUSY)
    );
    assert_eq!(lock.release(b"a", None, None, last), FREED);
    assert_eq!(
        lock.clone().renew(b"a", 1, None, last),
        Renew::Left(1, Some(Change::whole()))
    );
    assert!(lock.can_force_release(None, last));

    assert!(matches!(
        acquire(Some(&mut lock.clone()), &request(b"b", 1), over, NOW.0),
        Ok(Acquire::Granted(..))
    ));
    assert_eq!(lock.release(b"a", None, None, over), Release::NotHeld);
    assert_eq!(lock.clone().renew(b"a", 1, None, over), Renew::Lost);
    assert!(!lock.can_force_release(None, over));
}

#[test]
fn the_same_owner_after_its_lease_ended_is_a_new_grant() {
    let mut lock = held();
    match acquire(
        Some(&mut lock),
        &request(b"a", 10),
        at_ms(NOW_MS + 11),
        NOW.0,
    ) {
        Ok(Acquire::Granted(again, got)) => {
            assert_eq!(got, token((NOW_MS + 11) * 1000));
            assert_eq!(hold(&again).granted, Millis(NOW_MS + 11));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_token_left_nothing_is_granted_but_a_retry_is_answered() {
    let mut lock = held();
    assert_eq!(
        acquire(None, &request(b"b", 1), NOW, Token::MAX),
        Err(Error::TokensExhausted)
    );
    assert_eq!(
        acquire(
            Some(&mut lock),
            &request(b"b", 1),
            at_ms(NOW_MS + 11),
            Token::MAX
        ),
        Err(Error::TokensExhausted)
    );
    assert_eq!(lock, held());
    assert_eq!(
        acquire(Some(&mut lock), &request(b"a", 10), NOW, Token::MAX),
        Ok(Acquire::Retried(token(NOW.0), None))
    );
}

#[test]
fn a_retry_keeps_everything_but_the_deadline_of_the_first_grant() {
    let mut lock = held();
    let later = Request {
        meta: b"other",
        ..request(b"a", 10)
    };
    assert_eq!(
        acquire(Some(&mut lock), &later, at_ms(NOW_MS + 5), NOW.0),
        Ok(Acquire::Retried(token(NOW.0), Some(Change::whole())))
    );
    let hold = hold(&lock);
    assert_eq!(hold.deadline, Millis(NOW_MS + 15));
    assert_eq!(hold.granted, Millis(NOW_MS));
    assert_eq!(hold.holds, 1);
    assert_eq!(hold.holder, Identity::new(b"a", b""));
}

#[test]
fn a_kept_lock_refuses_everyone_until_its_time_is_past() {
    let mut lock = held();
    let mut kept = Lock::Kept {
        token: token(NOW.0),
        until: Millis(NOW_MS + 7),
    };
    assert_eq!(
        lock.release(b"a", Some(token(NOW.0)), Some(7), NOW),
        Release::Kept {
            lock: kept.clone(),
            granted: Millis(NOW_MS)
        }
    );
    assert_eq!(kept.holds().count(), 0);
    assert_eq!(kept.deadline(), Millis(NOW_MS + 7));
    for owner in [b"a", b"b"] {
        let last = Micros((NOW_MS + 7) * 1000 + 999);
        assert_eq!(
            acquire(Some(&mut kept.clone()), &request(owner, 1), last, NOW.0),
            Ok(BUSY)
        );
        assert!(matches!(
            acquire(
                Some(&mut kept.clone()),
                &request(owner, 1),
                at_ms(NOW_MS + 8),
                NOW.0
            ),
            Ok(Acquire::Granted(..))
        ));
        assert_eq!(kept.release(owner, None, None, NOW), Release::NotHeld);
        assert_eq!(kept.release(owner, None, Some(50), NOW), Release::NotHeld);
        assert_eq!(kept.clone().renew(owner, 1, None, NOW), Renew::Lost);
    }
}

#[test]
fn keep_may_be_shorter_than_the_lease_that_was_left() {
    assert_eq!(
        held().release(b"a", None, Some(1), NOW),
        Release::Kept {
            lock: Lock::Kept {
                token: token(NOW.0),
                until: Millis(NOW_MS + 1)
            },
            granted: Millis(NOW_MS)
        }
    );
}

#[test]
fn force_release_with_a_token_needs_a_live_holder_of_it() {
    let lock = held();
    assert!(lock.can_force_release(None, NOW));
    assert!(lock.can_force_release(Some(token(NOW.0)), NOW));
    assert!(!lock.can_force_release(Some(token(NOW.0 - 1)), NOW));
    assert!(!lock.can_force_release(Some(token(NOW.0 + 1)), NOW));
    assert!(!lock.can_force_release(Some(token(NOW.0)), at_ms(NOW_MS + 11)));

    let kept = Lock::Kept {
        token: token(NOW.0),
        until: Millis(NOW_MS),
    };
    assert!(kept.can_force_release(None, NOW));
    assert!(!kept.can_force_release(Some(token(NOW.0)), NOW));
    assert!(!kept.can_force_release(None, at_ms(NOW_MS + 1)));
}

#[test]
fn a_lease_stretches_by_a_step_back_of_the_clock() {
    let mut lock = held();
    let hour_ago = at_ms(NOW_MS - 3_600_000);
    assert_eq!(
        acquire(Some(&mut lock), &request(b"b", 1), hour_ago, NOW.0),
        Ok(BUSY)
    );
    assert_eq!(
        lock.renew(b"a", 10, None, hour_ago),
        Renew::Left(3_600_010, None)
    );
    assert_eq!(lock, held());
}

#[test]
fn tokens_rise_when_the_clock_stepped_back() {
    match acquire(None, &request(b"b", 1), at_ms(1), NOW.0) {
        Ok(Acquire::Granted(lock, got)) => {
            assert_eq!(got, token(NOW.0 + 1));
            assert_eq!(lock.deadline(), Millis(2));
        }
        other => panic!("{other:?}"),
    }
}

/// redisson#7272, redis-semaphore PR#177: the state is gone or over when the renewal comes.
#[test]
fn a_renewal_that_comes_late_brings_nothing_back() {
    let mut lapsed = held();
    assert_eq!(
        lapsed.renew(b"a", 1000, None, at_ms(NOW_MS + 11)),
        Renew::Lost
    );
    assert_eq!(
        lapsed.renew(b"a", 1000, Some(token(NOW.0)), at_ms(NOW_MS + 11)),
        Renew::Lost
    );
    assert_eq!(lapsed, held());
}

/// redlock-rb#76.
#[test]
fn an_acquire_whose_reply_was_lost_is_answered_with_the_same_token() {
    let mut lock = held();
    assert_eq!(
        acquire(Some(&mut lock), &request(b"a", 10), NOW, NOW.0),
        Ok(Acquire::Retried(token(NOW.0), None))
    );
    assert_eq!(lock.release(b"a", None, None, NOW), FREED);
}

/// ShedLock#2583.
#[test]
fn an_expired_holder_cannot_release_its_successor() {
    let later = at_ms(NOW_MS + 11);
    let Ok(Acquire::Granted(mut successor, _)) =
        acquire(Some(&mut held()), &request(b"b", 10), later, NOW.0)
    else {
        panic!("not granted");
    };
    assert_eq!(successor.release(b"a", None, None, later), Release::NotHeld);

    // An owner that is not unique per acquisition is told apart by its token.
    let Ok(Acquire::Granted(mut successor, _)) =
        acquire(Some(&mut held()), &request(b"a", 10), later, NOW.0)
    else {
        panic!("not granted");
    };
    assert_eq!(
        successor.release(b"a", Some(token(NOW.0)), None, later),
        Release::NotHeld
    );
}

/// redisson#1110, #2144.
#[test]
fn a_second_shorter_lease_shortens_nothing() {
    let mut lock = held();
    assert_eq!(
        acquire(Some(&mut lock), &request(b"a", 1), NOW, NOW.0),
        Ok(Acquire::Retried(token(NOW.0), None))
    );
    assert_eq!(lock.renew(b"a", 1, None, NOW), Renew::Left(10, None));
    assert_eq!(lock, held());
}
