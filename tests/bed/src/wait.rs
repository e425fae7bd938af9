//! Waiting for something that happens soon.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Polls until `probe` returns something; `None` after `timeout` (which is real time).
pub(crate) fn poll<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits up to ten real seconds for `condition`, else panics with `what` was expected.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let found = poll(Duration::from_secs(10), || condition().then_some(()));
    assert!(found.is_some(), "did not happen in 10 s: {what}");
}
