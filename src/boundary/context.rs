//! The server's context: replies, propagation, and who is calling.

use super::api::api;
use super::args::Text;
use redis_module::raw::{
    RedisModuleClientInfo, RedisModuleCtx, REDISMODULE_CLIENTINFO_VERSION,
    REDISMODULE_CTX_FLAGS_CLUSTER, REDISMODULE_CTX_FLAGS_DENY_BLOCKING,
    REDISMODULE_CTX_FLAGS_LOADING, REDISMODULE_CTX_FLAGS_LUA, REDISMODULE_CTX_FLAGS_MULTI,
    REDISMODULE_CTX_FLAGS_REPLICATED, REDISMODULE_CTX_FLAGS_SLAVE, REDISMODULE_NOTIFY_MODULE,
    REDISMODULE_OK,
};
use sluice_core::{Blob, Error, Millis};
use std::ffi::{c_char, c_int, c_longlong, CStr, CString};
use std::net::{IpAddr, SocketAddr};

/// A context of the server, valid while the callback that got it runs.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    ptr: *mut RedisModuleCtx,
}

/// What a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Integer(u64),
    Nil,
    Ok,
    /// The command wrote a larger reply itself, as the last thing it did.
    Sent,
}

impl Context {
    /// # Safety
    /// `ptr` must be the context the server passed to the callback that is running, or NULL
    /// where only [`Context::flags`] is used.
    pub(crate) unsafe fn new(ptr: *mut RedisModuleCtx) -> Context {
        Context { ptr }
    }

    pub(crate) fn as_ptr(self) -> *mut RedisModuleCtx {
        self.ptr
    }

    // --- replies ---

    pub(crate) fn reply(self, reply: Reply) {
        // SAFETY (all arms): the context is the running command's, and strings are
        // NUL-terminated.
        match reply {
            Reply::Integer(value) => self.reply_integer(value),
            // SAFETY: see above.
            Reply::Nil => unsafe {
                (api().reply_with_null)(self.ptr);
            },
            // SAFETY: see above.
            Reply::Ok => unsafe {
                (api().reply_with_simple_string)(self.ptr, c"OK".as_ptr());
            },
            Reply::Sent => {}
        }
    }

    pub(crate) fn reply_error(self, error: Error) {
        self.reply_error_text(error.to_string());
    }

    /// As the server says it where it can tell by itself.
    pub(crate) fn reply_wrong_arity(self, command: &str) {
        let command = command.to_ascii_lowercase();
        self.reply_error_text(format!("{} for '{command}' command", Error::WrongArity));
    }

    fn reply_error_text(self, text: String) {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the context is the running command's; `text` is NUL-terminated.
        unsafe { (api().reply_with_error)(self.ptr, text.as_ptr()) };
    }

    /// Every integer Sluice answers is far below 2^63.
    pub(crate) fn reply_integer(self, value: u64) {
        // SAFETY: the context is the running command's.
        unsafe { (api().reply_with_long_long)(self.ptr, value as c_longlong) };
    }

    /// −1, for what there is none of.
    pub(crate) fn reply_none(self) {
        // SAFETY: the context is the running command's.
        unsafe { (api().reply_with_long_long)(self.ptr, -1) };
    }

