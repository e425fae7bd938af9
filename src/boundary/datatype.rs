//! Data types as the server sees them: one set of callbacks, written once for every type.

use super::api::api;
use super::args::Text;
use super::log;
use super::trampoline::callback;
use redis_module::raw::{
    RedisModuleCtx, RedisModuleDefragCtx, RedisModuleDigest, RedisModuleIO, RedisModuleKeyOptCtx,
    RedisModuleString, RedisModuleType, RedisModuleTypeMethods, REDISMODULE_TYPE_METHOD_VERSION,
};
use sluice_core::{Blob, Malformed, Micros, Millis, State};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};

/// A kind of value that keys can hold.
pub(crate) trait DataType: State + Clone + 'static {
    /// Exactly nine characters, as TYPE shows it.
    const NAME: &'static CStr;
    /// The command that carries this type's effects.
    const EFFECT: &'static CStr;
    /// What an effect carries: `Self` where that is always the whole state.
    type Effect;

    /// How much longer than its deadline a key may live, so that a hot one need not have its
    /// TTL set on every change.
    const TTL_SLACK_MS: u64 = 0;

    fn handle() -> &'static Handle;

    /// The latest deadline inside: the TTL of a key that holds this.
    fn deadline(&self) -> Millis;

    /// Bytes in an allocation beside the value's own that the defragmenter may move.
    fn heap(&mut self) -> Option<&mut Box<[u8]>>;

    /// Called for each value that comes from an RDB file or a RESTORE (`io` says which),
    /// before it becomes visible. Refuses it with a reason for the log.
    fn admit(&self, io: Source) -> Result<(), &'static str>;

    /// Reads an effect, and the clock of the primary that wrote it.
    fn decode_effect(bytes: &[u8]) -> Result<(Self::Effect, Micros), Malformed>;

    /// Applies an effect from the primary or the append-only file to what is stored: in
    /// place, or by storing what it gives instead.
    fn apply(stored: Option<&mut Self>, effect: Self::Effect, now: Micros) -> Option<Self>;

    /// Effects that make this value from nothing, for a rewritten append-only file.
    fn rebuild(&self) -> Vec<Blob>;

    /// Roughly the bytes it takes beside its own allocation.
    fn heap_size(&self) -> usize;

    /// What `INFO` shows the sum of over all values that live: a semaphore's permits.
    #[inline]
    fn gauge(&self) -> u64 {
        0
    }

    /// Called when a key that holds this goes: DEL, expiry, eviction, overwrite; not on
    /// FLUSHALL. Must not write.
    fn unlinked(&self, key: Unlinked);
}

/// The server's handle of a registered type, how many values of it live, and the sum of their
/// gauges.
pub(crate) struct Handle {
    registered: AtomicPtr<RedisModuleType>,
    live: AtomicU64,
    gauge: AtomicU64,
}

