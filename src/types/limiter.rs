//! `sluice-rl`: a rate limiter.

use crate::boundary::clock;
use crate::boundary::datatype::{self, DataType, Handle, Source, Unlinked};
use redis_module::raw::RedisModuleCtx;
use sluice_core::{Blob, Limiter, Malformed, Micros, Millis, State};
use std::ffi::CStr;

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

    type Effect = Limiter;

    fn decode_effect(bytes: &[u8]) -> Result<(Limiter, Micros), Malformed> {
        Limiter::from_effect(bytes)
    }

    fn apply(_: Option<&mut Limiter>, effect: Limiter, _: Micros) -> Option<Limiter> {
        Some(effect)
    }

    fn rebuild(&self) -> Vec<Blob> {
        vec![self.to_effect(clock::now())]
    }

    fn heap_size(&self) -> usize {
        0
    }

    fn unlinked(&self, _: Unlinked) {}
}

pub(super) fn register(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    datatype::register::<Limiter>(ctx, datatype::methods::<Limiter>())
}
