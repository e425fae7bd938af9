//! `sluice-sm`: a semaphore.

use crate::boundary::args::Text;
use crate::boundary::clock;
use crate::boundary::context::Context;
use crate::boundary::datatype::{self, DataType, Handle, Source, Unlinked};
use crate::boundary::key::Key;
use crate::boundary::trampoline::callback;
use crate::{metrics, sessions, tokens, waiting};
use redis_module::raw::{RedisModuleCtx, RedisModuleKeyOptCtx};
use sluice_core::semaphore::{Change, SemaphoreEffect};
use sluice_core::{Blob, Malformed, Micros, Millis, Semaphore, Token};
use std::ffi::{c_void, CStr};

static HANDLE: Handle = Handle::new();

impl DataType for Semaphore {
    const NAME: &'static CStr = c"sluice-sm";
    const EFFECT: &'static CStr = c"sluice.sm";

    fn handle() -> &'static Handle {
        &HANDLE
    }

    fn deadline(&self) -> Millis {
        Semaphore::deadline(self)
    }

    fn heap(&mut self) -> Option<&mut Box<[u8]>> {
        None
    }

    fn admit(&self, from: Source) -> Result<(), &'static str> {
        tokens::admit(self.last_token(), from)
    }

    type Effect = SemaphoreEffect;

    fn decode_effect(bytes: &[u8]) -> Result<(SemaphoreEffect, Micros), Malformed> {
        SemaphoreEffect::decode(bytes)
    }

    fn apply(
        stored: Option<&mut Semaphore>,
        effect: SemaphoreEffect,
        now: Micros,
    ) -> Option<Semaphore> {
        if let Some(token) = effect.token() {
            tokens::raise(token);
        }
        Semaphore::apply(stored, effect, now)
    }

    fn rebuild(&self) -> Vec<Blob> {
        Semaphore::rebuild(self)
    }

    fn heap_size(&self) -> usize {
        Semaphore::heap_size(self)
    }

    fn gauge(&self) -> u64 {
        self.permits()
    }

    fn unlinked(&self, key: Unlinked) {
        let now = clock::now().floor_ms();
        if self.is_over(now) && key.is_primary() {
            metrics::permits_expired(self, now);
        }
        sessions::forget(key.db(), key.name().bytes(), |_| false);
        waiting::touch(key);
    }
}

/// Publishes what a command changed in place in a stored semaphore.
pub(crate) fn publish(
    ctx: Context,
    key: &mut Key<'_, Semaphore>,
    name: Text<'_>,
    change: &Change,
    now: Micros,
) {
    let Some(effect) = key.value().map(|semaphore| semaphore.effect(change, now)) else {
        return;
    };
    key.publish_effect(&effect);
    if !change.lapsed.holds.is_empty() {
        for hold in &change.lapsed.holds {
            metrics::SEMAPHORES.lapsed(hold.granted, hold.deadline);
        }
        let tokens: Vec<Token> = change.lapsed.holds.iter().map(|hold| hold.token).collect();
        sessions::forget_holds(ctx.db(), name.bytes(), &tokens);
    }
}

/// A retry or a renewal changed nothing: only if a foreign EXPIRE, PERSIST or RESTORE left
/// the key with another TTL than the deadline inside is that published.
pub(crate) fn mend_ttl(key: &mut Key<'_, Semaphore>, token: Token) {
    if !key.has_strayed() {
        return;
    }
    if let Some(effect) = key.value().and_then(|semaphore| semaphore.restate(token)) {
        key.publish_effect(&effect);
    }
}

/// A semaphore of many holders is freed in the background, like any large value.
extern "C" fn free_effort(_: *mut RedisModuleKeyOptCtx, value: *const c_void) -> usize {
    callback("free_effort", 1, || {
        datatype::borrow::<Semaphore>(value).len().max(1)
    })
}

pub(super) fn register(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    let mut methods = datatype::methods::<Semaphore>();
    methods.free_effort2 = Some(free_effort);
    datatype::register::<Semaphore>(ctx, methods)
}
