//! One timer, for the earliest thing that is due.

use super::api::api;
use super::clock;
use super::context::Context;
use super::trampoline::callback;
use redis_module::raw::{RedisModuleCtx, RedisModuleTimerID};
use sluice_core::waiting::Mono;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// How late a timer may fire before it is set anew.
const LATE_US: u64 = 20_000;

/// What to run when the timer fires.
pub(crate) type Due = fn(Context);

static DUE: OnceLock<Due> = OnceLock::new();

thread_local! {
    // The server's main thread only.
    static ARMED: Cell<Option<(RedisModuleTimerID, Mono)>> = const { Cell::new(None) };
    static CTX: Cell<*mut RedisModuleCtx> = const { Cell::new(ptr::null_mut()) };
}

/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn register(ctx: *mut RedisModuleCtx, due: Due) {
    // SAFETY: as the caller promises. The new context is kept for the life of the server,
    // to make timers where there is no other, as while a key goes.
    CTX.set(unsafe { (api().get_detached_thread_safe_context)(ctx) });
    let _ = DUE.set(due);
}

/// Lets the timer fire in `ms`, if it would not fire before anyway. It follows the wall
/// clock, which can step: cron does what it misses.
pub(crate) fn arm(ms: u64) {
    let now = clock::mono();
    let at = Mono(now.0.saturating_add(ms.saturating_mul(1000)));
    if let Some((id, armed)) = ARMED.get() {
        // One that should have fired waits for a clock that stepped back.
        let is_late = armed.0 + LATE_US < now.0;
        if armed <= at && !is_late {
            return;
        }
        // SAFETY: the timer has not fired yet, or `fired` would have cleared it.
        unsafe { (api().stop_timer)(CTX.get(), id, ptr::null_mut()) };
    }
    // SAFETY: the context is kept for good.
    let id = unsafe { (api().create_timer)(CTX.get(), ms as i64, Some(fired), ptr::null_mut()) };
    ARMED.set(Some((id, at)));
}

extern "C" fn fired(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    callback("timer", (), || {
        ARMED.set(None);
        if let Some(due) = DUE.get() {
            // SAFETY: the server's context for this timer.
            due(unsafe { Context::new(ctx) });
        }
    });
}
