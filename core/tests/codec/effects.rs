//! Effects on one reader, which are no whole state.

use crate::{forms, guard, kept, limited, shared, unhex, CLOCK};
use sluice_core::lock::{Acquire, Change, Hold, LockEffect, Release, Renew, Request};
use sluice_core::{Guard, Identity, Lock, Malformed, Micros, Millis, State, Token};

const NOW: Micros = Micros(1_750_000_000_000_000);

/// Reads an effect; what is accepted must be written back as the same bytes.
pub(crate) fn read_effect(bytes: &[u8]) -> Result<LockEffect, Malformed> {
    let (effect, now) = LockEffect::decode(bytes)?;
    assert_eq!(written(&effect, now), bytes);
    Ok(effect)
}

/// The bytes that a primary writes for it, by way of a lock that makes it.
fn written(effect: &LockEffect, now: Micros) -> Vec<u8> {
    let blob = match effect {
        LockEffect::Whole(lock) => lock.effect(&Change::whole(), now),
        LockEffect::Reader(hold) => {
            let mut lock = alone(hold);
            let change = entered(&mut lock, hold);
            // As it was before it entered once more.
            alone(hold).effect(&change, now)
        }
        LockEffect::ReaderGone(token) => {
            let change = gone(*token);
            kept().effect(&change, now)
        }
    };
    blob.as_bytes().to_vec()
}

fn alone(hold: &Hold) -> Lock {
    Lock::apply(None, LockEffect::Reader(hold.clone()), Micros(0)).unwrap()
}

/// The change that is about this reader.
fn entered(lock: &mut Lock, hold: &Hold) -> Change {
    let again = Request {
        is_shared: true,
        is_reentrant: true,
        ..Request::exclusive(hold.holder.owner(), 1)
    };
    let at = Micros(hold.granted.0 * 1000);
    match Lock::acquire(Some(lock), &again, false, at, 0) {
        Ok(Acquire::Retried(token, Some(change))) => {
            assert_eq!(token, hold.token);
            change
        }
        other => panic!("{other:?}"),
    }
}

/// The change that takes this reader away, from beside another.
fn gone(token: Token) -> Change {
    let reader = |token, owner: &[u8]| Hold {
        token,
        deadline: Millis(1),
        granted: Millis(1),
        max: None,
        holds: 1,
        holder: Identity::new(owner, b""),
    };
    let mut lock = alone(&reader(token, b"a"));
    let other = Token::new(if token.get() == 1 { 2 } else { 1 }).unwrap();
    let joins = LockEffect::Reader(reader(other, b"b"));
    assert_eq!(Lock::apply(Some(&mut lock), joins, Micros(0)), None);
    match lock.release(b"a", Some(token), None, Micros(0)) {
        Release::Held { change, ended } => {
            assert_eq!(ended, Some(Millis(1)));
            change
        }
        other => panic!("{other:?}"),
    }
}

fn first_reader() -> Hold {
    let Lock::Shared(readers) = shared() else {
        unreachable!()
    };
    let first = readers.iter().next().unwrap().clone();
    first
}

/// Version, clock, kind, and the hold as in a state.
const READER: &str = "01 5756555453521100 10 \
    1716151413121f00 2726252423221e00 3736353433321d00 0000000000000000 44434241 \
    0300 0200 6f776e 6d61";
/// Version, clock, kind, token.
const READER_GONE: &str = "01 5756555453521100 11 1716151413121f00";

#[test]
fn format_of_a_readers_effect() {
    let effect = LockEffect::Reader(first_reader());
    assert_eq!(written(&effect, CLOCK), unhex(READER));
    assert_eq!(LockEffect::decode(&unhex(READER)), Ok((effect, CLOCK)));

    let Lock::Exclusive(hold) = limited(b"\0", b"") else {
        unreachable!()
    };
    let limited = LockEffect::Reader(hold);
    let bytes = unhex(
        "01 5756555453521100 10 \
         1716151413121f00 2726252423221e00 3736353433321d00 5756555453521e00 44434241 \
         0100 0000 00",
    );
    assert_eq!(written(&limited, CLOCK), bytes);
    assert_eq!(LockEffect::decode(&bytes), Ok((limited, CLOCK)));
}

