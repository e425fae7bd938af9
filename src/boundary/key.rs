//! An opened key, typed.

use super::api::api;
use super::args::Text;
use super::context::Context;
use super::datatype::{self, DataType, Stored};
use redis_module::raw::{
    RedisModuleKey, REDISMODULE_KEYTYPE_EMPTY, REDISMODULE_READ, REDISMODULE_WRITE,
};
use sluice_core::{Blob, Error, Micros, Millis};
use std::ffi::c_int;
use std::ptr;

/// A key that is open while this lives.
///
/// Opening for writing deletes a key whose TTL is past, and propagates that. Closing signals
/// nothing (NO_IMPLICIT_SIGNAL_MODIFIED), so that a busy reply aborts no WATCH and invalidates
/// no cache: whoever changes the value calls [`Key::publish`].
pub(crate) struct Key<'a, T: DataType> {
    ctx: Context,
    name: Text<'a>,
    /// NULL only for a missing key opened for reading.
    handle: *mut RedisModuleKey,
    /// The value of our type, NULL when there is none.
    stored: *mut Stored<T>,
    /// The value's gauge as it has been counted.
    gauge: u64,
}

impl<'a, T: DataType> Key<'a, T> {
    pub(crate) fn open_to_read(ctx: Context, name: Text<'a>) -> Result<Self, Error> {
        Self::open(ctx, name, REDISMODULE_READ)
    }

    pub(crate) fn open_to_write(ctx: Context, name: Text<'a>) -> Result<Self, Error> {
        Self::open(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE)
    }

    fn open(ctx: Context, name: Text<'a>, mode: u32) -> Result<Self, Error> {
        let key = Self::open_any(ctx, name, mode);
        if key.stored.is_null() && !key.is_empty() {
            return Err(Error::WrongType);
        }
        Ok(key)
    }

    /// Opens a key to overwrite whatever is there, as an effect does.
    pub(crate) fn open_to_overwrite(ctx: Context, name: Text<'a>) -> Self {
        Self::open_any(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE)
    }

