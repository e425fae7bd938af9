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
    /// How the key, always the first argument, is used; `None` for a command without one.
    pub(crate) key: Option<KeyUse>,
    /// ACL categories, set from Redis 7.2 on; 7.0 has none for module commands.
    pub(crate) categories: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) since: &'static CStr,
    /// What follows the name, for COMMAND DOCS and the hints of redis-cli.
    pub(crate) args: &'static [Arg],
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
    pub(crate) name: &'static CStr,
    pub(crate) kind: Kind,
    /// The word in front of an option's value; such an argument is optional.
    pub(crate) word: Option<&'static CStr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Key,
    Text,
    Integer,
}

impl Arg {
    pub(crate) const fn key() -> Arg {
        Arg {
            name: c"key",
            kind: Kind::Key,
            word: None,
        }
    }

    pub(crate) const fn text(name: &'static CStr) -> Arg {
        Arg {
            name,
            kind: Kind::Text,
            word: None,
        }
    }

    pub(crate) const fn integer(name: &'static CStr) -> Arg {
        Arg {
            name,
            kind: Kind::Integer,
            word: None,
        }
    }

    /// The optional `word value`.
    pub(crate) const fn option(self, word: &'static CStr) -> Arg {
        Arg {
            word: Some(word),
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
    let keyed = c_int::from(command.key.is_some());
    for flags in [command.flags.to_string(), without_internal.join(" ")] {
        let flags = CString::new(flags).unwrap_or_default();
        // SAFETY: `ctx` is OnLoad's; the strings are NUL-terminated.
        let created = unsafe {
            (api().create_command)(
                ctx,
                command.name.as_ptr(),
                Some(command.entry),
                flags.as_ptr(),
                keyed,
                keyed,
                keyed,
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
    let mut key_specs: Vec<RedisModuleCommandKeySpec> =
        command.key.iter().map(|key| first_argument(*key)).collect();
    // SAFETY: all-zero is the list's end mark.
    key_specs.push(unsafe { std::mem::zeroed() });
    let mut args: Vec<RedisModuleCommandArg> = command.args.iter().map(argument).collect();
    // SAFETY: all-zero is the list's end mark.
    args.push(unsafe { std::mem::zeroed() });
    let info = RedisModuleCommandInfo {
        version: &version,
        summary: command.summary.as_ptr(),
        complexity: command.complexity.as_ptr(),
        since: command.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: command.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: args.as_mut_ptr(),
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

/// The key spec of a command whose one key is its first argument.
fn first_argument(key: KeyUse) -> RedisModuleCommandKeySpec {
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
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
    }
}

fn argument(arg: &Arg) -> RedisModuleCommandArg {
    RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_: match arg.kind {
            Kind::Key => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            Kind::Text => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Kind::Integer => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        },
        key_spec_index: if arg.kind == Kind::Key { 0 } else { -1 },
        token: arg.word.map_or(ptr::null::<c_char>(), CStr::as_ptr),
        summary: ptr::null(),
        since: ptr::null(),
        flags: match arg.word {
            Some(_) => REDISMODULE_CMD_ARG_OPTIONAL as c_int,
            None => REDISMODULE_CMD_ARG_NONE as c_int,
        },
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    }
}
