//! `sluice-fn`: a fence guard.

use crate::boundary::clock;
use crate::boundary::datatype::{self, DataType, Handle, Source, Unlinked};
use redis_module::raw::RedisModuleCtx;
use sluice_core::{Blob, Guard, Malformed, Micros, Millis, State};
use std::ffi::CStr;

static HANDLE: Handle = Handle::new();

impl DataType for Guard {
    const NAME: &'static CStr = c"sluice-fn";
    const EFFECT: &'static CStr = c"sluice.fn";

    fn handle() -> &'static Handle {
        &HANDLE
    }

    fn deadline(&self) -> Millis {
        self.until
    }

    fn heap(&mut self) -> Option<&mut Box<[u8]>> {
        None
    }

    /// A guard never raises the high-water mark: whatever it remembers harms nobody else.
    fn admit(&self, _: Source) -> Result<(), &'static str> {
        Ok(())
    }

    type Effect = Guard;

    fn decode_effect(bytes: &[u8]) -> Result<(Guard, Micros), Malformed> {
        Guard::from_effect(bytes)
    }

    fn apply(_: Option<&mut Guard>, effect: Guard, _: Micros) -> Option<Guard> {
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
    datatype::register::<Guard>(ctx, datatype::methods::<Guard>())
}
