//! Server events: the fork of a child, and the cron that runs whatever the clock does.

use super::api::api;
use super::context::Context;
use super::trampoline::callback;
use redis_module::raw::{
    RedisModuleCtx, RedisModuleEvent, REDISMODULE_EVENT_CRON_LOOP, REDISMODULE_EVENT_FORK_CHILD,
    REDISMODULE_OK, REDISMODULE_SUBEVENT_FORK_CHILD_BORN,
};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// What to run on which event.
pub(crate) struct Handlers {
    /// A child has just been forked to write an RDB file or to rewrite the append-only
    /// file: what is propagated now goes behind its snapshot.
    pub(crate) forked: fn(Context),
    /// About ten times a second.
    pub(crate) cron: fn(Context),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn subscribe(ctx: *mut RedisModuleCtx, handlers: Handlers) -> Result<(), String> {
    let _ = HANDLERS.set(handlers);
    for id in [REDISMODULE_EVENT_FORK_CHILD, REDISMODULE_EVENT_CRON_LOOP] {
        let event = RedisModuleEvent { id, dataver: 1 };
        // SAFETY: as the caller promises.
        let subscribed = unsafe { (api().subscribe_to_server_event)(ctx, event, Some(on_event)) };
        if subscribed != REDISMODULE_OK as c_int {
            return Err(format!("server event {id} is not there"));
        }
    }
    Ok(())
}

extern "C" fn on_event(
    ctx: *mut RedisModuleCtx,
    event: RedisModuleEvent,
    subevent: u64,
    _detail: *mut c_void,
) {
    callback("event", (), || {
        // SAFETY: the server's context for this event.
        let ctx = unsafe { Context::new(ctx) };
        match (HANDLERS.get(), event.id, subevent) {
            (
                Some(handlers),
                REDISMODULE_EVENT_FORK_CHILD,
                REDISMODULE_SUBEVENT_FORK_CHILD_BORN,
            ) => (handlers.forked)(ctx),
            (Some(handlers), REDISMODULE_EVENT_CRON_LOOP, _) => (handlers.cron)(ctx),
            _ => {}
        }
    });
}