    pub(crate) fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the context is the running command's; pointer and length are of `bytes`.
        unsafe {
            (api().reply_with_string_buffer)(self.ptr, bytes.as_ptr().cast(), bytes.len());
        }
    }

    /// A name and its value in a map.
    pub(crate) fn reply_integer_field(self, name: &str, value: u64) {
        self.reply_bytes(name.as_bytes());
        self.reply_integer(value);
    }

    /// As above.
    pub(crate) fn reply_text_field(self, name: &str, value: &[u8]) {
        self.reply_bytes(name.as_bytes());
        self.reply_bytes(value);
    }

    /// Opens an array; the caller then replies `len` times.
    pub(crate) fn reply_array(self, len: usize) {
        // SAFETY: the context is the running command's.
        unsafe { (api().reply_with_array)(self.ptr, len as _) };
    }

    /// Opens a map (a flat array in RESP2); the caller then replies `len` pairs.
    pub(crate) fn reply_map(self, len: usize) {
        // SAFETY: the context is the running command's.
        unsafe { (api().reply_with_map)(self.ptr, len as _) };
    }

    // --- propagation ---

    /// Propagates `effect key blob` to replicas and the append-only file.
    pub(crate) fn replicate_effect(self, effect: &CStr, key: Text<'_>, blob: &Blob) {
        let blob = blob.as_bytes();
        // SAFETY: "sb" takes one server string and one buffer with its length.
        unsafe {
            (api().replicate)(
                self.ptr,
                effect.as_ptr(),
                c"sb".as_ptr(),
                key.as_ptr(),
                blob.as_ptr().cast::<c_char>(),
                blob.len(),
            )
        };
    }

    /// Propagates an effect that belongs to no key.
    pub(crate) fn replicate_keyless_effect(self, effect: &CStr, blob: &Blob) {
        let blob = blob.as_bytes();
        // SAFETY: "b" takes one buffer with its length.
        unsafe {
            (api().replicate)(
                self.ptr,
                effect.as_ptr(),
                c"b".as_ptr(),
                blob.as_ptr().cast::<c_char>(),
                blob.len(),
            )
        };
    }

    pub(crate) fn replicate_del(self, key: Text<'_>) {
        // SAFETY: "s" takes one server string.
        unsafe {
            (api().replicate)(self.ptr, c"DEL".as_ptr(), c"s".as_ptr(), key.as_ptr());
        }
    }

    pub(crate) fn replicate_pexpireat(self, key: Text<'_>, at: Millis) {
        // SAFETY: "sl" takes one server string and one long long.
        unsafe {
            (api().replicate)(
                self.ptr,
                c"PEXPIREAT".as_ptr(),
                c"sl".as_ptr(),
                key.as_ptr(),
                at.0 as c_longlong,
            );
        }
    }

    pub(crate) fn replicate_persist(self, key: Text<'_>) {
        // SAFETY: "s" takes one server string.
        unsafe {
            (api().replicate)(self.ptr, c"PERSIST".as_ptr(), c"s".as_ptr(), key.as_ptr());
        }
    }

    /// Passes the running effect command on as it came: for an effect that is exactly right.
    pub(crate) fn replicate_verbatim(self) {
        // SAFETY: the context is the running command's.
        unsafe { (api().replicate_verbatim)(self.ptr) };
    }

    /// Whether the server has paused writes (CLIENT PAUSE, FAILOVER): propagating now, from
    /// outside a client's command, would end it by an assertion.
    pub(crate) fn must_not_propagate(self) -> bool {
        // SAFETY: takes nothing and reads variables of the server.
        unsafe { (api().avoid_replica_traffic)() != 0 }
    }

    // --- who is calling ---

    /// The server computes its memory state for this: not on a hot path.
    fn flags(self) -> u32 {
        // SAFETY: any context will do here, also NULL.
        (unsafe { (api().get_context_flags)(self.ptr) }) as u32
    }

    /// Whether the running command comes from the primary's link or from the append-only
    /// file being loaded, plainly or inside a transaction. The file's client has an id that
    /// no connection gets; commands of others do not run while a file is loaded.
    pub(crate) fn is_from_primary_or_file(self) -> bool {
        const FILE: u64 = u64::MAX;
        let flags = self.flags();
        flags & REDISMODULE_CTX_FLAGS_REPLICATED != 0
            || (flags & REDISMODULE_CTX_FLAGS_LOADING != 0 && self.client_id() == FILE)
    }

    /// Whether what is being loaded is trusted: a file at start-up or reload, or whatever a
    /// replica gets from its primary. What is left is a client's RESTORE.
    pub(crate) fn is_loading_or_replica(self) -> bool {
        self.flags() & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_SLAVE) != 0
    }

    pub(crate) fn is_primary(self) -> bool {
        self.flags() & REDISMODULE_CTX_FLAGS_SLAVE == 0
    }

    /// Whether the server only asks where the keys of a counted-keys command are: its
    /// cluster code does not read key specs. Then the command answers and does nothing else.
    pub(crate) fn asks_for_keys(self) -> bool {
        // SAFETY: the context is the running command's.
        unsafe { (api().is_keys_position_request)(self.ptr) != 0 }
    }

    pub(crate) fn report_key_at(self, position: usize) {
        // SAFETY: allowed while the server asks.
        unsafe { (api().key_at_pos)(self.ptr, position as c_int) };
    }

    /// Whether a client may be blocked here: not inside a transaction or a script, nor
    /// where the server says so.
    pub(crate) fn may_block(self) -> bool {
        const NOT: u32 = REDISMODULE_CTX_FLAGS_MULTI
            | REDISMODULE_CTX_FLAGS_LUA
            | REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        self.flags() & NOT == 0
    }

    pub(crate) fn is_script(self) -> bool {
        self.flags() & REDISMODULE_CTX_FLAGS_LUA != 0
    }

    pub(crate) fn is_cluster(self) -> bool {
        self.flags() & REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    pub(crate) fn db(self) -> i32 {
        // SAFETY: the context has a client, as every command's, event's and timer's has.
        unsafe { (api().get_selected_db)(self.ptr) }
    }

    pub(crate) fn select_db(self, db: i32) {
        // SAFETY: as above.
        unsafe { (api().select_db)(self.ptr, db) };
    }

    /// Whether this node still serves `key`: not when its slot migrates away or has gone.
    pub(crate) fn serves(self, key: Text<'_>) -> bool {
        if !self.is_cluster() {
            return true;
        }
        // SAFETY: "s" takes one server string; the reply is ours to free.
        unsafe {
            let reply = (api().call)(self.ptr, c"EXISTS".as_ptr(), c"s".as_ptr(), key.as_ptr());
            if reply.is_null() {
                return false;
            }
            (api().free_call_reply)(reply);
        }
        true
    }

    /// Tells subscribers of keyspace events of class `d`.
    pub(crate) fn notify(self, event: &CStr, key: Text<'_>) {
        // SAFETY: context and key live while the callback runs.
        unsafe {
            (api().notify_keyspace_event)(
                self.ptr,
                REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                key.as_ptr(),
            );
        }
    }

    pub(crate) fn client_id(self) -> u64 {
        // SAFETY: the context is the running command's.
        unsafe { (api().get_client_id)(self.ptr) }
    }

    /// The caller for a line in the log: its id, and its address unless it is a script.
    pub(crate) fn describe_client(self) -> String {
        let id = self.client_id();
        let mut info = RedisModuleClientInfo {
            version: u64::from(REDISMODULE_CLIENTINFO_VERSION),
            flags: 0,
            id: 0,
            addr: [0; 46],
            port: 0,
            db: 0,
        };
        // SAFETY: `info` is of the version it names; the server fills it in for a client it
        // knows, and leaves `addr` NUL-terminated.
        let known = unsafe {
            (api().get_client_info_by_id)((&raw mut info).cast(), id) == REDISMODULE_OK as c_int
        };
        if !known {
            return format!("client id={id}");
        }
        // SAFETY: NUL-terminated within its 46 bytes, see above.
        let address = unsafe { CStr::from_ptr(info.addr.as_ptr()) }.to_string_lossy();
        match address.parse::<IpAddr>() {
            Ok(ip) => format!("client id={id} addr={}", SocketAddr::new(ip, info.port)),
            Err(_) => format!("client id={id} addr={address}"),
        }
    }
}
