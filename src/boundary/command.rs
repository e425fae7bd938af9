//! Declaring commands to the server: flags, arity, keys, categories and docs as data.

use super::api::api;
use super::log;
use bitflags::bitflags;
use redis_module::raw::*;
use std::ffi::{c_char, c_int, CStr, CString};
use std::ptr;

/// The C entry of a command, made by `trampoline::entry!`.
pub(crate) type Entry =
    extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;

/// One row of the table of commands.
pub(crate) struct Command {
    pub(crate) name: &'static CStr,
    pub(crate) entry: Entry,
    /// The server's command flags, separated by spaces.
    pub(crate) flags: &'static str,
    /// Words including the name; negative: at least so many.
    pub(crate) arity: c_int,
    pub(crate) keys: Keys,
    /// ACL categories, set from Redis 7.2 on; 7.0 has none for module commands.
    pub(crate) categories: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) since: &'static CStr,
    /// What follows the name, for COMMAND DOCS and the hints of redis-cli.
    pub(crate) args: &'static [Arg],
}

/// Where a command's keys stand, and how they are used.
#[derive(Clone, Copy)]
pub(crate) enum Keys {
    None,
    /// The first argument.
    First(KeyUse),
    /// Every argument.
    All(KeyUse),
    /// As many as the first argument says, behind it.
    Counted(KeyUse),
}

bitflags! {
    /// What a command does to its key: exactly one of the first three, and what to the
    /// user's data in it.
    #[derive(Clone, Copy)]
    pub(crate) struct KeyUse: u64 {
        const READ_ONLY = REDISMODULE_CMD_KEY_RO as u64;
        const READ_WRITE = REDISMODULE_CMD_KEY_RW as u64;
        const OVERWRITE = REDISMODULE_CMD_KEY_OW as u64;
        const ACCESS = REDISMODULE_CMD_KEY_ACCESS as u64;
        const UPDATE = REDISMODULE_CMD_KEY_UPDATE as u64;
        const INSERT = REDISMODULE_CMD_KEY_INSERT as u64;
        const DELETE = REDISMODULE_CMD_KEY_DELETE as u64;
    }
}

/// An argument in a command's docs.
pub(crate) struct Arg {
    name: &'static CStr,
    kind: Kind,
    /// The word itself, or the one in front of an option's value.
    word: Option<&'static CStr>,
    is_optional: bool,
    is_repeated: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Key,
    Text,
    Integer,
    Word,
    /// Exactly one of these.
    OneOf(&'static [Arg]),
    /// All of these, in order.
    Block(&'static [Arg]),
}

impl Arg {
    const fn new(name: &'static CStr, kind: Kind) -> Arg {
        Arg {
            name,
            kind,
            word: None,
            is_optional: false,
            is_repeated: false,
        }
    }

    pub(crate) const fn key() -> Arg {
        Arg::new(c"key", Kind::Key)
    }

    pub(crate) const fn text(name: &'static CStr) -> Arg {
        Arg::new(name, Kind::Text)
    }

    pub(crate) const fn integer(name: &'static CStr) -> Arg {
        Arg::new(name, Kind::Integer)
    }

    pub(crate) const fn word(name: &'static CStr, word: &'static CStr) -> Arg {
        Arg {
            word: Some(word),
            ..Arg::new(name, Kind::Word)
        }
    }

    pub(crate) const fn one_of(name: &'static CStr, args: &'static [Arg]) -> Arg {
        Arg::new(name, Kind::OneOf(args))
    }

    pub(crate) const fn block(name: &'static CStr, args: &'static [Arg]) -> Arg {
        Arg::new(name, Kind::Block(args))
    }

    /// The optional `word value`.
    pub(crate) const fn option(self, word: &'static CStr) -> Arg {
        Arg {
            word: Some(word),
            is_optional: true,
            ..self
        }
    }

    /// One that may be left out.
    pub(crate) const fn optional(self) -> Arg {
        Arg {
            is_optional: true,
            ..self
        }
    }

    /// An optional word without a value.
    pub(crate) const fn flag(name: &'static CStr, word: &'static CStr) -> Arg {
        Arg {
            is_optional: true,
            ..Arg::word(name, word)
        }
    }

    /// One or more of it.
    pub(crate) const fn repeated(self) -> Arg {
        Arg {
            is_repeated: true,
            ..self
        }
    }
}

/// Registers every command of `table`. A name that is taken, by another module or by a
/// later server, is logged and left out: the rest of the module still loads.
///
/// # Safety
/// `ctx` must be the context of OnLoad.
pub(crate) unsafe fn register(ctx: *mut RedisModuleCtx, table: &[Command]) -> Result<(), String> {
    for command in table {
        // SAFETY: as the caller promises.
        let registered = unsafe { create(ctx, command) };
        if registered.is_null() {
            log::warning(&format!(
                "{} cannot be registered: is the name taken by another module?",
                command.name.to_string_lossy()
            ));
            continue;
        }
        describe(registered, command)?;
    }
    Ok(())
}

/// Creates the command, or answers NULL. The flag `internal` (Redis 8) hides a command from
/// clients; servers without it refuse the flag, so it is tried and left out.
unsafe fn create(ctx: *mut RedisModuleCtx, command: &Command) -> *mut RedisModuleCommand {
    let without_internal: Vec<&str> = command
        .flags
        .split(' ')
        .filter(|flag| *flag != "internal")
        .collect();
    let (first, last, step) = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::First(_) => (1, 1, 1),
        Keys::All(_) => (1, -1, 1),
        // The old form of key positions cannot say it: the key spec does, and the command
        // itself when asked (`getkeys-api`).
        Keys::Counted(_) => (0, 0, 0),
    };
    for flags in [command.flags.to_string(), without_internal.join(" ")] {
        let flags = CString::new(flags).unwrap_or_default();
        // SAFETY: `ctx` is OnLoad's; the strings are NUL-terminated.
        let created = unsafe {
            (api().create_command)(
                ctx,
                command.name.as_ptr(),
                Some(command.entry),
                flags.as_ptr(),
                first,
                last,
                step,
            )
        };
        if created == REDISMODULE_OK as c_int {
            // SAFETY: as above.
            return unsafe { (api().get_command)(ctx, command.name.as_ptr()) };
        }
    }
    ptr::null_mut()
}

/// Sets everything that CreateCommand does not take. The server copies it all.
fn describe(registered: *mut RedisModuleCommand, command: &Command) -> Result<(), String> {
    let failed = |what: &str| format!("{what} of {:?} are refused", command.name);
    let version = RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: std::mem::size_of::<RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: std::mem::size_of::<RedisModuleCommandKeySpec>(),
        sizeof_arg: std::mem::size_of::<RedisModuleCommandArg>(),
    };
    let mut key_specs: Vec<RedisModuleCommandKeySpec> = match command.keys {
        Keys::None => vec![],
        Keys::First(key) => vec![key_spec(key, 0)],
        Keys::All(key) => vec![key_spec(key, -1)],
        Keys::Counted(key) => vec![counted_key_spec(key)],
    };
    // SAFETY: all-zero is the list's end mark.
    key_specs.push(unsafe { std::mem::zeroed() });
    let mut lists = Vec::new();
    let args = arguments(command.args, &mut lists);
    let info = RedisModuleCommandInfo {
        version: &version,
        summary: command.summary.as_ptr(),
        complexity: command.complexity.as_ptr(),
        since: command.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: command.arity,
        key_specs: key_specs.as_mut_ptr(),
        args,
    };
    // SAFETY: `info` and all it points to live until the server has copied them.
    if unsafe { (api().set_command_info)(registered, &info) } != REDISMODULE_OK as c_int {
        return Err(failed("the docs"));
    }
    if let Some(set_categories) = api().set_command_acl_categories {
        // SAFETY: `registered` is the server's; the string is NUL-terminated.
        let set = unsafe { set_categories(registered, command.categories.as_ptr()) };
        if set != REDISMODULE_OK as c_int {
            return Err(failed("the ACL categories"));
        }
    }
    Ok(())
}

