//! Holds taken back, whose connection closed or never read its grant.

use crate::{at, reader, reentrant, token, writer, Key, NOW, NOW_MS};
use sluice_core::lock::Release;
use sluice_core::Millis;

#[test]
fn a_revocation_takes_all_holds_of_one() {
    let mut key = Key::new();
    for _ in 0..3 {
        key.acquire(&reentrant(writer(b"a", 10)), NOW);
    }
    let freed = Release::Freed {
        granted: Millis(NOW_MS),
    };
    assert_eq!(key.lock().revoke(b"a", token(NOW.0), NOW), freed);

    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    key.acquire(&reentrant(reader(b"a", 10)), NOW);
    let revoked = key.lock().revoke(b"a", token(NOW.0), NOW);
    assert!(matches!(
        revoked,
        Release::Held {
            ended: Some(Millis(NOW_MS)),
            ..
        }
    ));
    assert_eq!(key.owners(), [b"b"]);
    let revoked = key.lock().revoke(b"b", token(NOW.0 + 1), NOW);
    assert_eq!(revoked, freed);
}

#[test]
fn a_revocation_finds_only_the_grant_it_is_about() {
    let mut key = Key::written_by(b"a", 10);
    let before = key.bytes();
    let mut revoke = |owner: &[u8], value| key.lock().revoke(owner, token(value), NOW);
    assert_eq!(revoke(b"a", NOW.0 + 1), Release::NotHeld);
    assert_eq!(revoke(b"b", NOW.0), Release::NotHeld);
    assert_eq!(key.bytes(), before);
}

/// A session closes after its reader's lease ended: there is no effect, so nothing may
/// change, or the digests of primary and replica part.
#[test]
fn a_revocation_of_a_lapsed_hold_changes_nothing() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 50)]);
    key.acquire(&reentrant(reader(b"a", 10)), NOW);
    let before = key.bytes();
    let late = key.lock().revoke(b"a", token(NOW.0), at(11));
    assert_eq!(late, Release::NotHeld);
    assert_eq!(key.bytes(), before);

    let mut key = Key::written_by(b"a", 10);
    key.acquire(&reentrant(writer(b"a", 10)), NOW);
    let before = key.bytes();
    let late = key.lock().revoke(b"a", token(NOW.0), at(11));
    assert_eq!(late, Release::NotHeld);
    assert_eq!(key.bytes(), before);
}

#[test]
fn a_revocation_by_another_owner_changes_no_reader() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    key.acquire(&reentrant(reader(b"a", 10)), NOW);
    let before = key.bytes();
    let other = key.lock().revoke(b"b", token(NOW.0), NOW);
    assert_eq!(other, Release::NotHeld);
    assert_eq!(key.bytes(), before);
}