    fn open_any(ctx: Context, name: Text<'a>, mode: u32) -> Self {
        // SAFETY: context and name live while the callback runs, and so does the key. The
        // server accepts a NULL handle when asked for its type, and answers NULL for what
        // is no module value. A value of our type is a box that we made (see `set`,
        // `rdb_load` and `copy` of the data type).
        let (handle, stored) = unsafe {
            let handle = (api().open_key)(ctx.as_ptr(), name.as_ptr(), mode as c_int);
            let found = (api().module_type_get_type)(handle);
            let stored = if !found.is_null() && found == T::handle().as_ptr() {
                (api().module_type_get_value)(handle).cast()
            } else {
                ptr::null_mut()
            };
            (handle, stored)
        };
        let mut key: Key<'_, T> = Key {
            ctx,
            name,
            handle,
            stored,
            gauge: 0,
        };
        key.gauge = key.value().map_or(0, |value| value.gauge());
        key
    }

    /// Closes the key while `f` runs, which may change it, and opens it again.
    pub(crate) fn while_closed(&mut self, f: impl FnOnce()) -> Result<(), Error> {
        self.close();
        f();
        *self = Self::open_to_write(self.ctx, self.name)?;
        Ok(())
    }

    /// The value may have gone: subscribers of an event can do anything to the key.
    fn close(&mut self) {
        self.stored = ptr::null_mut();
        let handle = std::mem::replace(&mut self.handle, ptr::null_mut());
        if !handle.is_null() {
            // SAFETY: opened by us, and forgotten here.
            unsafe { (api().close_key)(handle) };
        }
    }

    /// Counts the value's gauge as it is now.
    #[inline]
    fn count_gauge(&mut self) {
        let before = self.gauge;
        if let Some(value) = self.value() {
            let after = value.gauge();
            T::handle().regauge(before, after);
            self.gauge = after;
        }
    }

    fn is_empty(&self) -> bool {
        // SAFETY: a handle or NULL, both of which the server accepts here.
        let kind = unsafe { (api().key_type)(self.handle) };
        kind == REDISMODULE_KEYTYPE_EMPTY as c_int
    }

    /// The value, if there is one of our type.
    pub(crate) fn value(&mut self) -> Option<&mut T> {
        // SAFETY: NULL or our box, which only this key reaches while it is borrowed: the
        // server runs nothing else meanwhile.
        unsafe { self.stored.as_mut() }.map(|stored| &mut stored.value)
    }

    /// Stores `value`, in place where there is one of our type already.
    pub(crate) fn set(&mut self, value: T) {
        if let Some(stored) = self.value() {
            *stored = value;
            return;
        }
        self.gauge = value.gauge();
        self.stored = Box::into_raw(Box::new(Stored::new(value)));
        // SAFETY: open for writing; the server owns the box from here on and gives it back
        // through the type's `free`.
        unsafe {
            let stored = self.stored.cast();
            (api().module_type_set_value)(self.handle, T::handle().as_ptr(), stored);
        }
    }

    /// Makes the change of the value known: the key's TTL becomes the deadline inside, the
    /// effect goes to replicas and the append-only file, and watchers and client-side caches
    /// are told.
    pub(crate) fn publish(&mut self, now: Micros) {
        self.refresh_ttl();
        self.propagate(now);
        self.changed();
    }

    /// The same, with an effect of its own.
    pub(crate) fn publish_effect(&mut self, effect: &Blob) {
        self.refresh_ttl();
        self.ctx.replicate_effect(T::EFFECT, self.name, effect);
        self.changed();
    }

    /// The same, but an effect only if `sends` says so. It is told whether the TTL had to be
    /// set.
    pub(crate) fn publish_when(&mut self, now: Micros, sends: impl FnOnce(&mut T, bool) -> bool) {
        let ttl_moved = self.refresh_ttl();
        if self.value().is_some_and(|value| sends(value, ttl_moved)) {
            self.propagate(now);
        }
        self.changed();
    }

    /// Sends the value's effect, for a change that was made known before.
    pub(crate) fn propagate(&mut self, now: Micros) {
        let (ctx, name) = (self.ctx, self.name);
        if let Some(value) = self.value() {
            ctx.replicate_effect(T::EFFECT, name, &value.to_effect(now));
        }
    }

    /// Whether a foreign EXPIRE, PERSIST or RESTORE left the key with another TTL than the
    /// deadline inside.
    pub(crate) fn has_strayed(&mut self) -> bool {
        let ttl = self.deadline();
        self.value()
            .is_some_and(|value| ttl != Some(value.deadline()))
    }

    /// Propagates the key's TTL if it is not the one that the value asks for.
    pub(crate) fn propagate_foreign_ttl(&mut self) {
        let ttl = self.deadline();
        let Some(needed) = self.value().map(|value| value.deadline()) else {
            return;
        };
        let ours = needed..=needed.plus(T::TTL_SLACK_MS);
        match ttl {
            Some(ttl) if ours.contains(&ttl) => {}
            Some(ttl) => self.ctx.replicate_pexpireat(self.name, ttl),
            None => self.ctx.replicate_persist(self.name),
        }
    }

    /// Deletes the key, and makes that known.
    pub(crate) fn remove(&mut self) {
        self.count_gauge();
        self.stored = ptr::null_mut();
        datatype::removing(|| {
            // SAFETY: open for writing.
            unsafe { (api().delete_key)(self.handle) };
        });
        self.ctx.replicate_del(self.name);
        self.changed();
    }

    /// Stores what an effect carries. The effect itself goes on as it came.
    pub(crate) fn apply(&mut self, effect: T::Effect, now: Micros) {
        if let Some(value) = T::apply(self.value(), effect, now) {
            self.set(value);
        }
        self.refresh_ttl();
        self.ctx.replicate_verbatim();
        self.changed();
    }

    /// Makes the key expire after the last millisecond in which the value matters, or up to
    /// the type's slack later; says whether that was to be done. What is set follows from
    /// the value and the TTL there was, so that replicas, which apply the same effects, come
    /// to the same TTL.
    fn refresh_ttl(&mut self) -> bool {
        let Some(needed) = self.value().map(|value| value.deadline()) else {
            return false;
        };
        // Without slack, setting costs less than looking.
        let moves = T::TTL_SLACK_MS == 0
            || !self
                .deadline()
                .is_some_and(|ttl| (needed..=needed.plus(T::TTL_SLACK_MS)).contains(&ttl));
        if moves {
            self.set_ttl(needed.plus(T::TTL_SLACK_MS));
        }
        moves
    }

    /// Lets a key with a TTL live until `until` at least, if that is given, and propagates
    /// what had to be done. The value stays as it is.
    #[inline(always)]
    pub(crate) fn outlive(&mut self, until: Option<Millis>) {
        let Some(until) = until else {
            return;
        };
        if self.deadline().is_some_and(|ttl| ttl < until) {
            let until = until.plus(T::TTL_SLACK_MS);
            self.set_ttl(until);
            self.ctx.replicate_pexpireat(self.name, until);
        }
    }

    fn set_ttl(&mut self, at: Millis) {
        // SAFETY: open for writing and not empty. Deadlines are below 2^53 or a sum close
        // to it, so they are no negative TTL.
        unsafe { (api().set_abs_expire)(self.handle, at.0 as i64) };
    }

    /// When the key will expire; `None` without a TTL (a foreign PERSIST).
    pub(crate) fn deadline(&self) -> Option<Millis> {
        if self.stored.is_null() {
            return None;
        }
        // SAFETY: with a value the handle is open.
        let at = unsafe { (api().get_abs_expire)(self.handle) };
        u64::try_from(at).ok().map(Millis)
    }

    /// Tells watchers and client-side caches that the value changed.
    fn changed(&mut self) {
        self.count_gauge();
        // SAFETY: context and name live while the callback runs.
        unsafe { (api().signal_modified_key)(self.ctx.as_ptr(), self.name.as_ptr()) };
    }
}

impl<T: DataType> Drop for Key<'_, T> {
    fn drop(&mut self) {
        self.close();
    }
}
