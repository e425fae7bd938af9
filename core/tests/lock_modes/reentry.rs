//! The same owner again: a retry, or one hold more.

use crate::{reader, reentrant, token, writer, Key, NOW, NOW_MS};
use sluice_core::lock::{Acquire, Change, Hold, Release, Request};
use sluice_core::Millis;

#[test]
fn a_readers_retry_keeps_token_and_count_and_never_shortens() {
    let mut key = Key::read_by(&[(b"a", 10), (b"b", 10)]);
    let before = key.bytes();
    let shorter = key.decide(&reader(b"a", 5), NOW);
    assert_eq!(shorter, Ok(Acquire::Retried(token(NOW.0), None)));
    assert_eq!(key.bytes(), before);

    let first = key.hold(b"a");
    let other = Request {
        meta: b"other",
        maxhold_ms: Some(3),
        ..reader(b"a", 30)
    };
    assert_eq!(key.acquire(&other, NOW), Some(NOW.0));
    let expected = Hold {
        deadline: Millis(NOW_MS + 30),
        ..first
    };
    assert_eq!(key.hold(b"a"), expected);
    assert_eq!(key.hold(b"b").deadline, Millis(NOW_MS + 10));
}

#[test]
fn an_exclusive_holder_that_asks_shared_stays_exclusive() {
    let mut key = Key::written_by(b"a", 10);
    key.others_wait = true;
    assert_eq!(key.acquire(&reader(b"a", 20), NOW), Some(NOW.0));
    assert_eq!(key.lock().mode(), "exclusive");
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 20));
    assert_eq!(key.hold(b"a").holds, 1);
}

#[test]
fn as_many_releases_as_entries() {
    for request in [writer(b"a", 10), reader(b"a", 10)] {
        let mut key = Key::new();
        assert_eq!(key.acquire(&reentrant(request), NOW), Some(NOW.0));
        assert_eq!(key.hold(b"a").holds, 1, "the first is a grant");
        assert_eq!(key.acquire(&reentrant(request), NOW), Some(NOW.0));
        assert_eq!(key.acquire(&request, NOW), Some(NOW.0));
        assert_eq!(key.acquire(&reentrant(request), NOW), Some(NOW.0));
        assert_eq!(key.hold(b"a").holds, 3, "and a retry is none");
        for left in [2, 1] {
            let keep = key.lock().release(b"a", None, Some(5), NOW);
            assert!(matches!(keep, Release::Held { ended: None, .. }));
            assert_eq!(key.hold(b"a").holds, left);
            assert_eq!(key.hold(b"a").token, token(NOW.0));
        }
        assert!(matches!(key.release(b"a", NOW), Release::Freed { .. }));
    }
}

#[test]
fn a_re_entry_with_a_shorter_lease_still_counts() {
    let mut key = Key::written_by(b"a", 10);
    let shorter = reentrant(writer(b"a", 1));
    assert_eq!(
        key.decide(&shorter, NOW),
        Ok(Acquire::Retried(token(NOW.0), Some(Change::whole())))
    );
    assert_eq!(key.hold(b"a").holds, 2);
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 10));
}