impl Handle {
    pub(crate) const fn new() -> Handle {
        Handle {
            registered: AtomicPtr::new(ptr::null_mut()),
            live: AtomicU64::new(0),
            gauge: AtomicU64::new(0),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut RedisModuleType {
        self.registered.load(Relaxed)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    pub(crate) fn gauge(&self) -> u64 {
        self.gauge.load(Relaxed)
    }

    /// A value's gauge has changed.
    #[inline]
    pub(super) fn regauge(&self, before: u64, after: u64) {
        if before != after {
            self.gauge.fetch_add(after.wrapping_sub(before), Relaxed);
        }
    }
}

/// A value as it lies in the keyspace: counted while it lives. Values die wherever the
/// server frees them, also on its background thread, hence the atomic.
pub(crate) struct Stored<T: DataType> {
    pub(crate) value: T,
}

impl<T: DataType> Stored<T> {
    pub(crate) fn new(value: T) -> Stored<T> {
        T::handle().live.fetch_add(1, Relaxed);
        T::handle().regauge(0, value.gauge());
        Stored { value }
    }
}

impl<T: DataType> Drop for Stored<T> {
    fn drop(&mut self) {
        T::handle().live.fetch_sub(1, Relaxed);
        T::handle().regauge(self.value.gauge(), 0);
    }
}

/// Where a value that is being loaded comes from.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    io: *mut RedisModuleIO,
}

impl Source {
    /// Whether it is a file at start-up or reload, or comes from our primary. What is left
    /// is a client's RESTORE.
    pub(crate) fn is_trusted(self) -> bool {
        // SAFETY: the server gave us `io` for the running load; its context lives as long.
        let ctx = unsafe { super::context::Context::new((api().get_context_from_io)(self.io)) };
        ctx.is_loading_or_replica()
    }
}

/// The circumstances of a key's going.
#[derive(Clone, Copy)]
pub(crate) struct Unlinked {
    key: *mut RedisModuleKeyOptCtx,
}

impl Unlinked {
    pub(crate) fn db(self) -> i32 {
        // SAFETY: the server's, for the key that is going.
        unsafe { (api().get_db_id_from_opt_ctx)(self.key) }
    }

    /// The key's name, which lives while the callback runs.
    pub(crate) fn name(&self) -> Text<'_> {
        // SAFETY: as above.
        unsafe { Text::new((api().get_key_name_from_opt_ctx)(self.key).cast_mut()) }
    }

    pub(crate) fn is_primary(self) -> bool {
        // SAFETY: only flags are asked for, which need no context.
        unsafe { super::context::Context::new(ptr::null_mut()) }.is_primary()
    }
}

/// Set while a command of ours deletes a key: nothing there that `unlinked` would want to
/// know, and on the path of every release it need not look at the clock to see that.
static REMOVING: AtomicBool = AtomicBool::new(false);

/// Runs `remove`, which deletes a key.
pub(super) fn removing(remove: impl FnOnce()) {
    REMOVING.store(true, Relaxed);
    remove();
    REMOVING.store(false, Relaxed);
}

/// The callbacks of `T`. A type that needs more adds it before [`register`].
pub(crate) fn methods<T: DataType>() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        version: u64::from(REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb_load::<T>),
        rdb_save: Some(rdb_save::<T>),
        aof_rewrite: Some(aof_rewrite::<T>),
        digest: Some(digest::<T>),
        free: Some(free::<T>),
        // Left NULL, `free_effort` means 1: small enough to be freed at once.
        free_effort: None,
        free_effort2: None,
        unlink: None,
        unlink2: Some(unlink::<T>),
        copy: None,
        copy2: Some(copy::<T>),
        defrag: api().defrag_alloc.and(Some(defrag::<T>)),
        mem_usage: None,
        mem_usage2: Some(mem_usage::<T>),
        aux_load: None,
        aux_save: None,
        aux_save2: None,
        aux_save_triggers: 0,
    }
}

/// Registers `T`. The server refuses a name that another module has.
pub(crate) fn register<T: DataType>(
    ctx: *mut RedisModuleCtx,
    mut methods: RedisModuleTypeMethods,
) -> Result<(), String> {
    // SAFETY: `ctx` is OnLoad's; the server copies the methods.
    let handle = unsafe {
        (api().create_data_type)(ctx, T::NAME.as_ptr(), c_int::from(T::VERSION), &mut methods)
    };
    if handle.is_null() {
        return Err(format!("the type {:?} cannot be registered", T::NAME));
    }
    T::handle().registered.store(handle, Relaxed);
    Ok(())
}

/// One line for the log about bytes that were refused.
pub(crate) fn refuse(name: &CStr, newest: u8, why: Malformed) {
    let name = name.to_string_lossy();
    match why {
        Malformed::Version(version) => log::warning(&format!(
            "{name}: encoding version {version} is newer than {newest}, the newest this \
             module reads: upgrade replicas before their primary"
        )),
        Malformed::Corrupt => log::warning(&format!("{name}: corrupt encoding refused")),
    }
}

/// The bytes the server hands out on a load, given back when dropped.
struct Loaded {
    start: *mut c_char,
    len: usize,
}

