//! The module's part of INFO.

use super::api::api;
use super::trampoline::callback;
use redis_module::raw::{RedisModuleCtx, RedisModuleInfoCtx, REDISMODULE_OK};
use std::ffi::{c_int, CStr};
use std::sync::OnceLock;

/// Names and values of `INFO sluice`, in order.
pub(crate) type Fields = fn(&mut dyn FnMut(&CStr, u64));

static FIELDS: OnceLock<Fields> = OnceLock::new();

/// Registers the section, which takes its fields from `fields`.
///
/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn register(ctx: *mut RedisModuleCtx, fields: Fields) -> Result<(), String> {
    let _ = FIELDS.set(fields);
    // SAFETY: as the caller promises.
    if unsafe { (api().register_info_func)(ctx, Some(info)) } == REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err("INFO cannot be extended".into())
    }
}

extern "C" fn info(ctx: *mut RedisModuleInfoCtx, _for_crash_report: c_int) {
    callback("info", (), || {
        // SAFETY: the context is the running INFO's; a NULL name is the module's own
        // section. An error means that this section was not asked for.
        let wanted = unsafe { (api().info_add_section)(ctx, std::ptr::null()) };
        if let (true, Some(fields)) = (wanted == REDISMODULE_OK as c_int, FIELDS.get()) {
            fields(&mut |name, value| {
                // SAFETY: as above; the name is NUL-terminated.
                unsafe { (api().info_add_u64)(ctx, name.as_ptr(), value) };
            });
        }
    });
}
