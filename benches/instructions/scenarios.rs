//! What is measured: one row for each scenario.
//!
//! Commands are templates, split at spaces. `{key}` is a key of its own for each command, `{hot}` one
//! key for all; both have 19 bytes. `{owner}` and `{other}` are UUIDs of 36 bytes, `{n}` is a number
//! that rises with each command, `{sha}` the digest of the row's script.

/// One row of the report.
pub(crate) struct Scenario {
    /// Committed figures are found by it.
    pub(crate) name: &'static str,
    /// Our `extern "C"` function that handles the measured command; `None` for commands that are not
    /// ours.
    pub(crate) entry: Option<&'static str>,
    pub(crate) script: Option<&'static str>,
    /// Runs before the warm-up: for each command to come if it contains `{key}`, else once.
    pub(crate) setup: Option<&'static str>,
    /// Makes the state of `{hot}`: a command, and how often it runs. Before all else, and not under
    /// callgrind, which would take a minute for a long log.
    pub(crate) filled: Option<(&'static str, usize)>,
    pub(crate) measured: &'static str,
    /// With an append-only file, `appendfsync no`.
    pub(crate) aof: bool,
}

impl Scenario {
    const fn new(name: &'static str, measured: &'static str) -> Scenario {
        Scenario {
            name,
            entry: None,
            script: None,
            setup: None,
            filled: None,
            measured,
            aof: false,
        }
    }

    /// A row of a command of ours, with the symbol of its entry.
    const fn ours(name: &'static str, entry: &'static str, measured: &'static str) -> Scenario {
        Scenario {
            entry: Some(entry),
            ..Scenario::new(name, measured)
        }
    }

    const fn script(name: &'static str, script: &'static str, measured: &'static str) -> Scenario {
        Scenario {
            script: Some(script),
            ..Scenario::new(name, measured)
        }
    }

    const fn after(self, setup: &'static str) -> Scenario {
        Scenario {
            setup: Some(setup),
            ..self
        }
    }

    const fn filled(self, command: &'static str, times: usize) -> Scenario {
        Scenario {
            filled: Some((command, times)),
            ..self
        }
    }

    const fn with_aof(self, name: &'static str) -> Scenario {
        Scenario {
            name,
            aof: true,
            ..self
        }
    }
}

/// A lock in a script: as short as one with a fencing token can be.
const LUA_ACQUIRE: &str = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) \
                           then return redis.call('INCR',KEYS[2]) end";
const LUA_RELEASE: &str = "if redis.call('GET',KEYS[1])==ARGV[1] \
                           then return redis.call('DEL',KEYS[1]) end return 0";

/// GCRA as scripts do it: the theoretical arrival time in a string, in seconds as a float.
const LUA_GCRA: &str = "local now = redis.call('TIME') \
    now = now[1] + now[2] / 1000000 \
    local interval = ARGV[3] / ARGV[2] \
    local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval \
    local allow_at = tat - interval * ARGV[1] \
    if now < allow_at then return {0, ARGV[1], 0, tostring(allow_at - now), tostring(tat - now)} end \
    redis.call('SET', KEYS[1], string.format('%.6f', tat), 'EX', math.ceil(tat - now)) \
    return {1, ARGV[1], math.floor((now - allow_at) / interval), '0', tostring(tat - now)}";

const ACQUIRE_NEW: Scenario = Scenario::ours(
    "LOCK.ACQUIRE, new",
    "sluice_lock_acquire",
    "LOCK.ACQUIRE {key} {owner} 600000",
);
const RELEASE: Scenario = Scenario::ours(
    "LOCK.RELEASE",
    "sluice_lock_release",
    "LOCK.RELEASE {key} {owner}",
)
.after("LOCK.ACQUIRE {key} {owner} 600000");
const SET_NEW: Scenario = Scenario::new("SET NX PX, new", "SET {key} {owner} NX PX 600000");
const DEL: Scenario = Scenario::new("DEL", "DEL {key}").after("SET {key} {owner} NX PX 600000");