#[test]
fn format_of_the_effect_of_a_reader_that_is_gone() {
    let effect = LockEffect::ReaderGone(first_reader().token);
    assert_eq!(written(&effect, CLOCK), unhex(READER_GONE));
    assert_eq!(LockEffect::decode(&unhex(READER_GONE)), Ok((effect, CLOCK)));
}

#[test]
fn an_effect_brings_its_highest_token() {
    let first = first_reader().token;
    let second = Token::new(first.get() + 1);
    assert_eq!(LockEffect::Whole(shared()).token(), second);
    assert_eq!(LockEffect::Whole(kept()).token(), Some(first));
    assert_eq!(LockEffect::Reader(first_reader()).token(), Some(first));
    assert_eq!(LockEffect::ReaderGone(first).token(), Some(first));
}

/// A whole state is the same effect to both that read it, and its kinds are no readers'.
#[test]
fn effects_on_readers_are_no_states() {
    for bytes in [unhex(READER), unhex(READER_GONE)] {
        assert_eq!(Lock::from_effect(&bytes), Err(Malformed::Corrupt));
        let stored = [&[1], &bytes[9..]].concat();
        assert_eq!(Lock::from_stored(&stored), Err(Malformed::Corrupt));
    }
    for lock in [shared(), kept(), limited(b"own", b"ma")] {
        let bytes = lock.to_effect(CLOCK);
        assert_eq!(read_effect(bytes.as_bytes()), Ok(LockEffect::Whole(lock)));
    }
    let (_, guard) = forms::<Guard>(&guard())[1].clone();
    assert_eq!(LockEffect::decode(&guard), Err(Malformed::Corrupt));
}

/// Every effect there is, by name.
fn effects() -> Vec<Vec<u8>> {
    let whole = |lock: Lock| lock.to_effect(CLOCK).as_bytes().to_vec();
    vec![
        unhex(READER),
        unhex(READER_GONE),
        whole(shared()),
        whole(kept()),
        whole(limited(b"own", b"ma")),
    ]
}

#[test]
fn truncated_prolonged_and_newer_effects_are_refused() {
    for bytes in effects() {
        assert!(read_effect(&bytes).is_ok());
        for len in 0..bytes.len() {
            assert_eq!(read_effect(&bytes[..len]), Err(Malformed::Corrupt));
        }
        for byte in 0..=255 {
            let longer = [&bytes[..], &[byte]].concat();
            assert_eq!(read_effect(&longer), Err(Malformed::Corrupt));
        }
        let mut damaged = bytes.clone();
        damaged[0] = 0;
        assert_eq!(read_effect(&damaged), Err(Malformed::Corrupt));
        for version in 2..=255 {
            damaged[0] = version;
            let expected = Err(Malformed::Version(version));
            assert_eq!(read_effect(&damaged), expected);
            assert_eq!(read_effect(&damaged[..1]), expected);
        }
    }
}

#[test]
fn no_single_damaged_byte_of_an_effect_panics_or_is_lost() {
    for bytes in effects() {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            for byte in 0..=255 {
                damaged[at] = byte;
                let _ = read_effect(&damaged);
            }
        }
    }
}