impl Loaded {
    fn load(io: *mut RedisModuleIO) -> Option<Loaded> {
        let mut len = 0;
        // SAFETY: `io` is the running load's. With HANDLE_IO_ERRORS a short or foreign
        // payload gives NULL, or an error to be asked for.
        unsafe {
            let start = (api().load_string_buffer)(io, &mut len);
            if start.is_null() {
                return None;
            }
            let loaded = Loaded { start, len };
            ((api().is_io_error)(io) == 0).then_some(loaded)
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the server allocated `len` bytes at `start` for us.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: allocated by the server for us, freed once.
        unsafe { (api().free)(self.start.cast()) };
    }
}

extern "C" fn rdb_load<T: DataType>(io: *mut RedisModuleIO, encver: c_int) -> *mut c_void {
    callback("rdb_load", ptr::null_mut(), || {
        let newest = T::VERSION;
        if encver > c_int::from(newest) {
            let version = u8::try_from(encver).unwrap_or(u8::MAX);
            refuse(T::NAME, newest, Malformed::Version(version));
            return ptr::null_mut();
        }
        let state = Loaded::load(io)
            .ok_or(Malformed::Corrupt)
            .and_then(|loaded| T::from_stored(loaded.bytes()));
        match state {
            Err(why) => refuse(T::NAME, newest, why),
            Ok(state) => match state.admit(Source { io }) {
                Err(why) => log::warning(&format!("{}: {why}", T::NAME.to_string_lossy())),
                Ok(()) => return Box::into_raw(Box::new(Stored::new(state))).cast(),
            },
        }
        ptr::null_mut()
    })
}

extern "C" fn rdb_save<T: DataType>(io: *mut RedisModuleIO, value: *mut c_void) {
    callback("rdb_save", (), || {
        let blob = stored::<T>(value).to_stored();
        let bytes = blob.as_bytes();
        // SAFETY: `io` is the running save's.
        unsafe { (api().save_string_buffer)(io, bytes.as_ptr().cast(), bytes.len()) };
    });
}

extern "C" fn aof_rewrite<T: DataType>(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    value: *mut c_void,
) {
    callback("aof_rewrite", (), || {
        for blob in stored::<T>(value).rebuild() {
            let bytes = blob.as_bytes();
            // SAFETY: "sb" takes one server string and one buffer with its length.
            unsafe {
                (api().emit_aof)(
                    io,
                    T::EFFECT.as_ptr(),
                    c"sb".as_ptr(),
                    Text::new(key).as_ptr(),
                    bytes.as_ptr().cast::<c_char>(),
                    bytes.len(),
                );
            }
        }
    });
}

extern "C" fn digest<T: DataType>(md: *mut RedisModuleDigest, value: *mut c_void) {
    callback("digest", (), || {
        let blob = stored::<T>(value).to_stored();
        let bytes = blob.as_bytes();
        // SAFETY: `md` is the running digest's.
        unsafe {
            (api().digest_add_string_buffer)(md, bytes.as_ptr().cast(), bytes.len());
            (api().digest_end_sequence)(md);
        }
    });
}

extern "C" fn free<T: DataType>(value: *mut c_void) {
    callback("free", (), || {
        // SAFETY: our box, handed back once.
        drop(unsafe { Box::from_raw(value.cast::<Stored<T>>()) });
    });
}

extern "C" fn unlink<T: DataType>(key: *mut RedisModuleKeyOptCtx, value: *const c_void) {
    callback("unlink", (), || {
        if REMOVING.load(Relaxed) {
            return;
        }
        stored::<T>(value.cast_mut()).unlinked(Unlinked { key });
    });
}

extern "C" fn copy<T: DataType>(
    _key: *mut RedisModuleKeyOptCtx,
    value: *const c_void,
) -> *mut c_void {
    callback("copy", ptr::null_mut(), || {
        let copy = stored::<T>(value.cast_mut()).clone();
        Box::into_raw(Box::new(Stored::new(copy))).cast()
    })
}

extern "C" fn mem_usage<T: DataType>(
    _key: *mut RedisModuleKeyOptCtx,
    value: *const c_void,
    _sample_size: usize,
) -> usize {
    callback("mem_usage", 0, || {
        std::mem::size_of::<Stored<T>>() + stored::<T>(value.cast_mut()).heap_size()
    })
}

/// Moves the value's allocations where the defragmenter wants them.
extern "C" fn defrag<T: DataType>(
    ctx: *mut RedisModuleDefragCtx,
    _key: *mut RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    callback("defrag", (), || {
        let Some(defrag_alloc) = api().defrag_alloc else {
            return;
        };
        // SAFETY: `value` points at the key's pointer to our box. The server copies an
        // allocation it moves, frees the old one, and answers where the new one is, or NULL
        // when it stays. Its allocator is ours, so a moved box is still a box.
        unsafe {
            let moved = defrag_alloc(ctx, *value);
            if !moved.is_null() {
                *value = moved;
            }
            if let Some(heap) = stored::<T>(*value).heap() {
                let len = heap.len();
                let start = Box::into_raw(std::mem::take(heap)).cast::<u8>();
                let moved = defrag_alloc(ctx, start.cast()).cast::<u8>();
                let start = if moved.is_null() { start } else { moved };
                *heap = Box::from_raw(ptr::slice_from_raw_parts_mut(start, len));
            }
        }
    });
    0
}

/// The value behind a pointer that the server passes to a callback of a type.
pub(crate) fn borrow<'a, T: DataType>(value: *const c_void) -> &'a T {
    stored::<T>(value.cast_mut())
}

/// The value behind a pointer the server keeps for us.
fn stored<'a, T: DataType>(value: *mut c_void) -> &'a mut T {
    // SAFETY: the server passes only pointers that `rdb_load`, `copy` or `Key::set` gave it
    // for this type, and runs nothing else on the value meanwhile.
    unsafe { &mut (*value.cast::<Stored<T>>()).value }
}
