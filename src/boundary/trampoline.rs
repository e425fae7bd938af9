//! The way in: every call from the server passes here.
//!
//! A panic must not cross into C, where it would end the server. [`callback`] stops it: the
//! message and its place go to the server's log, the caller gets a harmless answer, and the
//! server lives on.

use super::args::Args;
use super::context::{Context, Reply};
use super::{fault, log};
use redis_module::raw::{RedisModuleCtx, RedisModuleString, REDISMODULE_OK};
use sluice_core::Error;
use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

/// The body of a command: it parses, decides, applies, propagates, and says what to reply.
pub(crate) type Body = fn(Context, Args<'_>) -> Result<Reply, Error>;

/// Runs a command's body and sends its reply.
///
/// # Safety
/// To be called with what the server passes to a command.
#[inline]
pub(crate) unsafe fn command(
    name: &'static str,
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    body: Body,
) -> c_int {
    // SAFETY: the server passes a context and `argc` strings that live while this runs.
    let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc as usize)) };
    match callback(name, Err(Error::Internal), || body(ctx, args)) {
        Ok(reply) => ctx.reply(reply),
        Err(Error::WrongArity) => ctx.reply_wrong_arity(name),
        Err(error) => ctx.reply_error(error),
    }
    REDISMODULE_OK as c_int
}

/// Runs `body`, or gives `otherwise` if it panics.
///
/// Nothing of ours is left half-changed by that: bodies change stored state in one step,
/// after everything that can fail.
#[inline]
pub(crate) fn callback<T>(name: &'static str, otherwise: T, body: impl FnOnce() -> T) -> T {
    let run = || {
        fault::trip(name);
        body()
    };
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => value,
        Err(payload) => {
            // A payload with a Drop that panics would get past us; forgetting it cannot.
            std::mem::forget(payload);
            log::warning(&format!("{name} failed: the panic is logged above"));
            otherwise
        }
    }
}

/// Sends the message and place of every panic to the server's log instead of stderr.
pub(crate) fn log_panics() {
    panic::set_hook(Box::new(|panic| log::warning(&format!("bug: {panic}"))));
}

/// Declares the `extern "C"` entry of a command, under a name that profilers can find.
macro_rules! entry {
    ($symbol:ident, $name:literal, $body:path) => {
        #[no_mangle]
        pub(crate) extern "C" fn $symbol(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: only the server calls this, as the handler of the command.
            unsafe { crate::boundary::trampoline::command($name, ctx, argv, argc, $body) }
        }
    };
}
pub(crate) use entry;
