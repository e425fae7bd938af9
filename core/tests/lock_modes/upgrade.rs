//! From shared to exclusive and back.

use crate::{at, reader, reentrant, token, writer, Key, BUSY, NOW, NOW_MS, UPGRADE_BUSY};
use sluice_core::lock::{Downgrade, Hold, Release, Renew, Request};
use sluice_core::{Lock, Millis};

#[test]
fn the_only_reader_upgrades_before_the_queue_under_a_new_token() {
    let mut key = Key::read_by(&[(b"a", 10)]);
    assert_eq!(key.acquire(&reentrant(reader(b"a", 1)), NOW), Some(NOW.0));
    let first = key.hold(b"a");
    key.others_wait = true;
    assert_eq!(key.acquire(&writer(b"a", 5), at(1)), Some(at(1).0));
    assert_eq!(key.lock().mode(), "exclusive");
    let expected = Hold {
        token: token(at(1).0),
        ..first
    };
    assert_eq!(key.hold(b"a"), expected, "two holds, the longer lease");
    // What its first token promised is over.
    let stale = Some(token(NOW.0));
    assert_eq!(key.lock().renew(b"a", 5, stale, at(1)), Renew::Lost);
}

#[test]
fn a_reentrant_upgrade_adds_a_hold_and_extends() {
    let mut key = Key::read_by(&[(b"a", 10)]);
    let upgrade = reentrant(writer(b"a", 50));
    assert_eq!(key.acquire(&upgrade, NOW), Some(NOW.0 + 1));
    assert_eq!(key.hold(b"a").holds, 2);
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 50));
    assert_eq!(key.hold(b"a").granted, Millis(NOW_MS));
}

#[test]
fn lapsed_readers_do_not_hinder_an_upgrade() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 20), (b"c", 5)]);
    assert_eq!(key.decide(&writer(b"b", 1), at(10)), UPGRADE_BUSY);
    assert_eq!(key.acquire(&writer(b"b", 1), at(11)), Some(at(11).0));
    assert_eq!(key.owners(), [b"b"]);
    assert_eq!(key.hold(b"b").deadline, Millis(NOW_MS + 20));
}

/// redisson#4217: with two readers it is busy at once, and says that waiting is no use.
#[test]
fn an_upgrade_among_readers_is_busy_at_once() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    let before = key.bytes();
    for others_wait in [false, true] {
        key.others_wait = others_wait;
        assert_eq!(key.decide(&writer(b"a", 50), NOW), UPGRADE_BUSY);
        assert_eq!(key.decide(&reentrant(writer(b"b", 50)), NOW), UPGRADE_BUSY);
    }
    assert_eq!(key.bytes(), before);
    // As it is for both, neither waits for the other.
    assert!(matches!(key.release(b"a", NOW), Release::Held { .. }));
    assert_eq!(key.acquire(&writer(b"b", 1), NOW), Some(NOW.0 + 2));
}

#[test]
fn a_downgrade_keeps_the_hold_and_lets_readers_in() {
    let mut key = Key::new();
    let asked = Request {
        maxhold_ms: Some(100),
        meta: b"host",
        ..writer(b"a", 10)
    };
    assert_eq!(key.acquire(&asked, NOW), Some(NOW.0));
    assert_eq!(key.acquire(&reentrant(asked), NOW), Some(NOW.0));
    let first = key.hold(b"a");
    assert_eq!(first.holds, 2);
    let stale = Some(token(NOW.0 + 1));
    assert_eq!(key.lock().downgrade(b"a", stale, NOW), Downgrade::NotHeld);
    assert_eq!(key.lock().downgrade(b"b", None, NOW), Downgrade::NotHeld);
    assert_eq!(key.lock().downgrade(b"a", None, at(11)), Downgrade::NotHeld);
    key.downgrade(b"a", at(10));
    assert_eq!(key.hold(b"a"), first);
    assert_eq!(key.lock().mode(), "shared");

    let already = key.lock().downgrade(b"a", Some(token(NOW.0)), NOW);
    assert_eq!(already, Downgrade::Already);
    assert_eq!(key.acquire(&reader(b"b", 10), NOW), Some(NOW.0 + 1));
    let already = key.lock().downgrade(b"b", None, NOW);
    assert_eq!(already, Downgrade::Already);
}

#[test]
fn a_kept_lock_has_no_readers_either() {
    let mut key = Key::new();
    key.lock = Some(Lock::Kept {
        token: token(NOW.0),
        until: Millis(NOW_MS + 5),
    });
    assert_eq!(key.decide(&reader(b"a", 1), at(5)), BUSY);
    assert_eq!(key.lock().downgrade(b"a", None, NOW), Downgrade::NotHeld);
    assert_eq!(key.lock().revoke(b"a", token(NOW.0), NOW), Release::NotHeld);
    assert!(!key.lock().has(token(NOW.0)));
    assert_eq!(key.acquire(&reader(b"a", 1), at(6)), Some(at(6).0));
    assert_eq!(key.lock().mode(), "shared");
}

/// redisson#891: a reader that was has no say over the writer that is.
#[test]
fn a_former_reader_releases_no_writer() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    assert!(matches!(key.release(b"a", NOW), Release::Held { .. }));
    assert_eq!(key.acquire(&writer(b"b", 10), NOW), Some(NOW.0 + 2));
    let before = key.bytes();
    assert_eq!(key.release(b"a", NOW), Release::NotHeld);
    assert_eq!(key.renew(b"a", 10, NOW), 0);
    assert_eq!(key.bytes(), before);
}
