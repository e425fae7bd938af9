//! Sluice: locks with fencing tokens, leased semaphores and rate limiters as native commands
//! of Redis and Valkey.
//!
//! Four rooms. `sluice_core` (in `core/`) decides, and knows no server. [`boundary`] is where
//! the server is: the module API, and nearly all `unsafe`. [`types`] holds what the server
//! calls for each kind of value. [`commands`] declares every command in one table and has a
//! small file for each: parse, decide, store, publish, reply.

mod boundary;
mod commands;
mod limiters;
mod metrics;
mod sessions;
mod settings;
mod tokens;
mod types;
mod waiting;

use boundary::api::{self, api};
use boundary::events::{self, Handlers};
use boundary::{blocking, command, info, log, timer, trampoline};
use redis_module::alloc::RedisAlloc;
use redis_module::raw::{
    self, RedisModuleCtx, REDISMODULE_OPTIONS_HANDLE_IO_ERRORS,
    REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD,
};
use redis_module::{redis_module, Context, RedisString, Status};
use sessions::ClientId;
use std::ffi::c_int;

redis_module! {
    name: "sluice",
    version: 100, // 0.1.0: major * 10_000 + minor * 100 + patch
    allocator: (RedisAlloc, RedisAlloc),
    data_types: [],
    init: on_load,
    commands: [],
}

fn on_load(ctx: &Context, _args: &[RedisString]) -> Status {
    if let Err(lacking) = api::probe() {
        ctx.log_warning(&format!(
            "sluice needs Redis 7.0 or later, or Valkey: this server has no {lacking}"
        ));
        return Status::Err;
    }
    trampoline::log_panics();
    // SAFETY: this is OnLoad, and its context.
    let loaded = trampoline::callback("load", Err("see above".into()), || unsafe { load(ctx.ctx) });
    match loaded {
        Ok(()) => Status::Ok,
        Err(why) => {
            log::warning(&format!("the module cannot be loaded: {why}"));
            Status::Err
        }
    }
}

/// # Safety
/// `ctx` must be the context of OnLoad.
unsafe fn load(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    // SAFETY: as the caller promises.
    unsafe {
        (api().set_module_options)(ctx, OPTIONS as c_int);
        types::register(ctx)?;
        command::register(ctx, commands::COMMANDS)?;
        boundary::settings::register(ctx, &settings::ALL)?;
        info::register(ctx, metrics::fields)?;
        events::subscribe(
            ctx,
            Handlers {
                forked: tokens::forked,
                cron: |ctx| {
                    tokens::propagate_if_due(ctx);
                    limiters::catch_up(ctx);
                    waiting::cron(ctx);
                },
                replaced: waiting::replaced_db,
                role_changed: waiting::role_changed,
                closed: |id| waiting::closed(ClientId(id)),
            },
        )?;
        timer::register(ctx, |ctx| {
            tokens::propagate_if_due(ctx);
            limiters::catch_up(ctx);
            waiting::serve(ctx);
        });
        blocking::on_leave(waiting::left);
        Ok(())
    }
}

/// Errors of a load are ours to handle; a key is signalled as modified only when we say so
/// (the crate's header lacks the name for that); our values survive a replica that loads
/// from its primary while serving reads.
const OPTIONS: u32 = REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
    | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
    | REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
