//! Readers beside each other and before writers.

use crate::{at, reader, reentrant, token, writer, Key, BUSY, NOW, NOW_MS};
use sluice_core::lock::{Acquire, Downgrade, Release, Renew};
use sluice_core::{Error, Lock, Micros, Millis, Token};

#[test]
fn readers_share_and_writers_do_not() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 20)]);
    assert_eq!(key.lock().mode(), "shared");
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 10));
    assert_eq!(key.hold(b"b").deadline, Millis(NOW_MS + 20));
    assert_eq!(key.lock().deadline(), Millis(NOW_MS + 20));
    assert_eq!(key.decide(&writer(b"w", 1), NOW), BUSY);

    let mut key = Key::written_by(b"w", 10);
    assert_eq!(key.lock().mode(), "exclusive");
    assert_eq!(key.decide(&reader(b"a", 1), NOW), BUSY);
    assert_eq!(key.decide(&writer(b"a", 1), NOW), BUSY);
}

#[test]
fn a_writer_waits_exactly_for_the_last_live_reader() {
    let mut key = Key::read_by(&[(b"a", 20), (b"b", 10)]);
    let last = Micros(at(20).0 + 999);
    assert_eq!(key.decide(&writer(b"w", 1), last), BUSY);
    assert_eq!(key.acquire(&writer(b"w", 1), at(21)), Some(at(21).0));
    assert_eq!(key.owners(), [b"w"]);
}

#[test]
fn a_waiting_writer_stops_new_readers_but_none_that_reads() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    key.others_wait = true;
    assert_eq!(key.decide(&reader(b"c", 1), NOW), BUSY);
    assert_eq!(key.acquire(&reader(b"a", 20), NOW), Some(NOW.0));
    assert_eq!(
        key.acquire(&reentrant(reader(b"b", 1)), NOW),
        Some(NOW.0 + 1)
    );
    assert_eq!(key.renew(b"b", 30, NOW), 30);
    // Nor is a reader whose lease is over one that reads.
    assert_eq!(key.decide(&reader(b"a", 1), at(21)), BUSY);
    // Free, but the queue goes first.
    assert_eq!(key.decide(&reader(b"c", 1), at(31)), BUSY);
    assert_eq!(key.decide(&writer(b"c", 1), at(31)), BUSY);
}

/// redisson#7098: b's renewals carry nobody but b.
#[test]
fn a_dead_reader_is_gone_in_time_whatever_others_renew() {
    let mut key = Key::read_by(&[(b"a", 300), (b"b", 300)]);
    assert_eq!(key.renew(b"b", 5000, at(200)), 5000);
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 300));

    let live: Vec<_> = key
        .lock()
        .live_holds(at(400).floor_ms())
        .map(|hold| hold.holder.owner().to_vec())
        .collect();
    assert_eq!(live, [b"b"]);
    // Reads hide it; the next write prunes it.
    assert_eq!(key.owners().len(), 2);
    assert_eq!(key.decide(&writer(b"w", 1), at(400)), BUSY);
    assert_eq!(key.owners().len(), 2);
    assert_eq!(key.renew(b"a", 1000, at(400)), 0);
    assert_eq!(key.release(b"a", at(400)), Release::NotHeld);
    assert_eq!(key.owners().len(), 2);

    assert_eq!(
        key.release(b"b", at(600)),
        Release::Freed {
            granted: Millis(NOW_MS)
        }
    );
}

#[test]
fn a_reader_that_comes_back_after_its_lease_has_a_new_token() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 100)]);
    assert_eq!(key.acquire(&reader(b"a", 10), at(11)), Some(at(11).0));
    let hold = key.hold(b"a");
    assert_eq!(
        (hold.token, hold.granted),
        (token(at(11).0), Millis(NOW_MS + 11))
    );
    assert_eq!(key.owners(), [b"b", b"a"]);
}

#[test]
fn the_last_reader_frees_or_keeps() {
    let keep = |key: &mut Key, owner: &[u8]| key.lock().release(owner, None, Some(7), NOW);
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    assert!(matches!(
        keep(&mut key, b"b"),
        Release::Held {
            ended: Some(Millis(NOW_MS)),
            ..
        }
    ));
    assert_eq!(key.owners(), [b"a"]);
    assert_eq!(
        keep(&mut key, b"a"),
        Release::Kept {
            lock: Lock::Kept {
                token: token(NOW.0),
                until: Millis(NOW_MS + 7)
            },
            granted: Millis(NOW_MS)
        }
    );
    // A lapsed one beside it does not count.
    let mut key = Key::read_by(&[(b"a", 1), (b"b", 10)]);
    assert!(matches!(key.release(b"b", at(2)), Release::Freed { .. }));
}

#[test]
fn a_reader_is_told_apart_by_its_token() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    let before = key.bytes();
    let others = Some(token(NOW.0 + 1));
    assert_eq!(
        key.lock().release(b"a", others, None, NOW),
        Release::NotHeld
    );
    assert_eq!(key.lock().renew(b"a", 50, others, NOW), Renew::Lost);
    assert_eq!(key.lock().downgrade(b"a", others, NOW), Downgrade::NotHeld);
    assert!(!key.lock().is_held_by(b"a", others, NOW));
    assert_eq!(key.bytes(), before);
    assert!(key.lock().is_held_by(b"a", Some(token(NOW.0)), NOW));
}

#[test]
fn force_release_finds_any_live_reader_by_its_token() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 20)]);
    let can = |key: &mut Key, value, now| key.lock().can_force_release(Some(token(value)), now);
    assert!(can(&mut key, NOW.0, at(10)));
    assert!(can(&mut key, NOW.0 + 1, at(10)));
    assert!(!can(&mut key, NOW.0, at(11)));
    assert!(can(&mut key, NOW.0 + 1, at(11)));
    assert!(!can(&mut key, NOW.0 + 2, at(10)));
    assert!(key.lock().can_force_release(None, at(20)));
    assert!(!key.lock().can_force_release(None, at(21)));
}

#[test]
fn without_a_token_left_no_reader_joins_and_none_upgrades() {
    let mut key = Key::read_by(&[(b"a", 1), (b"b", 20)]);
    let before = key.bytes();
    key.high_water = Token::MAX;
    let none = Err(Error::TokensExhausted);
    assert_eq!(key.decide(&reader(b"c", 1), at(2)), none);
    assert_eq!(key.decide(&writer(b"b", 1), at(2)), none);
    assert_eq!(key.decide(&writer(b"w", 1), at(21)), none);
    assert_eq!(key.bytes(), before, "not even pruned");
    let again = key.decide(&reader(b"b", 1), at(2));
    assert_eq!(again, Ok(Acquire::Retried(token(NOW.0 + 1), None)));
}
