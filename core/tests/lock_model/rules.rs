//! What holds after every step, whatever the model says.

use crate::history::Stored;
use crate::server::{bytes, holding, Server};
use crate::steps::{Reply, Step, KEYS, OWNERS};
use sluice_core::lock::{Acquire, Hold, LockEffect, Release, Request};
use sluice_core::{Lock, Micros, State, Token};

/// One key before and after a step.
pub(crate) fn check_change(key: usize, step: &Step, reply: &Reply, before: &Lock, after: &Lock) {
    let find = |lock: &Lock, token: Token| lock.holds().find(|hold| hold.token == token).cloned();
    for new in after.holds() {
        let Some(old) = find(before, new.token) else {
            assert!(
                matches!((step, reply), (Step::Acquire(_), Reply::Integer(token)) if *token == new.token.get()),
                "only a grant makes a token"
            );
            continue;
        };
        assert!(new.deadline >= old.deadline, "a hold was shortened");
        assert!(new.max.is_none_or(|max| new.deadline <= max), "MAXHOLD");
        let first = |hold: &Hold| (hold.granted, hold.max, hold.holder.clone());
        assert_eq!(first(new), first(&old), "all else is the first grant's");
        let is_its_own = step.hold() == Some((key, new.holder.owner()));
        if !is_its_own {
            assert_eq!(*new, old, "somebody else's hold moved");
        }
        match step {
            Step::Acquire(ask) if is_its_own && ask.is_reentrant && !reply.is_negative() => {
                assert_eq!(new.holds, old.holds + 1);
            }
            Step::Release { .. } if is_its_own => {
                assert!(new.holds == old.holds || new.holds == old.holds - 1);
                assert_eq!(new.deadline, old.deadline);
            }
            _ => assert_eq!(new.holds, old.holds),
        }
    }
    if let (Lock::Shared(_), Lock::Exclusive(hold), Reply::Integer(token)) = (before, after, reply)
    {
        assert_eq!(hold.token.get(), *token);
        let holder = hold.holder.owner();
        if let Some(reader) = before.holds().find(|hold| hold.holder.owner() == holder) {
            assert!(reader.token < hold.token, "an upgrade has a new token");
        }
    }
    if let (Lock::Exclusive(old), Lock::Shared(_)) = (before, after) {
        if matches!(step, Step::Downgrade { .. }) {
            assert_eq!(after.holds().collect::<Vec<_>>(), [old]);
        }
    }
}

/// What the lock says of itself, now.
pub(crate) fn check_answers(lock: &Lock, stored: &Stored, live: &Stored, now: Micros) {
    let now_ms = now.floor_ms();
    assert_eq!(lock.is_over(now_ms), *live == Stored::Nothing);
    let holds: Vec<_> = lock.live_holds(now_ms).map(holding).collect();
    assert_eq!(holds, live.holds());
    if let Some(latest) = holds.iter().map(|hold| hold.until_ms).max() {
        assert_eq!(lock.deadline().0, latest, "the latest live one");
    }
    let highest = match stored {
        Stored::Kept { token, .. } => *token,
        stored => stored.holds().iter().map(|hold| hold.token).max().unwrap(),
    };
    assert_eq!(lock.token().map(Token::get), Some(highest));
    for (owner, name) in OWNERS.iter().enumerate() {
        let own = live.holds().iter().find(|hold| hold.owner == owner);
        assert_eq!(lock.is_held_by(name, None, now), own.is_some());
        let exclusive = own.filter(|_| matches!(live, Stored::Exclusive(_)));
        assert_eq!(
            lock.exclusive_token_of(name, now).map(Token::get),
            exclusive.map(|hold| hold.token)
        );
    }
    for hold in lock.holds() {
        assert!(lock.has(hold.token));
        let is_live = !hold.is_over(now_ms);
        let owner = hold.holder.owner();
        assert_eq!(lock.is_held_by(owner, Some(hold.token), now), is_live);
        assert_eq!(lock.can_force_release(Some(hold.token), now), is_live);
    }
}

/// Up to the end of the last millisecond, and not longer, is it kept from a stranger.
pub(crate) fn check_life(lock: &Lock, high_water: u64) {
    let last = Micros(lock.deadline().0 * 1000 + 999);
    let over = Micros(last.0 + 1);
    let acquire = |is_shared, others_wait, now| {
        let stranger = Request {
            is_shared,
            ..Request::exclusive(b"stranger", 1)
        };
        Lock::acquire(
            Some(&mut lock.clone()),
            &stranger,
            others_wait,
            now,
            high_water,
        )
    };
    let busy = Ok(Acquire::Busy { is_upgrade: false });
    for (is_shared, others_wait) in [(false, false), (false, true), (true, false), (true, true)] {
        let joins = is_shared && !others_wait && matches!(lock, Lock::Shared(_));
        match acquire(is_shared, others_wait, last) {
            Ok(Acquire::Joined(got, _)) if joins => {
                assert_eq!(Token::next(high_water, last), Ok(got));
            }
            Err(error) if joins => assert_eq!(Token::next(high_water, last), Err(error)),
            other => {
                assert!(!joins);
                assert_eq!(other, busy);
            }
        }
        let free = acquire(is_shared, others_wait, over);
        match Token::next(high_water, over) {
            _ if others_wait => assert_eq!(free, busy),
            Ok(token) => {
                assert!(matches!(free, Ok(Acquire::Granted(_, got)) if got == token));
            }
            Err(error) => assert_eq!(free, Err(error)),
        }
    }

    let holders = |now| {
        OWNERS
            .iter()
            .filter(|owner| lock.clone().release(owner, None, None, now) != Release::NotHeld)
            .count()
    };
    let latest = lock.holds().filter(|hold| hold.deadline == lock.deadline());
    assert_eq!(holders(last), latest.count());
    assert_eq!(holders(over), 0);
    assert!(lock.can_force_release(None, last));
    assert!(!lock.can_force_release(None, over));
}

/// What is stored comes back as it was: from its bytes, its effect, a rewritten file.
pub(crate) fn check_encodings(lock: &Lock, now: Micros) {
    let stored = lock.to_stored();
    assert_eq!(Lock::from_stored(stored.as_bytes()).as_ref(), Ok(lock));
    let effect = lock.to_effect(now);
    assert_eq!(
        Lock::from_effect(effect.as_bytes()),
        Ok((lock.clone(), now))
    );
    assert_eq!(
        LockEffect::decode(effect.as_bytes()),
        Ok((LockEffect::Whole(lock.clone()), now))
    );
    for times in [1, 2] {
        let mut rebuilt = None;
        for effect in lock.rebuild() {
            for _ in 0..times {
                let (effect, now) = LockEffect::decode(effect.as_bytes()).unwrap();
                if let Some(lock) = Lock::apply(rebuilt.as_mut(), effect, now) {
                    rebuilt = Some(lock);
                }
            }
        }
        assert_eq!(rebuilt.unwrap().to_stored().as_bytes(), stored.as_bytes());
    }
}

pub(crate) fn check_replicas(server: &Server) {
    let primary = bytes(&server.keys);
    for replica in &server.replicas {
        assert_eq!(bytes(&replica.keys), primary, "an effect is missing");
        for key in 0..KEYS {
            assert_eq!(replica.keys[key], server.keys[key]);
        }
    }
}
