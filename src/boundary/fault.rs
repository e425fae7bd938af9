//! Panics on request, for the tests of the trampoline. Without the feature `faults`, which
//! no release has, this is nothing.

/// Panics when the environment variable SLUICE_FAULT named this callback at load.
#[cfg(feature = "faults")]
pub(crate) fn trip(callback: &'static str) {
    use std::sync::LazyLock;
    static WANTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("SLUICE_FAULT").ok());
    if WANTED.as_deref() == Some(callback) {
        panic!("fault asked for in {callback}");
    }
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn trip(_callback: &'static str) {}
