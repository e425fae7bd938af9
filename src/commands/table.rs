//! Every command, declared. What the server is told about a command stands only here.

use super::*;
use crate::boundary::command::{Arg, Command, KeyUse, Keys};

const SINCE: &std::ffi::CStr = c"0.1.0";

/// Answers with something stored (a token, a lease), and changes it: an ACL user needs read
/// and write permission for the key.
const READ_AND_UPDATE: KeyUse = KeyUse::READ_WRITE
    .union(KeyUse::ACCESS)
    .union(KeyUse::UPDATE);

/// Takes something away if it is there, as LREM does: write permission is enough.
const REMOVE: KeyUse = KeyUse::READ_WRITE.union(KeyUse::DELETE);

pub(crate) static COMMANDS: &[Command] = &[
    Command {
        name: c"lock.acquire",
        entry: lock_acquire::sluice_lock_acquire,
        flags: "write deny-oom fast blocking",
        arity: -4,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast blocking",
        summary: c"Takes a lock for a lease, if it is free, and answers its fencing token.",
        complexity: c"O(1), or O(log N) with N readers",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::text(c"owner"),
            Arg::integer(c"lease_ms"),
            Arg::flag(c"shared", c"SHARED"),
            Arg::flag(c"reentrant", c"REENTRANT"),
            Arg::integer(c"wait_ms").option(c"BLOCK"),
            Arg::integer(c"ms").option(c"MAXHOLD"),
            Arg::flag(c"session", c"SESSION"),
            Arg::text(c"text").option(c"META"),
        ],
    },
    Command {
        name: c"lock.release",
        entry: lock_release::sluice_lock_release,
        flags: "write fast",
        arity: -3,
        keys: Keys::First(REMOVE),
        categories: c"write fast",
        summary: c"Gives a lock back, if this owner holds it.",
        complexity: c"O(1), or O(log N) with N readers",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::text(c"owner"),
            Arg::integer(c"token").option(c"TOKEN"),
            Arg::integer(c"ms").option(c"KEEP"),
        ],
    },
    Command {
        name: c"lock.renew",
        entry: lock_renew::sluice_lock_renew,
        flags: "write fast",
        arity: -4,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast",
        summary: c"Extends the lease of a lock, if this owner still holds it.",
        complexity: c"O(1), or O(log N) with N readers",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::text(c"owner"),
            Arg::integer(c"lease_ms"),
            Arg::integer(c"token").option(c"TOKEN"),
        ],
    },
    Command {
        name: c"lock.downgrade",
        entry: lock_downgrade::sluice_lock_downgrade,
        flags: "write fast",
        arity: -3,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast",
        summary: c"Makes an exclusive hold a shared one, under the same token.",
        complexity: c"O(1), and O(log N) for each reader that waited",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::text(c"owner"),
            Arg::integer(c"token").option(c"TOKEN"),
        ],
    },
    Command {
        name: c"lock.macquire",
        entry: lock_multi::sluice_lock_macquire,
        flags: "write deny-oom getkeys-api",
        arity: -5,
        keys: Keys::Counted(READ_AND_UPDATE),
        categories: c"write slow",
        summary: c"Takes several locks or none, under one fencing token.",
        complexity: c"O(N log N) with the number of keys",
        since: SINCE,
        args: &[
            Arg::integer(c"numkeys"),
            Arg::key().repeated(),
            Arg::text(c"owner"),
            Arg::integer(c"lease_ms"),
        ],
    },
    Command {
        name: c"lock.mrenew",
        entry: lock_multi::sluice_lock_mrenew,
        flags: "write getkeys-api",
        arity: -5,
        keys: Keys::Counted(READ_AND_UPDATE),
        categories: c"write slow",
        summary: c"Extends the leases of several locks, if this owner still holds them all.",
        complexity: c"O(N log N) with the number of keys",
        since: SINCE,
        args: &[
            Arg::integer(c"numkeys"),
            Arg::key().repeated(),
            Arg::text(c"owner"),
            Arg::integer(c"lease_ms"),
            Arg::integer(c"token").option(c"TOKEN"),
        ],
    },
    Command {
        name: c"lock.mrelease",
        entry: lock_multi::sluice_lock_mrelease,
        flags: "write getkeys-api",
        arity: -4,
        keys: Keys::Counted(REMOVE),
        categories: c"write slow",
        summary: c"Gives several locks back, those that this owner holds.",
        complexity: c"O(N log N) with the number of keys",
        since: SINCE,
        args: &[
            Arg::integer(c"numkeys"),
            Arg::key().repeated(),
            Arg::text(c"owner"),
            Arg::integer(c"token").option(c"TOKEN"),
        ],
    },
    Command {
        name: c"lock.info",
        entry: lock_info::sluice_lock_info,
        flags: "readonly",
        arity: 2,
        keys: Keys::First(KeyUse::READ_ONLY.union(KeyUse::ACCESS)),
        categories: c"read slow",
        summary: c"Shows who holds a lock, for how long, and under which token.",
        complexity: c"O(N) with the number of readers",
        since: SINCE,
        args: &[Arg::key()],
    },
    Command {
        name: c"lock.forcerelease",
        entry: lock_forcerelease::sluice_lock_forcerelease,
        flags: "write",
        arity: -2,
        keys: Keys::First(REMOVE),
        categories: c"write slow dangerous",
        summary: c"Frees a lock whoever holds it, and writes that into the server's log.",
        complexity: c"O(N) with the number of readers",
        since: SINCE,
        args: &[Arg::key(), Arg::integer(c"token").option(c"TOKEN")],
    },
    Command {
        name: c"lock.guard",
        entry: lock_guard::sluice_lock_guard,
        flags: "write deny-oom fast",
        arity: -3,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast",
        summary: c"Accepts a fencing token unless a higher one was seen here before.",
        complexity: c"O(1)",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::integer(c"token"),
            Arg::integer(c"ms").option(c"PX"),
        ],
    },
    Command {
        name: c"rl.gcra",
        entry: rl_limit::sluice_rl_gcra,
        flags: "write deny-oom fast",
        arity: -5,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast",
        summary: c"Admits a call or not: a smooth rate, with a burst at one instant from idle.",
        complexity: c"O(1)",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::integer(c"burst"),
            Arg::integer(c"count"),
            Arg::integer(c"period_ms"),
            Arg::integer(c"cost").option(c"COST"),
        ],
    },
    Command {
        name: c"rl.tokenbucket",
        entry: rl_limit::sluice_rl_tokenbucket,
        flags: "write deny-oom fast",
        arity: -5,
        keys: Keys::First(READ_AND_UPDATE),
        categories: c"write fast",
        summary: c"Admits a call or not: takes tokens from a bucket that refills continuously.",
        complexity: c"O(1)",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::integer(c"capacity"),
            Arg::integer(c"refill"),
            Arg::integer(c"period_ms"),
            Arg::integer(c"cost").option(c"COST"),
        ],
    },
    Command {
        name: c"rl.peek",
        entry: rl_peek::sluice_rl_peek,
        flags: "readonly fast",
        arity: -6,
        keys: Keys::First(KeyUse::READ_ONLY.union(KeyUse::ACCESS)),
        categories: c"read fast",
        summary: c"Answers what a limiter would say to a call, and spends nothing.",
        complexity: c"O(1)",
        since: SINCE,
        args: &[
            Arg::key(),
            Arg::one_of(c"policy", POLICIES),
            Arg::integer(c"cost").option(c"COST"),
        ],
    },
    Command {
        name: c"rl.reset",
        entry: rl_reset::sluice_rl_reset,
        flags: "write",
        arity: -2,
        keys: Keys::All(REMOVE),
        categories: c"write slow dangerous",
        summary: c"Makes limiters as good as new.",
        complexity: c"O(N) with the number of keys",
        since: SINCE,
        args: &[Arg::key().repeated()],
    },
    Command {
        name: c"rl.info",
        entry: rl_info::sluice_rl_info,
        flags: "readonly fast",
        arity: 2,
        keys: Keys::First(KeyUse::READ_ONLY.union(KeyUse::ACCESS)),
        categories: c"read fast",
        summary: c"Shows the state of a limiter, under the policy of its last admission.",
        complexity: c"O(1)",
        since: SINCE,
        args: &[Arg::key()],
    },
    effect(c"sluice.lk", effect::sluice_effect_lock),
    effect(c"sluice.fn", effect::sluice_effect_guard),
    effect(c"sluice.rl", effect::sluice_effect_limiter),
    Command {
        arity: 2,
        keys: Keys::None,
        args: &[Arg::text(c"effect")],
        ..effect(c"sluice.hw", effect::sluice_effect_token)
    },
];

/// A command that carries effects: from the primary or the append-only file only.
const fn effect(name: &'static std::ffi::CStr, entry: crate::boundary::command::Entry) -> Command {
    Command {
        name,
        entry,
        flags: "write fast internal",
        arity: 3,
        keys: Keys::First(KeyUse::OVERWRITE.union(KeyUse::UPDATE)),
        categories: c"write fast dangerous",
        summary: c"Internal: state propagated by the primary.",
        complexity: c"O(1)",
        since: SINCE,
        args: EFFECT_ARGS,
    }
}

/// The policies that RL.PEEK takes.
static POLICIES: &[Arg] = &[
    Arg::block(
        c"gcra",
        &[
            Arg::word(c"algorithm", c"GCRA"),
            Arg::integer(c"burst"),
            Arg::integer(c"count"),
            Arg::integer(c"period_ms"),
        ],
    ),
    Arg::block(
        c"tokenbucket",
        &[
            Arg::word(c"algorithm", c"TOKENBUCKET"),
            Arg::integer(c"capacity"),
            Arg::integer(c"refill"),
            Arg::integer(c"period_ms"),
        ],
    ),
];

static EFFECT_ARGS: &[Arg] = &[Arg::key(), Arg::text(c"effect")];
