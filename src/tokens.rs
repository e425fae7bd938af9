//! The token high-water mark of this server: the highest token it ever issued, loaded or
//! received. It only rises, whatever happens to the keys.

use crate::boundary::context::Context;
use sluice_core::{State, Token};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The command that carries the mark to replicas and into the append-only file.
pub(crate) const EFFECT: &CStr = c"sluice.effect-token";

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

/// A rewritten append-only file holds keys only, and a free lock has none: without this the
/// mark would be lost with it. What is propagated right after the fork lands behind the
/// rewritten part. During a pause nothing may be propagated; the cron event catches up.
pub(crate) fn propagate_after_fork(ctx: Context) {
    FILE_LACKS_MARK.store(true, Relaxed);
    propagate_if_due(ctx);
}

/// Propagates the mark if the file lacks it and the server allows propagation now.
pub(crate) fn propagate_if_due(ctx: Context) {
    if !FILE_LACKS_MARK.load(Relaxed) || ctx.must_not_propagate() {
        return;
    }
    FILE_LACKS_MARK.store(false, Relaxed);
    if let Some(mark) = Token::new(high_water()) {
        let blob = mark.to_effect(crate::boundary::clock::now());
        ctx.replicate_keyless_effect(EFFECT, &blob);
    }
}
