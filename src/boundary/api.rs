//! The module API's function pointers, probed once at load.
//!
//! The crate keeps each as an `Option` that every call would unwrap, and a server older
//! than its header leaves some empty. Here a missing required one refuses the load with its
//! name, a missing newer one is a `None` that callers have to look at.

use redis_module::raw::{self, *};
use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

macro_rules! api {
    (
        required { $($field:ident = $raw:ident: $signature:ty;)* }
        optional { $($opt_field:ident = $opt_raw:ident: $opt_signature:ty;)* }
    ) => {
        /// Every API function this module calls.
        pub(crate) struct Api {
            $(pub(crate) $field: $signature,)*
            $(pub(crate) $opt_field: Option<$opt_signature>,)*
        }

        impl Api {
            fn probe() -> Result<Api, &'static str> {
                // SAFETY: the crate filled these statics in RedisModule_OnLoad, on this
                // thread, and nothing writes them again.
                unsafe {
                    Ok(Api {
                        $($field: raw::$raw.ok_or(stringify!($raw))?,)*
                        $($opt_field: raw::$opt_raw,)*
                    })
                }
            }
        }
    };
}

type Ctx = *mut RedisModuleCtx;
type Key = *mut RedisModuleKey;
type Str = *mut RedisModuleString;
type Io = *mut RedisModuleIO;