#[test]
fn a_readers_effect_has_the_limits_of_a_hold() {
    let valid = unhex(READER);
    let with = |at: usize, value: u64| {
        let mut bytes = valid.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        read_effect(&bytes).map(drop)
    };
    let corrupt = Err(Malformed::Corrupt);
    let (clock, token, deadline, granted, max) = (1, 10, 18, 26, 34);
    assert_eq!(with(clock, Micros::BOUND - 1), Ok(()));
    assert_eq!(with(clock, Micros::BOUND), corrupt);
    assert_eq!(with(token, 0), corrupt);
    assert_eq!(with(token, Token::MAX), Ok(()));
    assert_eq!(with(token, Token::MAX + 1), corrupt);
    assert_eq!(with(deadline, Millis::BOUND), corrupt);
    assert_eq!(with(granted, 0x001e_2223_2425_2627), Ok(()));
    assert_eq!(with(granted, 0x001e_2223_2425_2628), corrupt);
    assert_eq!(with(max, 0x001e_2223_2425_2626), corrupt);
    assert_eq!(with(max, 0x001e_2223_2425_2627), Ok(()));
    assert_eq!(with(max, Millis::BOUND - 1), Ok(()));
    assert_eq!(with(max, Millis::BOUND), corrupt);

    let mut bytes = valid.clone();
    bytes[42..46].fill(0);
    assert_eq!(read_effect(&bytes).map(drop), corrupt, "nobody holds it");

    let with_gone = |token: u64| {
        let bytes = [&unhex(READER_GONE)[..10], &token.to_le_bytes()].concat();
        read_effect(&bytes).map(drop)
    };
    assert_eq!(with_gone(0), corrupt);
    assert_eq!(with_gone(1), Ok(()));
    assert_eq!(with_gone(Token::MAX), Ok(()));
    assert_eq!(with_gone(Token::MAX + 1), corrupt);
}

// What they do to a replica ---------------------------------------------------------------

/// Readers a (until +10), b (until +20) and c (until +30), granted at `NOW`.
fn three() -> Lock {
    let mut lock = None;
    for (i, owner) in [b"a", b"b", b"c"].into_iter().enumerate() {
        let request = Request {
            is_shared: true,
            ..Request::exclusive(owner, 10 * (i as u64 + 1))
        };
        let high_water = NOW.0 + i as u64;
        match Lock::acquire(lock.as_mut(), &request, false, NOW, high_water) {
            Ok(Acquire::Granted(first, _)) => lock = Some(first),
            Ok(Acquire::Joined(..)) => {}
            other => panic!("{other:?}"),
        }
    }
    lock.unwrap()
}

fn owners(lock: &Lock) -> Vec<&[u8]> {
    lock.holds().map(|hold| hold.holder.owner()).collect()
}

fn later(ms: u64) -> Micros {
    Micros(NOW.0 + ms * 1000)
}

/// What a command does to one reader goes out as that reader, not as all of them, and what
/// has lapsed goes with it on both sides.
#[test]
fn one_readers_change_is_one_readers_effect() {
    let mut primary = three();
    let mut replica = primary.clone();
    let Renew::Left(50, Some(change)) = primary.renew(b"b", 50, None, later(11)) else {
        panic!("not renewed");
    };
    assert_eq!(change.lapsed.holds.len(), 1);
    let effect = primary.effect(&change, later(11));
    let (effect, now) = LockEffect::decode(effect.as_bytes()).unwrap();
    assert!(matches!(&effect, LockEffect::Reader(hold) if hold.holder.owner() == b"b"));
    assert_eq!(Lock::apply(Some(&mut replica), effect, now), None);
    assert_eq!(replica, primary);
    assert_eq!(owners(&replica), [b"b", b"c"]);

    let Release::Held { change, ended } = primary.release(b"b", None, None, later(12)) else {
        panic!("not released");
    };
    assert_eq!(
        (change.lapsed.holds.len(), ended),
        (0, Some(NOW.floor_ms()))
    );
    let effect = primary.effect(&change, later(12));
    let (effect, now) = LockEffect::decode(effect.as_bytes()).unwrap();
    assert!(matches!(effect, LockEffect::ReaderGone(_)));
    assert_eq!(Lock::apply(Some(&mut replica), effect, now), None);
    assert_eq!(replica, primary);
    assert_eq!(owners(&replica), [b"c"]);
}

