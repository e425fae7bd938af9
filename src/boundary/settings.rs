//! Settings that CONFIG SET, redis.conf and MODULE LOADEX can change.

use super::api::api;
use super::trampoline::callback;
use redis_module::raw::{RedisModuleCtx, RedisModuleString, REDISMODULE_ERR, REDISMODULE_OK};
use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An integer setting, `sluice.<name>` to operators. The server checks its range.
pub(crate) struct Setting {
    name: &'static CStr,
    default: u64,
    min: u64,
    max: u64,
    value: AtomicU64,
}

impl Setting {
    pub(crate) const fn new(name: &'static CStr, default: u64, min: u64, max: u64) -> Setting {
        Setting {
            name,
            default,
            min,
            max,
            value: AtomicU64::new(default),
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }
}

/// Registers `settings` and then takes their values from redis.conf or MODULE LOADEX, which
/// fails on a name or value that does not fit.
///
/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn register(
    ctx: *mut RedisModuleCtx,
    settings: &[&'static Setting],
) -> Result<(), String> {
    for setting in settings {
        // SAFETY: `ctx` is OnLoad's; the setting is static, so the pointer to it that the
        // server keeps stays valid.
        let registered = unsafe {
            (api().register_numeric_config)(
                ctx,
                setting.name.as_ptr(),
                setting.default as c_longlong,
                0,
                setting.min as c_longlong,
                setting.max as c_longlong,
                Some(get),
                Some(set),
                None,
                ptr_to(setting),
            )
        };
        if registered != REDISMODULE_OK as c_int {
            return Err(format!("the setting {:?} is refused", setting.name));
        }
    }
    // SAFETY: `ctx` is OnLoad's.
    if unsafe { (api().load_configs)(ctx) } != REDISMODULE_OK as c_int {
        return Err("a setting's value is refused".into());
    }
    Ok(())
}

fn ptr_to(setting: &'static Setting) -> *mut c_void {
    ptr::from_ref(setting).cast_mut().cast()
}

extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    callback("config_get", 0, || of(setting).get() as c_longlong)
}

extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    callback("config_set", REDISMODULE_ERR as c_int, || {
        of(setting).value.store(value as u64, Relaxed);
        REDISMODULE_OK as c_int
    })
}

/// The setting behind the pointer that `register` gave to the server.
fn of(setting: *mut c_void) -> &'static Setting {
    // SAFETY: the server passes back what `ptr_to` made of a static.
    unsafe { &*setting.cast::<Setting>() }
}
