//! The server's clock.

use super::api::api;
use sluice_core::waiting::Mono;
use sluice_core::Micros;

/// Now, to be read once per command.
///
/// Where the server has a frozen command time (Redis 7.2, Valkey), that one, so that every
/// command of a MULTI or a script sees the same instant. Else the real-time clock, which on
/// Linux is no system call. Before the epoch counts as the epoch.
pub(crate) fn now() -> Micros {
    match api().cached_microseconds {
        // SAFETY: takes nothing and reads a variable of the server.
        Some(cached) => Micros(u64::try_from(unsafe { cached() }).unwrap_or(0)),
        None => real_time(),
    }
}

/// Not `SystemTime`, whose arithmetic costs more than reading the clock does.
fn real_time() -> Micros {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` is a timespec to be filled in; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut at) };
    let (seconds, nanos) = (u64::try_from(at.tv_sec), at.tv_nsec as u64);
    Micros(seconds.map_or(0, |seconds| seconds * 1_000_000 + nanos / 1000))
}

/// The monotonic clock, for how long a client waits.
pub(crate) fn mono() -> Mono {
    // SAFETY: takes nothing and reads the clock.
    Mono(unsafe { (api().monotonic_microseconds)() })
}
