//! Server events: the fork of a child, the cron that runs whatever the clock does, and what
//! happens to whole databases.

use super::api::api;
use super::context::Context;
use super::trampoline::callback;
use redis_module::raw::{
    RedisModuleClientInfo, RedisModuleCtx, RedisModuleEvent,
    RedisModuleFlushInfoV1 as RedisModuleFlushInfo,
    RedisModuleSwapDbInfoV1 as RedisModuleSwapDbInfo, REDISMODULE_EVENT_CLIENT_CHANGE,
    REDISMODULE_EVENT_CRON_LOOP, REDISMODULE_EVENT_FLUSHDB, REDISMODULE_EVENT_FORK_CHILD,
    REDISMODULE_EVENT_LOADING, REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    REDISMODULE_EVENT_SWAPDB, REDISMODULE_OK, REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED,
    REDISMODULE_SUBEVENT_FLUSHDB_END, REDISMODULE_SUBEVENT_FORK_CHILD_BORN,
    REDISMODULE_SUBEVENT_LOADING_ENDED,
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
    /// This server has become a primary or a replica.
    pub(crate) role_changed: fn(),
    /// The connection with this id has closed.
    pub(crate) closed: fn(u64),
    /// A database, or with `None` all, has other keys now: flushed, swapped or loaded.
    pub(crate) replaced: fn(Option<i32>),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn subscribe(ctx: *mut RedisModuleCtx, handlers: Handlers) -> Result<(), String> {
    let _ = HANDLERS.set(handlers);
    for id in [
        REDISMODULE_EVENT_FORK_CHILD,
        REDISMODULE_EVENT_CRON_LOOP,
        REDISMODULE_EVENT_FLUSHDB,
        REDISMODULE_EVENT_SWAPDB,
        REDISMODULE_EVENT_LOADING,
        REDISMODULE_EVENT_CLIENT_CHANGE,
        REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ] {
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
    detail: *mut c_void,
) {
    callback("event", (), || {
        // SAFETY: the server's context for this event.
        let ctx = unsafe { Context::new(ctx) };
        let Some(handlers) = HANDLERS.get() else {
            return;
        };
        match (event.id, subevent) {
            (REDISMODULE_EVENT_FORK_CHILD, REDISMODULE_SUBEVENT_FORK_CHILD_BORN) => {
                (handlers.forked)(ctx);
            }
            (REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, _) => (handlers.role_changed)(),
            (REDISMODULE_EVENT_CRON_LOOP, _) => (handlers.cron)(ctx),
            (REDISMODULE_EVENT_FLUSHDB, REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                // SAFETY: a flush brings this structure.
                let flush = unsafe { &*detail.cast::<RedisModuleFlushInfo>() };
                (handlers.replaced)((flush.dbnum >= 0).then_some(flush.dbnum));
            }
            (REDISMODULE_EVENT_SWAPDB, _) => {
                // SAFETY: a swap brings this structure.
                let swap = unsafe { &*detail.cast::<RedisModuleSwapDbInfo>() };
                (handlers.replaced)(Some(swap.dbnum_first));
                (handlers.replaced)(Some(swap.dbnum_second));
            }
            (REDISMODULE_EVENT_CLIENT_CHANGE, REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED) => {
                // SAFETY: such a change brings this structure.
                let client = unsafe { &*detail.cast::<RedisModuleClientInfo>() };
                (handlers.closed)(client.id);
            }
            (REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                (handlers.replaced)(None);
            }
            _ => {}
        }
    });
}