/// Keys from the first argument to the `last` behind it (−1: of all).
fn key_spec(key: KeyUse, last: c_int) -> RedisModuleCommandKeySpec {
    RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags: key.bits(),
        begin_search_type: RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: last,
                keystep: 1,
                limit: 0,
            },
        },
    }
}

/// Keys counted by the first argument.
fn counted_key_spec(key: KeyUse) -> RedisModuleCommandKeySpec {
    RedisModuleCommandKeySpec {
        find_keys_type: RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
        fk: RedisModuleCommandKeySpec__bindgen_ty_2 {
            keynum: RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            },
        },
        ..key_spec(key, 0)
    }
}

/// The server's form of `args`: an array that `lists`, which is to outlive its use, owns.
fn arguments(
    args: &[Arg],
    lists: &mut Vec<Box<[RedisModuleCommandArg]>>,
) -> *mut RedisModuleCommandArg {
    let mut list: Vec<RedisModuleCommandArg> =
        args.iter().map(|arg| argument(arg, lists)).collect();
    // SAFETY: all-zero is the list's end mark.
    list.push(unsafe { std::mem::zeroed() });
    let mut list = list.into_boxed_slice();
    let start = list.as_mut_ptr();
    lists.push(list);
    start
}

fn argument(arg: &Arg, lists: &mut Vec<Box<[RedisModuleCommandArg]>>) -> RedisModuleCommandArg {
    let mut flags = REDISMODULE_CMD_ARG_NONE;
    if arg.is_optional {
        flags |= REDISMODULE_CMD_ARG_OPTIONAL;
    }
    if arg.is_repeated {
        flags |= REDISMODULE_CMD_ARG_MULTIPLE;
    }
    let (type_, subargs) = match arg.kind {
        Kind::Key => (RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, None),
        Kind::Text => (RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, None),
        Kind::Integer => (RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, None),
        Kind::Word => (
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            None,
        ),
        Kind::OneOf(args) => (
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            Some(args),
        ),
        Kind::Block(args) => (
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            Some(args),
        ),
    };
    RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_,
        key_spec_index: if matches!(arg.kind, Kind::Key) { 0 } else { -1 },
        token: arg.word.map_or(ptr::null::<c_char>(), CStr::as_ptr),
        summary: ptr::null(),
        since: ptr::null(),
        flags: flags as c_int,
        deprecated_since: ptr::null(),
        subargs: subargs.map_or(ptr::null_mut(), |args| arguments(args, lists)),
        display_text: ptr::null(),
    }
}
