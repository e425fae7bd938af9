//! `sluice-lk`: a lock. Its auxiliary data carries the token high-water mark.

use crate::boundary::api::api;
use crate::boundary::args::Text;
use crate::boundary::context::Context;
use crate::boundary::datatype::{self, DataType, Handle, Source, Unlinked};
use crate::boundary::key::Key;
use crate::boundary::trampoline::callback;
use crate::boundary::{clock, log};
use crate::{metrics, sessions, tokens, waiting};
use redis_module::raw::{
    RedisModuleCtx, RedisModuleIO, RedisModuleKeyOptCtx, REDISMODULE_AUX_BEFORE_RDB,
    REDISMODULE_ERR, REDISMODULE_OK,
};
use sluice_core::lock::{Change, LockEffect};
use sluice_core::{Blob, Lock, Malformed, Micros, Millis, State, Token};
use std::ffi::{c_int, c_void, CStr};

static HANDLE: Handle = Handle::new();

impl DataType for Lock {
    const NAME: &'static CStr = c"sluice-lk";
    const EFFECT: &'static CStr = c"sluice.lk";

    fn handle() -> &'static Handle {
        &HANDLE
    }

    fn deadline(&self) -> Millis {
        Lock::deadline(self)
    }

    fn heap(&mut self) -> Option<&mut Box<[u8]>> {
        self.heap_mut()
    }

    fn admit(&self, from: Source) -> Result<(), &'static str> {
        tokens::admit(self.token(), from)
    }

    type Effect = LockEffect;

    fn decode_effect(bytes: &[u8]) -> Result<(LockEffect, Micros), Malformed> {
        LockEffect::decode(bytes)
    }

    fn apply(stored: Option<&mut Lock>, effect: LockEffect, now: Micros) -> Option<Lock> {
        if let Some(token) = effect.token() {
            tokens::raise(token);
        }
        Lock::apply(stored, effect, now)
    }

    fn rebuild(&self) -> Vec<Blob> {
        Lock::rebuild(self)
    }

    fn heap_size(&self) -> usize {
        Lock::heap_size(self)
    }

    fn unlinked(&self, key: Unlinked) {
        let now = clock::now().floor_ms();
        if self.is_over(now) && key.is_primary() {
            metrics::leases_expired(self, now);
        }
        sessions::forget(key.db(), key.name().bytes(), |_| false);
        waiting::touch(key);
    }
}

/// Publishes what a command changed in place in a stored lock.
#[inline]
pub(crate) fn publish(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    change: &Change,
    now: Micros,
) {
    let Some(effect) = key.value().map(|lock| lock.effect(change, now)) else {
        return;
    };
    key.publish_effect(&effect);
    if !change.lapsed.holds.is_empty() {
        for hold in &change.lapsed.holds {
            metrics::LOCKS.lapsed(hold.granted, hold.deadline);
        }
        let lock = key.value();
        sessions::forget(ctx.db(), name.bytes(), |token| {
            lock.as_ref().is_some_and(|lock| lock.has(token))
        });
    }
}

/// A retry or a renewal changed nothing: only if a foreign EXPIRE, PERSIST or RESTORE left
/// the key with another TTL than the deadline inside is that published.
pub(crate) fn mend_ttl(key: &mut Key<'_, Lock>, owner: &[u8], now: Micros) {
    if !key.has_strayed() {
        return;
    }
    if let Some(effect) = key.value().map(|lock| lock.restate(owner, now)) {
        key.publish_effect(&effect);
    }
}

/// A lock of many readers is freed in the background, like any large value.
extern "C" fn free_effort(_: *mut RedisModuleKeyOptCtx, value: *const c_void) -> usize {
    callback("free_effort", 1, || match datatype::borrow::<Lock>(value) {
        Lock::Shared(readers) => readers.len().max(1),
        _ => 1,
    })
}

pub(super) fn register(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    let mut methods = datatype::methods::<Lock>();
    methods.aux_save_triggers = REDISMODULE_AUX_BEFORE_RDB as c_int;
    methods.free_effort2 = Some(free_effort);
    methods.aux_load = Some(load_mark);
    // A server that knows the second takes it instead of the first.
    methods.aux_save = Some(save_mark);
    methods.aux_save2 = Some(save_mark_if_any);
    datatype::register::<Lock>(ctx, methods)
}

/// Redis 7.0: whatever is written or not, the file will need this module to be loaded, and
/// `load_mark` is called; so there is always something for it to read, 0 for no mark.
extern "C" fn save_mark(io: *mut RedisModuleIO, _when: c_int) {
    callback("aux_save", (), || write_mark(io, tokens::high_water()));
}

/// Redis 7.2 and Valkey: a file nothing was written to loads without this module.
extern "C" fn save_mark_if_any(io: *mut RedisModuleIO, _when: c_int) {
    callback("aux_save", (), || match tokens::high_water() {
        0 => {}
        mark => write_mark(io, mark),
    });
}

fn write_mark(io: *mut RedisModuleIO, mark: u64) {
    // SAFETY: `io` is the running save's.
    unsafe {
        (api().save_unsigned)(io, u64::from(Token::VERSION));
        (api().save_unsigned)(io, mark);
    }
}

extern "C" fn load_mark(io: *mut RedisModuleIO, _encver: c_int, _when: c_int) -> c_int {
    callback("aux_load", REDISMODULE_ERR as c_int, || {
        let read = || {
            // SAFETY: `io` is the running load's; a short file is an IO error to be asked
            // for.
            unsafe {
                let value = (api().load_unsigned)(io);
                ((api().is_io_error)(io) == 0).then_some(value)
            }
        };
        match (read(), read()) {
            (Some(version), Some(_)) if version > u64::from(Token::VERSION) => {
                let version = u8::try_from(version).unwrap_or(u8::MAX);
                let why = Malformed::Version(version);
                datatype::refuse(c"sluice-lk auxiliary data", Token::VERSION, why);
                REDISMODULE_ERR as c_int
            }
            (Some(1), Some(0)) => REDISMODULE_OK as c_int,
            (Some(1), Some(mark)) if Token::new(mark).is_some() => {
                tokens::raise(Token::new(mark).expect("checked"));
                REDISMODULE_OK as c_int
            }
            _ => {
                log::warning("sluice-lk auxiliary data: corrupt encoding refused");
                REDISMODULE_ERR as c_int
            }
        }
    })
}
