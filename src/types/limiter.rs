//! `sluice-rl`: a rate limiter.

use crate::boundary::clock;
use crate::boundary::datatype::{self, DataType, Handle, Source, Unlinked};
use crate::boundary::trampoline::callback;
use redis_module::raw::{RedisModuleCtx, RedisModuleKeyOptCtx};
use sluice_core::limiter::LimiterEffect;
use sluice_core::{Blob, Limiter, Malformed, Micros, Millis};
use std::ffi::{c_void, CStr};

static HANDLE: Handle = Handle::new();

impl DataType for Limiter {
    const NAME: &'static CStr = c"sluice-rl";
    const EFFECT: &'static CStr = c"sluice.rl";
    const TTL_SLACK_MS: u64 = Limiter::TTL_SLACK_MS;

    fn handle() -> &'static Handle {
        &HANDLE
    }

    fn deadline(&self) -> Millis {
        self.matters_until()
    }

    fn heap(&mut self) -> Option<&mut Box<[u8]>> {
        None
    }

    fn admit(&self, _: Source) -> Result<(), &'static str> {
        Ok(())
    }

    type Effect = LimiterEffect;

    fn decode_effect(bytes: &[u8]) -> Result<(LimiterEffect, Micros), Malformed> {
        LimiterEffect::decode(bytes)
    }

    fn apply(stored: Option<&mut Limiter>, effect: LimiterEffect, _: Micros) -> Option<Limiter> {
        Limiter::apply(stored, effect)
    }

    fn rebuild(&self) -> Vec<Blob> {
        vec![Limiter::rebuild(self, clock::now())]
    }

    fn heap_size(&self) -> usize {
        Limiter::heap_size(self)
    }

    fn unlinked(&self, _: Unlinked) {}
}

/// A long log is freed in the background, like any large value.
extern "C" fn free_effort(_: *mut RedisModuleKeyOptCtx, value: *const c_void) -> usize {
    callback("free_effort", 1, || {
        datatype::borrow::<Limiter>(value).entries().max(1)
    })
}

pub(super) fn register(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    let mut methods = datatype::methods::<Limiter>();
    methods.free_effort2 = Some(free_effort);
    datatype::register::<Limiter>(ctx, methods)
}
