//! MAXHOLD: the end that nothing moves.

use crate::{at, limited, reader, reentrant, writer, Key, NOW, NOW_MS};
use sluice_core::lock::{Renew, Request};
use sluice_core::{Micros, Millis};

/// redisson#5115, #3521: the worker is dead, its watchdog lives.
#[test]
fn maxhold_ends_a_hold_whatever_is_tried() {
    for request in [writer(b"a", 10), reader(b"a", 10)] {
        let mut key = Key::new();
        assert_eq!(key.acquire(&limited(request, 25), NOW), Some(NOW.0));
        assert_eq!(key.hold(b"a").max, Some(Millis(NOW_MS + 25)));
        assert_eq!(key.renew(b"a", 10, at(5)), 10);
        assert_eq!(key.renew(b"a", 100, at(14)), 11);
        let longer = Request {
            lease_ms: 1000,
            ..request
        };
        assert_eq!(key.acquire(&longer, at(15)), Some(NOW.0));
        assert_eq!(key.acquire(&limited(longer, 5000), at(16)), Some(NOW.0));
        assert_eq!(key.acquire(&reentrant(longer), at(17)), Some(NOW.0));
        assert_eq!(key.hold(b"a").holds, 2);
        assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 25));
        assert_eq!(key.renew(b"a", 1000, at(24)), 1);
        assert_eq!(key.renew(b"a", 1000, at(26)), 0);
    }
}

#[test]
fn the_first_lease_is_clipped_too() {
    for (lease_ms, maxhold_ms, left) in [(10, 3, 3), (3, 10, 3), (7, 7, 7), (5, 1, 1)] {
        let mut key = Key::new();
        key.acquire(&limited(writer(b"a", lease_ms), maxhold_ms), NOW);
        assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + left));
    }
}

#[test]
fn maxhold_is_of_the_first_grant_through_upgrade_and_downgrade() {
    let mut key = Key::new();
    key.acquire(&limited(reader(b"a", 10), 25), NOW);
    let upgrade = limited(writer(b"a", 1000), 5000);
    assert_eq!(key.acquire(&upgrade, at(5)), Some(at(5).0));
    assert_eq!(key.hold(b"a").max, Some(Millis(NOW_MS + 25)));
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 25));
    key.downgrade(b"a", at(6));
    assert_eq!(key.renew(b"a", 1000, at(6)), 19);

    // And one that had none gets none.
    let mut key = Key::read_by(&[(b"a", 10)]);
    assert_eq!(key.acquire(&upgrade, at(5)), Some(at(5).0));
    assert_eq!(key.hold(b"a").max, None);
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 1005));
}

/// As any TTL, it stretches by a step back of the clock; it does not move.
#[test]
fn maxhold_is_an_instant() {
    let mut key = Key::new();
    key.acquire(&limited(writer(b"a", 10), 25), NOW);
    let hour_ago = Micros(NOW.0 - 3_600_000_000);
    assert_eq!(key.renew(b"a", 2 * 3_600_000, hour_ago), 3_600_025);
    assert_eq!(key.hold(b"a").deadline, Millis(NOW_MS + 25));
}

/// "the lease now left in ms (≥ 1), or 0: ownership is lost": a hold that MAXHOLD lets live
/// no full millisecond longer is as good as lost, and MRENEW then must not renew its others.
#[test]
fn a_renewal_that_leaves_less_than_a_millisecond_is_lost() {
    for request in [writer(b"a", 10), reader(b"a", 10)] {
        let mut key = Key::new();
        key.acquire(&limited(request, 10), NOW);
        assert_eq!(key.lock().renew(b"a", 5, None, at(10)), Renew::Lost);
    }
}