api! {
    required {
        set_module_options = RedisModule_SetModuleOptions: unsafe extern "C" fn(Ctx, c_int);
        create_command = RedisModule_CreateCommand: unsafe extern "C" fn(Ctx, *const c_char, RedisModuleCmdFunc, *const c_char, c_int, c_int, c_int) -> c_int;
        get_command = RedisModule_GetCommand: unsafe extern "C" fn(Ctx, *const c_char) -> *mut RedisModuleCommand;
        set_command_info = RedisModule_SetCommandInfo: unsafe extern "C" fn(*mut RedisModuleCommand, *const RedisModuleCommandInfo) -> c_int;
        create_data_type = RedisModule_CreateDataType: unsafe extern "C" fn(Ctx, *const c_char, c_int, *mut RedisModuleTypeMethods) -> *mut RedisModuleType;
        register_numeric_config = RedisModule_RegisterNumericConfig: unsafe extern "C" fn(Ctx, *const c_char, c_longlong, c_uint, c_longlong, c_longlong, RedisModuleConfigGetNumericFunc, RedisModuleConfigSetNumericFunc, RedisModuleConfigApplyFunc, *mut c_void) -> c_int;
        load_configs = RedisModule_LoadConfigs: unsafe extern "C" fn(Ctx) -> c_int;
        register_info_func = RedisModule_RegisterInfoFunc: unsafe extern "C" fn(Ctx, RedisModuleInfoFunc) -> c_int;
        info_add_section = RedisModule_InfoAddSection: unsafe extern "C" fn(*mut RedisModuleInfoCtx, *const c_char) -> c_int;
        info_add_u64 = RedisModule_InfoAddFieldULongLong: unsafe extern "C" fn(*mut RedisModuleInfoCtx, *const c_char, c_ulonglong) -> c_int;
        subscribe_to_server_event = RedisModule_SubscribeToServerEvent: unsafe extern "C" fn(Ctx, RedisModuleEvent, RedisModuleEventCallback) -> c_int;

        create_string = RedisModule_CreateString: unsafe extern "C" fn(Ctx, *const c_char, usize) -> Str;
        free_string = RedisModule_FreeString: unsafe extern "C" fn(Ctx, Str);
        string_ptr_len = RedisModule_StringPtrLen: unsafe extern "C" fn(*const RedisModuleString, *mut usize) -> *const c_char;
        free = RedisModule_Free: unsafe extern "C" fn(*mut c_void);

        open_key = RedisModule_OpenKey: unsafe extern "C" fn(Ctx, Str, c_int) -> Key;
        close_key = RedisModule_CloseKey: unsafe extern "C" fn(Key);
        key_type = RedisModule_KeyType: unsafe extern "C" fn(Key) -> c_int;
        delete_key = RedisModule_DeleteKey: unsafe extern "C" fn(Key) -> c_int;
        module_type_get_type = RedisModule_ModuleTypeGetType: unsafe extern "C" fn(Key) -> *mut RedisModuleType;
        module_type_get_value = RedisModule_ModuleTypeGetValue: unsafe extern "C" fn(Key) -> *mut c_void;
        module_type_set_value = RedisModule_ModuleTypeSetValue: unsafe extern "C" fn(Key, *mut RedisModuleType, *mut c_void) -> c_int;
        get_abs_expire = RedisModule_GetAbsExpire: unsafe extern "C" fn(Key) -> mstime_t;
        set_abs_expire = RedisModule_SetAbsExpire: unsafe extern "C" fn(Key, mstime_t) -> c_int;
        signal_modified_key = RedisModule_SignalModifiedKey: unsafe extern "C" fn(Ctx, Str) -> c_int;

        replicate = RedisModule_Replicate: unsafe extern "C" fn(Ctx, *const c_char, *const c_char, ...) -> c_int;
        replicate_verbatim = RedisModule_ReplicateVerbatim: unsafe extern "C" fn(Ctx) -> c_int;
        avoid_replica_traffic = RedisModule_AvoidReplicaTraffic: unsafe extern "C" fn() -> c_int;
        get_context_flags = RedisModule_GetContextFlags: unsafe extern "C" fn(Ctx) -> c_int;
        get_client_id = RedisModule_GetClientId: unsafe extern "C" fn(Ctx) -> c_ulonglong;
        get_client_info_by_id = RedisModule_GetClientInfoById: unsafe extern "C" fn(*mut c_void, u64) -> c_int;

        reply_with_long_long = RedisModule_ReplyWithLongLong: unsafe extern "C" fn(Ctx, c_longlong) -> c_int;
        reply_with_null = RedisModule_ReplyWithNull: unsafe extern "C" fn(Ctx) -> c_int;
        reply_with_error = RedisModule_ReplyWithError: unsafe extern "C" fn(Ctx, *const c_char) -> c_int;
        reply_with_simple_string = RedisModule_ReplyWithSimpleString: unsafe extern "C" fn(Ctx, *const c_char) -> c_int;
        reply_with_string_buffer = RedisModule_ReplyWithStringBuffer: unsafe extern "C" fn(Ctx, *const c_char, usize) -> c_int;
        reply_with_array = RedisModule_ReplyWithArray: unsafe extern "C" fn(Ctx, c_long) -> c_int;
        reply_with_map = RedisModule_ReplyWithMap: unsafe extern "C" fn(Ctx, c_long) -> c_int;

        block_client = RedisModule_BlockClient: unsafe extern "C" fn(Ctx, RedisModuleCmdFunc, RedisModuleCmdFunc, Option<unsafe extern "C" fn(Ctx, *mut c_void)>, c_longlong) -> *mut RedisModuleBlockedClient;
        unblock_client = RedisModule_UnblockClient: unsafe extern "C" fn(*mut RedisModuleBlockedClient, *mut c_void) -> c_int;
        set_disconnect_callback = RedisModule_SetDisconnectCallback: unsafe extern "C" fn(*mut RedisModuleBlockedClient, RedisModuleDisconnectFunc);
        get_blocked_client_private_data = RedisModule_GetBlockedClientPrivateData: unsafe extern "C" fn(Ctx) -> *mut c_void;
        get_blocked_client_handle = RedisModule_GetBlockedClientHandle: unsafe extern "C" fn(Ctx) -> *mut RedisModuleBlockedClient;
        create_timer = RedisModule_CreateTimer: unsafe extern "C" fn(Ctx, mstime_t, RedisModuleTimerProc, *mut c_void) -> RedisModuleTimerID;
        stop_timer = RedisModule_StopTimer: unsafe extern "C" fn(Ctx, RedisModuleTimerID, *mut *mut c_void) -> c_int;
        get_detached_thread_safe_context = RedisModule_GetDetachedThreadSafeContext: unsafe extern "C" fn(Ctx) -> Ctx;
        monotonic_microseconds = RedisModule_MonotonicMicroseconds: unsafe extern "C" fn() -> u64;
        select_db = RedisModule_SelectDb: unsafe extern "C" fn(Ctx, c_int) -> c_int;
        is_keys_position_request = RedisModule_IsKeysPositionRequest: unsafe extern "C" fn(Ctx) -> c_int;
        key_at_pos = RedisModule_KeyAtPos: unsafe extern "C" fn(Ctx, c_int);
        get_selected_db = RedisModule_GetSelectedDb: unsafe extern "C" fn(Ctx) -> c_int;
        notify_keyspace_event = RedisModule_NotifyKeyspaceEvent: unsafe extern "C" fn(Ctx, c_int, *const c_char, Str) -> c_int;
        get_key_name_from_opt_ctx = RedisModule_GetKeyNameFromOptCtx: unsafe extern "C" fn(*mut RedisModuleKeyOptCtx) -> *const RedisModuleString;
        get_db_id_from_opt_ctx = RedisModule_GetDbIdFromOptCtx: unsafe extern "C" fn(*mut RedisModuleKeyOptCtx) -> c_int;
        call = RedisModule_Call: unsafe extern "C" fn(Ctx, *const c_char, *const c_char, ...) -> *mut RedisModuleCallReply;
        free_call_reply = RedisModule_FreeCallReply: unsafe extern "C" fn(*mut RedisModuleCallReply);

        get_context_from_io = RedisModule_GetContextFromIO: unsafe extern "C" fn(Io) -> Ctx;
        is_io_error = RedisModule_IsIOError: unsafe extern "C" fn(Io) -> c_int;
        save_unsigned = RedisModule_SaveUnsigned: unsafe extern "C" fn(Io, u64);
        load_unsigned = RedisModule_LoadUnsigned: unsafe extern "C" fn(Io) -> u64;
        save_string_buffer = RedisModule_SaveStringBuffer: unsafe extern "C" fn(Io, *const c_char, usize);
        load_string_buffer = RedisModule_LoadStringBuffer: unsafe extern "C" fn(Io, *mut usize) -> *mut c_char;
        emit_aof = RedisModule_EmitAOF: unsafe extern "C" fn(Io, *const c_char, *const c_char, ...);
        digest_add_string_buffer = RedisModule_DigestAddStringBuffer: unsafe extern "C" fn(*mut RedisModuleDigest, *const c_char, usize);
        digest_end_sequence = RedisModule_DigestEndSequence: unsafe extern "C" fn(*mut RedisModuleDigest);
        log = RedisModule_Log: unsafe extern "C" fn(Ctx, *const c_char, *const c_char, ...);
    }
    optional {
        // Redis 7.2, Valkey 7.2.
        cached_microseconds = RedisModule_CachedMicroseconds: unsafe extern "C" fn() -> ustime_t;
        set_command_acl_categories = RedisModule_SetCommandACLCategories: unsafe extern "C" fn(*mut RedisModuleCommand, *const c_char) -> c_int;
        // Left out of builds without an allocator that can move memory.
        defrag_alloc = RedisModule_DefragAlloc: unsafe extern "C" fn(*mut RedisModuleDefragCtx, *mut c_void) -> *mut c_void;
    }
}

static API: OnceLock<Api> = OnceLock::new();

/// Probes the server. The error names the first API function it lacks.
pub(crate) fn probe() -> Result<(), &'static str> {
    let api = Api::probe()?;
    // A module loads once; if it ever is loaded again the pointers are the same.
    let _ = API.set(api);
    Ok(())
}

/// The probed API. Only code that the server calls after the load runs this.
#[inline]
pub(crate) fn api() -> &'static Api {
    API.get()
        .expect("the server calls in only after the load has probed it")
}
