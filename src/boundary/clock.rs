//! The server's clock.

use super::api::api;
use sluice_core::waiting::Mono;
use sluice_core::Micros;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, to be read once per command.
///
/// Where the server has a frozen command time (Redis 7.2, Valkey), that one, so that every
/// command of a MULTI or a script sees the same instant. Else the real-time clock, which on
/// Linux is no system call. Before the epoch counts as the epoch.
pub(crate) fn now() -> Micros {
    match api().cached_microseconds {
        // SAFETY: takes nothing and reads a variable of the server.
        Some(cached) => Micros(u64::try_from(unsafe { cached() }).unwrap_or(0)),
        None => Micros(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
        ),
    }
}

/// The monotonic clock, for how long a client waits.
pub(crate) fn mono() -> Mono {
    // SAFETY: takes nothing and reads the clock.
    Mono(unsafe { (api().monotonic_microseconds)() })
}
