//! The token high-water mark of this server: the highest token it ever issued, loaded or
//! received. It only rises, whatever happens to the keys.

use crate::boundary::context::Context;
use crate::boundary::datatype::Source;
use crate::boundary::{clock, timer};
use sluice_core::{State, Token};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The command that carries the mark to replicas and into the append-only file.
pub(crate) const EFFECT: &CStr = c"sluice.hw";

// Only the server's main thread touches these; atomics are the safe way to say static.
static HIGH_WATER: AtomicU64 = AtomicU64::new(0);
static FILE_LACKS_MARK: AtomicBool = AtomicBool::new(false);

/// 0 while no token was ever seen.
#[inline]
pub(crate) fn high_water() -> u64 {
    HIGH_WATER.load(Relaxed)
}

#[inline]
pub(crate) fn raise(token: Token) {
    if token.get() > high_water() {
        HIGH_WATER.store(token.get(), Relaxed);
    }
}

/// A value that comes from a file or a RESTORE raises the mark to its highest token. From a
/// client that must not lie far above both the mark and the clock: one payload could push the
/// counter to its end.
pub(crate) fn admit(highest: Option<Token>, from: Source) -> Result<(), &'static str> {
    let Some(token) = highest else {
        return Ok(());
    };
    if token.get() > high_water()
        && !token.is_restorable(high_water(), clock::now())
        && !from.is_trusted()
    {
        return Err("RESTORE refused: its token is more than 24 hours ahead of the clock");
    }
    raise(token);
    Ok(())
}

/// A rewritten append-only file holds keys only, and a free lock has none: without this the
/// mark would be lost with it. What is propagated after the fork lands behind the rewritten
/// part, which becomes the file only in a later cron.
///
/// Not right here: the fork may be the work of a client's command (BGSAVE, or a replica's
/// PSYNC), and the server would take that command for a write and propagate it as well.
pub(crate) fn forked(_: Context) {
    FILE_LACKS_MARK.store(true, Relaxed);
    timer::arm(0);
}

/// From the timer and from cron: propagates the mark if the file lacks it and the server
/// allows propagation now, which it does not during a pause.
pub(crate) fn propagate_if_due(ctx: Context) {
    if !FILE_LACKS_MARK.load(Relaxed) || ctx.must_not_propagate() {
        return;
    }
    FILE_LACKS_MARK.store(false, Relaxed);
    if let Some(mark) = Token::new(high_water()) {
        let blob = mark.to_effect(clock::now());
        ctx.replicate_keyless_effect(EFFECT, &blob);
    }
}
