//! Single cases: as many holders as may be, and holders that lapsed.

use crate::holders::{ask, grant, three, NOW};
use sluice_core::semaphore::{Acquire, Release};
use sluice_core::{Error, Micros, Semaphore, State};

/// As many holders as may be, and one more.
#[test]
fn holders_are_limited_and_the_limit_is_read_back() {
    let most = Semaphore::MAX_HOLDERS as u32;
    let owner = |n: u32| n.to_le_bytes();
    let mut semaphore = grant(None, &ask(&owner(0), 1, 1), NOW, 0);
    let mut mark = NOW.0;
    for n in 1..most {
        let owner = owner(n);
        let request = ask(&owner, 1, Semaphore::MAX_PERMITS);
        match Semaphore::acquire(Some(&mut semaphore), &request, false, NOW, mark) {
            Ok(Acquire::Joined(token, _)) => mark = token.get(),
            other => panic!("{n}: {other:?}"),
        }
    }
    let owner = owner(most);
    let request = ask(&owner, 1, Semaphore::MAX_PERMITS);
    let refused = Semaphore::acquire(Some(&mut semaphore), &request, false, NOW, mark);
    assert_eq!(refused, Err(Error::TooManyHolders));
    let stored = semaphore.to_stored();
    let read = Semaphore::from_stored(stored.as_bytes()).unwrap();
    assert_eq!(read, semaphore);
    // The lapsed do not count.
    let later = Micros(NOW.0 + 1_001_000);
    semaphore.renew(&0u32.to_le_bytes(), 5000, None, NOW);
    match Semaphore::acquire(Some(&mut semaphore), &request, false, later, mark) {
        Ok(Acquire::Joined(_, change)) => assert_eq!(change.lapsed.holds.len(), most as usize - 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(semaphore.len(), 2);
}

#[test]
fn a_lapsed_holder_is_hidden_from_reads_and_pruned_by_writes() {
    let mut semaphore = three();
    semaphore.renew(b"b", 5000, None, NOW);
    let before = semaphore.to_stored().as_bytes().to_vec();
    let later = Micros(NOW.0 + 1_001_000);
    assert_eq!(semaphore.live_permits(later.floor_ms()), 1);
    assert_eq!(semaphore.release(b"a", None, later), Release::NotHeld);
    let busy = Semaphore::acquire(Some(&mut semaphore), &ask(b"d", 9, 9), false, later, 0);
    assert_eq!(busy, Ok(Acquire::Busy));
    assert_eq!(semaphore.to_stored().as_bytes(), before);
    // The clock steps back: they live again.
    assert_eq!(semaphore.live_permits(NOW.floor_ms()), 7);
    let joined = Semaphore::acquire(Some(&mut semaphore), &ask(b"d", 8, 9), false, later, 0);
    assert!(matches!(joined, Ok(Acquire::Joined(_, change)) if change.lapsed.holds.len() == 2));
    assert_eq!(semaphore.len(), 2);
}
