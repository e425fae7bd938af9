//! Many holders whose leases have ended leave a part at a time, so that no step is a long one,
//! and replicas, told by the effect's clock, remove the same ones.

use sluice_core::lock::{self, LockEffect};
use sluice_core::semaphore::{self, Semaphore, SemaphoreEffect};
use sluice_core::{Lock, Micros, State};

const T_MS: u64 = 1_796_040_000_000;
const MOST: usize = 256;

fn at(ms: u64) -> Micros {
    Micros((T_MS + ms) * 1000 + 7)
}

fn shared<'a>(owner: &'a [u8], lease_ms: u64) -> lock::Request<'a> {
    lock::Request {
        is_shared: true,
        ..lock::Request::exclusive(owner, lease_ms)
    }
}

fn permits<'a>(owner: &'a [u8], lease_ms: u64) -> semaphore::Request<'a> {
    semaphore::Request {
        owner,
        lease_ms,
        meta: b"",
        permits: 1,
        limit: semaphore::Semaphore::MAX_PERMITS,
    }
}

/// A hold that stays, and one for each of `leases`.
fn readers(leases: &[u64]) -> Lock {
    let mut stored = None;
    let owners = leases.iter().enumerate();
    let all = std::iter::once(("stays".into(), 1_000_000))
        .chain(owners.map(|(n, ms)| (format!("r{n}"), *ms)));
    for (n, (owner, lease_ms)) in all.enumerate() {
        let request = shared(owner.as_bytes(), lease_ms);
        let mark = (T_MS + 1) * 1000 + n as u64;
        match Lock::acquire(stored.as_mut(), &request, false, at(0), mark).unwrap() {
            lock::Acquire::Granted(lock, _) => stored = Some(lock),
            lock::Acquire::Joined(..) => {}
            other => panic!("{other:?}"),
        }
    }
    stored.unwrap()
}

fn holders(leases: &[u64]) -> Semaphore {
    let mut stored = None;
    let owners = leases.iter().enumerate();
    let all = std::iter::once(("stays".into(), 1_000_000))
        .chain(owners.map(|(n, ms)| (format!("r{n}"), *ms)));
    for (n, (owner, lease_ms)) in all.enumerate() {
        let request = permits(owner.as_bytes(), lease_ms);
        let mark = (T_MS + 1) * 1000 + n as u64;
        match Semaphore::acquire(stored.as_mut(), &request, false, at(0), mark).unwrap() {
            semaphore::Acquire::Granted(semaphore, _) => stored = Some(semaphore),
            semaphore::Acquire::Joined(..) => {}
            other => panic!("{other:?}"),
        }
    }
    stored.unwrap()
}

/// Renews what stays, each time for longer, until nobody who lapsed is left: how many went with
/// each renewal. A replica applies each effect twice.
fn renew_readers(mut lock: Lock, now_ms: u64) -> Vec<usize> {
    let mut replica = lock.clone();
    let mut went = Vec::new();
    for more in 1.. {
        let renewed = lock.renew(b"stays", 1_000_000 + more, None, at(now_ms));
        let lock::Renew::Left(_, Some(change)) = renewed else {
            panic!("{renewed:?}");
        };
        let bytes = lock.effect(&change, at(now_ms));
        for _ in 0..2 {
            let (effect, now) = LockEffect::decode(bytes.as_bytes()).unwrap();
            assert_eq!(Lock::apply(Some(&mut replica), effect, now), None);
            assert_eq!(replica, lock);
        }
        if change.lapsed.holds.is_empty() {
            return went;
        }
        went.push(change.lapsed.holds.len());
    }
    unreachable!()
}

fn renew_holders(mut semaphore: Semaphore, now_ms: u64) -> Vec<usize> {
    let mut replica = semaphore.clone();
    let mut went = Vec::new();
    for more in 1.. {
        let renewed = semaphore.renew(b"stays", 1_000_000 + more, None, at(now_ms));
        let semaphore::Renew::Left(_, _, Some(change)) = renewed else {
            panic!("{renewed:?}");
        };
        let bytes = semaphore.effect(&change, at(now_ms));
        for _ in 0..2 {
            let (effect, now) = SemaphoreEffect::decode(bytes.as_bytes()).unwrap();
            assert_eq!(Semaphore::apply(Some(&mut replica), effect, now), None);
            let [one, other] = [&replica, &semaphore].map(|s| s.to_stored().as_bytes().to_vec());
            assert_eq!(one, other);
        }
        if change.lapsed.holds.is_empty() {
            return went;
        }
        went.push(change.lapsed.holds.len());
    }
    unreachable!()
}

#[test]
fn those_that_lapsed_at_different_times_leave_a_part_at_a_time() {
    let leases: Vec<u64> = (1..=1000).collect();
    let parts = vec![MOST, MOST, MOST, 1000 - 3 * MOST];
    assert_eq!(renew_readers(readers(&leases), 2000), parts);
    assert_eq!(renew_holders(holders(&leases), 2000), parts);
    // Half of them are over.
    let parts = vec![MOST, 500 - MOST];
    assert_eq!(renew_readers(readers(&leases), 501), parts);
    assert_eq!(renew_holders(holders(&leases), 501), parts);
}

#[test]
fn those_that_lapsed_in_one_millisecond_leave_together() {
    let mut leases = vec![5; 400];
    leases.extend([6; 300]);
    leases.extend([7; 300]);
    let parts = vec![400, 300, 300];
    assert_eq!(renew_readers(readers(&leases), 2000), parts);
    assert_eq!(renew_holders(holders(&leases), 2000), parts);
}

#[test]
fn a_few_leave_at_once() {
    let leases: Vec<u64> = (1..=20).collect();
    assert_eq!(renew_readers(readers(&leases), 2000), [20]);
    assert_eq!(renew_holders(holders(&leases), 2000), [20]);
}

/// However many are still stored, they count for nothing.
#[test]
fn who_lapsed_and_has_not_left_takes_no_permit() {
    let mut semaphore = holders(&(1..=1000).collect::<Vec<_>>());
    let request = semaphore::Request {
        limit: 2,
        ..permits(b"new", 1000)
    };
    let mark = (T_MS + 5000) * 1000;
    let got = Semaphore::acquire(Some(&mut semaphore), &request, false, at(2000), mark).unwrap();
    assert!(matches!(got, semaphore::Acquire::Joined(..)), "{got:?}");
    assert_eq!(semaphore.live_permits(at(2000).floor_ms()), 2);
    let request = semaphore::Request {
        limit: 2,
        ..permits(b"third", 1000)
    };
    let got = Semaphore::acquire(Some(&mut semaphore), &request, false, at(2000), mark + 1);
    assert_eq!(got, Ok(semaphore::Acquire::Busy));
}