pub(crate) const ROWS: &[Scenario] = &[
    ACQUIRE_NEW,
    Scenario::ours(
        "LOCK.ACQUIRE, busy",
        "sluice_lock_acquire",
        "LOCK.ACQUIRE {hot} {other} 600000",
    )
    .after("LOCK.ACQUIRE {hot} {owner} 600000"),
    Scenario::ours(
        "LOCK.ACQUIRE, retry",
        "sluice_lock_acquire",
        // Shorter than what is left, so that nothing is extended.
        "LOCK.ACQUIRE {hot} {owner} 1000",
    )
    .after("LOCK.ACQUIRE {hot} {owner} 600000"),
    Scenario::ours(
        "LOCK.ACQUIRE, retry, extending",
        "sluice_lock_acquire",
        "LOCK.ACQUIRE {hot} {owner} {n}",
    )
    .after("LOCK.ACQUIRE {hot} {owner} 600000"),
    Scenario::ours(
        "LOCK.RENEW, extending",
        "sluice_lock_renew",
        "LOCK.RENEW {hot} {owner} {n}",
    )
    .after("LOCK.ACQUIRE {hot} {owner} 600000"),
    RELEASE,
    Scenario::ours(
        "LOCK.GUARD, accepted, rising token",
        "sluice_lock_guard",
        "LOCK.GUARD {hot} {n}",
    ),
    Scenario::ours(
        "LOCK.GUARD, accepted, nothing new",
        "sluice_lock_guard",
        // Remembered for less than it is already.
        "LOCK.GUARD {hot} 700000 PX 1000",
    )
    .after("LOCK.GUARD {hot} 700000"),
    Scenario::ours(
        "LOCK.GUARD, stale",
        "sluice_lock_guard",
        "LOCK.GUARD {hot} {n}",
    )
    .after("LOCK.GUARD {hot} 9000000000000"),
    Scenario::ours("LOCK.INFO", "sluice_lock_info", "LOCK.INFO {hot}")
        .after("LOCK.ACQUIRE {hot} {owner} 600000"),
    Scenario::ours(
        "SEM.ACQUIRE, new",
        "sluice_sem_acquire",
        "SEM.ACQUIRE {key} {owner} 600000 10",
    ),
    Scenario::ours(
        "SEM.ACQUIRE, busy",
        "sluice_sem_acquire",
        "SEM.ACQUIRE {hot} {other} 600000 1",
    )
    .after("SEM.ACQUIRE {hot} {owner} 600000 1"),
    Scenario::ours(
        "SEM.ACQUIRE, retry, extending",
        "sluice_sem_acquire",
        "SEM.ACQUIRE {hot} {owner} {n} 10",
    )
    .after("SEM.ACQUIRE {hot} {owner} 600000 10"),
    Scenario::ours(
        "SEM.RENEW, extending",
        "sluice_sem_renew",
        "SEM.RENEW {hot} {owner} {n}",
    )
    .after("SEM.ACQUIRE {hot} {owner} 600000 10"),
    Scenario::ours(
        "SEM.RELEASE, the last holder",
        "sluice_sem_release",
        "SEM.RELEASE {key} {owner}",
    )
    .after("SEM.ACQUIRE {key} {owner} 600000 10"),
    Scenario::ours(
        "SEM.RENEW, one of 10 holders",
        "sluice_sem_renew",
        "SEM.RENEW {hot} 700005 {n}",
    )
    .filled("SEM.ACQUIRE {hot} {n} 600000 1000000", 10),
    Scenario::ours(
        "SEM.RENEW, one of 1,000 holders",
        "sluice_sem_renew",
        "SEM.RENEW {hot} 700500 {n}",
    )
    .filled("SEM.ACQUIRE {hot} {n} 600000 1000000", 1_000),
    Scenario::ours(
        "SEM.RENEW, one of 100,000 holders",
        "sluice_sem_renew",
        "SEM.RENEW {hot} 750000 {n}",
    )
    .filled("SEM.ACQUIRE {hot} {n} 600000 1000000", 100_000),
    Scenario::ours(
        "SEM.RELEASE, one of 100,000 holders",
        "sluice_sem_release",
        "SEM.RELEASE {hot} {n}",
    )
    .filled("SEM.ACQUIRE {hot} {n} 600000 1000000", 100_000),
    Scenario::ours(
        "SEM.ACQUIRE, busy, 100,000 holders",
        "sluice_sem_acquire",
        "SEM.ACQUIRE {hot} {other} 600000 10",
    )
    .filled("SEM.ACQUIRE {hot} {n} 600000 1000000", 100_000),
    Scenario::ours(
        "RL.GCRA, allowed, hot key",
        "sluice_rl_gcra",
        "RL.GCRA {hot} 1000000 1000000 60000",
    )
    .after("RL.GCRA {hot} 1000000 1000000 60000"),
    Scenario::ours(
        "RL.GCRA, denied",
        "sluice_rl_gcra",
        "RL.GCRA {hot} 1 1 600000",
    )
    .after("RL.GCRA {hot} 1 1 600000"),
    Scenario::ours(
        "RL.GCRA, new key",
        "sluice_rl_gcra",
        "RL.GCRA {key} 10 10 600000",
    ),
    Scenario::ours(
        "RL.LEAKYBUCKET, allowed, hot key",
        "sluice_rl_leakybucket",
        "RL.LEAKYBUCKET {hot} 1000000 1000000 60000",
    )
    .after("RL.LEAKYBUCKET {hot} 1000000 1000000 60000"),
    Scenario::ours(
        "RL.LEAKYBUCKET, denied",
        "sluice_rl_leakybucket",
        "RL.LEAKYBUCKET {hot} 1 1 600000",
    )
    .after("RL.LEAKYBUCKET {hot} 1 1 600000"),
    Scenario::ours(
        "RL.LEAKYBUCKET, new key",
        "sluice_rl_leakybucket",
        "RL.LEAKYBUCKET {key} 10 10 600000",
    ),
    Scenario::ours(
        "RL.FIXEDWINDOW, allowed, hot key",
        "sluice_rl_fixedwindow",
        "RL.FIXEDWINDOW {hot} 1000000 600000",
    )
    .after("RL.FIXEDWINDOW {hot} 1000000 600000"),
    Scenario::ours(
        "RL.FIXEDWINDOW, denied",
        "sluice_rl_fixedwindow",
        "RL.FIXEDWINDOW {hot} 1 600000",
    )
    .after("RL.FIXEDWINDOW {hot} 1 600000"),
    Scenario::ours(
        "RL.FIXEDWINDOW, new key",
        "sluice_rl_fixedwindow",
        "RL.FIXEDWINDOW {key} 10 600000",
    ),
    Scenario::ours(
        "RL.SLIDINGWINDOW, allowed, hot key",
        "sluice_rl_slidingwindow",
        "RL.SLIDINGWINDOW {hot} 1000000 600000",
    )
    .after("RL.SLIDINGWINDOW {hot} 1000000 600000"),
    Scenario::ours(
        "RL.SLIDINGWINDOW, denied",
        "sluice_rl_slidingwindow",
        "RL.SLIDINGWINDOW {hot} 1 600000",
    )
    .after("RL.SLIDINGWINDOW {hot} 1 600000"),
    Scenario::ours(
        "RL.SLIDINGWINDOW, new key",
        "sluice_rl_slidingwindow",
        "RL.SLIDINGWINDOW {key} 10 600000",
    ),
    Scenario::ours(
        "RL.SLIDINGLOG, allowed, hot key",
        "sluice_rl_slidinglog",
        "RL.SLIDINGLOG {hot} 100000 6000000",
    )
    .after("RL.SLIDINGLOG {hot} 100000 6000000"),
    Scenario::ours(
        "RL.SLIDINGLOG, allowed, 100,000 entries",
        "sluice_rl_slidinglog",
        "RL.SLIDINGLOG {hot} 100000 6000000",
    )
    .filled("RL.SLIDINGLOG {hot} 100000 6000000", 97_500),
    Scenario::ours(
        "RL.SLIDINGLOG, denied, 10 entries",
        "sluice_rl_slidinglog",
        "RL.SLIDINGLOG {hot} 10 6000000",
    )
    .filled("RL.SLIDINGLOG {hot} 10 6000000", 10),
    Scenario::ours(
        "RL.SLIDINGLOG, denied, 100,000 entries",
        "sluice_rl_slidinglog",
        "RL.SLIDINGLOG {hot} 100000 6000000",
    )
    .filled("RL.SLIDINGLOG {hot} 100000 6000000", 100_000),
    Scenario::ours(
        "RL.SLIDINGLOG, new key",
        "sluice_rl_slidinglog",
        "RL.SLIDINGLOG {key} 10 600000",
    ),
    Scenario::ours(
        "RL.ALL, 3 keys, allowed",
        "sluice_rl_all",
        "RL.ALL 3 {hot}1 {hot}2 {hot}3 GCRA 1000000 1000000 60000 \
         GCRA 1000000 1000000 60000 GCRA 1000000 1000000 60000",
    )
    .after(
        "RL.ALL 3 {hot}1 {hot}2 {hot}3 GCRA 1000000 1000000 60000 \
         GCRA 1000000 1000000 60000 GCRA 1000000 1000000 60000",
    ),
    Scenario::ours(
        "RL.ALL, 3 keys, denied by the last",
        "sluice_rl_all",
        "RL.ALL 3 {hot}1 {hot}2 {hot}3 GCRA 1000000 1000000 60000 \
         GCRA 1000000 1000000 60000 GCRA 1 1 600000",
    )
    .after(
        "RL.ALL 3 {hot}1 {hot}2 {hot}3 GCRA 1000000 1000000 60000 \
         GCRA 1000000 1000000 60000 GCRA 1 1 600000",
    ),
    Scenario::ours(
        "RL.CHARGE",
        "sluice_rl_charge",
        "RL.CHARGE {hot} GCRA 1000000 1000000 60000",
    )
    .after("RL.CHARGE {hot} GCRA 1000000 1000000 60000"),
    Scenario::ours(
        "RL.REFUND",
        "sluice_rl_refund",
        "RL.REFUND {hot} GCRA 1000000 1 60000",
    )
    .after("RL.CHARGE {hot} GCRA 1000000 1 60000 COST 1000000"),
    Scenario::ours(
        "RL.PEEK",
        "sluice_rl_peek",
        "RL.PEEK {hot} GCRA 1000000 1 60000",
    )
    .after("RL.GCRA {hot} 1000000 1 60000"),
    Scenario::ours(
        "CL.THROTTLE, allowed, hot key",
        "sluice_cl_throttle",
        "CL.THROTTLE {hot} 999999 1000000 60",
    )
    .after("CL.THROTTLE {hot} 999999 1000000 60"),
    Scenario::ours(
        "CL.THROTTLE, denied",
        "sluice_cl_throttle",
        "CL.THROTTLE {hot} 0 1 600",
    )
    .after("CL.THROTTLE {hot} 0 1 600"),
    ACQUIRE_NEW.with_aof("LOCK.ACQUIRE, new, AOF"),
    RELEASE.with_aof("LOCK.RELEASE, AOF"),
    Scenario::new("PING", "PING"),
    Scenario::new("INCR, hot key", "INCR {hot}"),
    SET_NEW,
    Scenario::new("SET NX PX, busy", "SET {hot} {other} NX PX 600000")
        .after("SET {hot} {owner} PX 600000"),
    DEL,
    SET_NEW.with_aof("SET NX PX, new, AOF"),
    DEL.with_aof("DEL, AOF"),
    Scenario::script(
        "Lua GCRA, allowed, hot key",
        LUA_GCRA,
        "EVALSHA {sha} 1 {hot} 1000000 1000000 60",
    ),
    Scenario::script(
        "Lua GCRA, denied",
        LUA_GCRA,
        "EVALSHA {sha} 1 {hot} 1 1 600",
    )
    .after("EVALSHA {sha} 1 {hot} 1 1 600"),
    Scenario::script(
        "Lua GCRA, new key",
        LUA_GCRA,
        "EVALSHA {sha} 1 {key} 10 10 600",
    ),
    Scenario::script(
        "Lua acquire with a fencing counter, new",
        LUA_ACQUIRE,
        "EVALSHA {sha} 2 {key} lock:{fencing} {owner} 600000",
    ),
    Scenario::script(
        "Lua acquire with a fencing counter, busy",
        LUA_ACQUIRE,
        "EVALSHA {sha} 2 {hot} lock:{fencing} {other} 600000",
    )
    .after("SET {hot} {owner} PX 600000"),
    Scenario::script(
        "Lua compare-and-delete release",
        LUA_RELEASE,
        "EVALSHA {sha} 1 {key} {owner}",
    )
    .after("SET {key} {owner} NX PX 600000"),
];