/// The replica's own clock says nothing: it prunes by the primary's.
#[test]
fn an_effect_prunes_by_the_clock_it_carries() {
    let joins = |now| {
        let mut lock = three();
        let effect = LockEffect::Reader(first_reader());
        assert_eq!(Lock::apply(Some(&mut lock), effect, now), None);
        owners(&lock).len()
    };
    // A deadline is its last living millisecond.
    assert_eq!(joins(Micros(0)), 4);
    assert_eq!(joins(Micros(later(10).0 + 999)), 4);
    assert_eq!(joins(later(11)), 3);
    assert_eq!(joins(later(21)), 2);
    assert_eq!(joins(later(31)), 1);
}

#[test]
fn a_readers_effect_replaces_whatever_is_no_shared_lock() {
    let hold = first_reader();
    for mut stored in [None, Some(kept()), Some(limited(b"x", b""))] {
        let effect = LockEffect::Reader(hold.clone());
        let lock = Lock::apply(stored.as_mut(), effect, NOW).unwrap();
        assert!(matches!(lock, Lock::Shared(_)));
        assert!(lock.holds().eq([&hold]));
    }
}

/// An owner has one hold: a new one takes the place of the old, which has another token.
#[test]
fn a_readers_effect_replaces_the_hold_of_the_same_owner_or_token() {
    let mut lock = three();
    let [a, b] = [0, 1].map(|i| three().holds().nth(i).unwrap().clone());
    let new = Hold {
        token: Token::new(NOW.0 + 100).unwrap(),
        ..a.clone()
    };
    let effect = LockEffect::Reader(new.clone());
    assert_eq!(Lock::apply(Some(&mut lock), effect, NOW), None);
    assert_eq!(owners(&lock), [b"b", b"c", b"a"]);
    assert!(!lock.has(a.token) && lock.has(new.token));

    let taken = Hold {
        holder: Identity::new(b"d", b""),
        ..b
    };
    let effect = LockEffect::Reader(taken);
    assert_eq!(Lock::apply(Some(&mut lock), effect, NOW), None);
    assert_eq!(owners(&lock), [b"d", b"c", b"a"]);
    let stored = lock.to_stored();
    assert_eq!(Lock::from_stored(stored.as_bytes()), Ok(lock));
}

#[test]
fn a_reader_that_is_not_there_goes_without_effect() {
    let gone = LockEffect::ReaderGone(Token::new(1).unwrap());
    let mut lock = three();
    assert_eq!(Lock::apply(Some(&mut lock), gone.clone(), NOW), None);
    assert_eq!(lock, three());
    assert_eq!(Lock::apply(None, gone.clone(), NOW), None);
    for mut lock in [kept(), limited(b"x", b"")] {
        let before = lock.clone();
        assert_eq!(Lock::apply(Some(&mut lock), gone.clone(), NOW), None);
        assert_eq!(lock, before);
    }
}

/// Effects for a rewritten file are each about one reader, however many there are, and prune
/// nobody, so that a file loaded at any later time makes the same state.
#[test]
fn a_shared_lock_is_rebuilt_reader_by_reader() {
    let lock = three();
    let effects = lock.rebuild();
    assert_eq!(effects.len(), 3);
    for (effect, hold) in effects.iter().zip(lock.holds()) {
        let expected = (LockEffect::Reader(hold.clone()), Micros(0));
        assert_eq!(LockEffect::decode(effect.as_bytes()), Ok(expected));
    }
    for lock in [kept(), limited(b"x", b"")] {
        let effects = lock.rebuild();
        assert_eq!(effects.len(), 1);
        let expected = (LockEffect::Whole(lock), Micros(0));
        assert_eq!(LockEffect::decode(effects[0].as_bytes()), Ok(expected));
    }
}
