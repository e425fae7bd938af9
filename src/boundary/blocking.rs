//! Blocked clients: how they are answered, and every way they can leave on their own.
//!
//! A blocked client is in exactly one of three states. It waits: the registry has it. It is
//! answered: [`answer`] was called and the server will call [`reply`] and [`free`] in this
//! turn of its loop. Or it is gone, and the server calls only [`free`]. The handle must be
//! unblocked exactly once, also for a client that has left; whoever takes the waiter out of
//! the registry does it.

use super::api::api;
use super::context::{Context, Reply};
use super::trampoline::callback;
use redis_module::raw::{
    RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString, REDISMODULE_OK,
};
use sluice_core::waiting::WaiterId;
use sluice_core::Error;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

/// What a waiter is told in the end.
pub(crate) struct Answer {
    pub(crate) reply: Result<Reply, Error>,
    /// Called when the reply has been handed over to the server. An answer that is dropped
    /// without that never reached its client.
    pub(crate) handed_over: Option<Box<dyn FnOnce()>>,
}

/// Told of a waiter that leaves on its own: its client disconnected or was killed, CLIENT
/// UNBLOCK, a change of role. Says whether it was still waiting.
pub(crate) type Left = fn(WaiterId) -> bool;

static LEFT: OnceLock<Left> = OnceLock::new();

pub(crate) fn on_leave(left: Left) {
    let _ = LEFT.set(left);
}

/// Blocks the client of the running command. To be called only where
/// [`Context::may_block`], and to be followed by no other reply.
pub(crate) fn block(ctx: Context) -> WaiterId {
    // SAFETY: the context is the running command's. Timeout 0 is none: the server would
    // look at it only a few times a second, we have timers.
    unsafe {
        let handle =
            (api().block_client)(ctx.as_ptr(), Some(reply), Some(timed_out), Some(free), 0);
        (api().set_disconnect_callback)(handle, Some(disconnected));
        WaiterId(handle as u64)
    }
}

/// Answers a waiter that has just been taken out of the registry.
pub(crate) fn answer(id: WaiterId, answer: Answer) {
    unblock(id, Box::into_raw(Box::new(answer)).cast());
}

fn unblock(id: WaiterId, private: *mut c_void) {
    // SAFETY: the handle is valid until it is unblocked, which whoever took it out of the
    // registry does, once.
    unsafe { (api().unblock_client)(id.0 as *mut RedisModuleBlockedClient, private) };
}

fn left(id: WaiterId) -> bool {
    LEFT.get().is_some_and(|left| left(id))
}

/// The server hands an answer over.
extern "C" fn reply(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    callback("reply", (), || {
        // SAFETY: the private data of this client is what `answer` made; it is freed only
        // afterwards, by `free`.
        let (ctx, answer) = unsafe {
            let private: *mut Answer = (api().get_blocked_client_private_data)(ctx).cast();
            (Context::new(ctx), private.as_mut())
        };
        let Some(answer) = answer else {
            return;
        };
        match answer.reply {
            Ok(reply) => ctx.reply(reply),
            Err(error) => ctx.reply_error(error),
        }
        if let Some(handed_over) = answer.handed_over.take() {
            handed_over();
        }
    });
    REDISMODULE_OK as c_int
}

/// CLIENT UNBLOCK … TIMEOUT: as if the wait had ended.
extern "C" fn timed_out(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    callback("timed_out", (), || {
        // SAFETY: the server calls this with the context of a blocked client of ours.
        let (ctx, handle) = unsafe {
            let handle = (api().get_blocked_client_handle)(ctx);
            (Context::new(ctx), handle)
        };
        ctx.reply(Reply::Nil);
        let id = WaiterId(handle as u64);
        if left(id) {
            unblock(id, ptr::null_mut());
        }
    });
    REDISMODULE_OK as c_int
}

/// Every other way to leave. An answer on its way finds no client then, and is dropped.
extern "C" fn disconnected(_ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    callback("disconnected", (), || {
        let id = WaiterId(handle as u64);
        if left(id) {
            unblock(id, ptr::null_mut());
        }
    });
}

extern "C" fn free(_ctx: *mut RedisModuleCtx, private: *mut c_void) {
    callback("free_answer", (), || {
        // SAFETY: what `answer` made, passed back once, never NULL here.
        drop(unsafe { Box::from_raw(private.cast::<Answer>()) });
    });
}
