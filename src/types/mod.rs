//! The data types: what is particular to each, beside the callbacks they share.

mod guard;
mod limiter;
pub(crate) mod lock;
pub(crate) mod semaphore;

use redis_module::raw::RedisModuleCtx;

/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn register(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    lock::register(ctx)?;
    semaphore::register(ctx)?;
    guard::register(ctx)?;
    limiter::register(ctx)
}
