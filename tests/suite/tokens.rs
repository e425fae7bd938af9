//! Fencing tokens: strictly rising, and exactly `max(H + 1, now in µs)`, whatever happens to the
//! keys, the process and the clock.

use crate::support::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_US: i64 = 24 * 3_600_000_000;

#[track_caller]
fn acquire(server: &Server, key: &str) -> i64 {
    cmd!(server.conn(), "LOCK.ACQUIRE", key, UUID, 1000).as_int()
}

/// A lock taken and released: its token is all that is left of it.
#[track_caller]
fn spend(server: &Server) -> i64 {
    let token = acquire(server, "spent");
    assert_eq!(cmd!(server.conn(), "LOCK.RELEASE", "spent", UUID), int(1));
    assert_eq!(cmd!(server.conn(), "DBSIZE"), int(0));
    token
}

/// The mark must be `high`: with the clock an hour back, the next token shows it.
#[track_caller]
fn assert_mark(server: &Server, high: i64) {
    server.clock().advance_ms(-HOUR_MS);
    assert_eq!(acquire(server, "probe"), high + 1);
    assert_eq!(counter(server, "token_high_water"), high + 1);
}

fn own(options: Options) -> Server {
    let server = options.start();
    server.clock().freeze_at(T_US);
    server
}

fn promote(server: &Server) {
    assert_eq!(cmd!(server.conn(), "REPLICAOF", "NO", "ONE"), ok());
}

// --- one process ---

#[test]
fn a_token_is_the_clock_or_one_more_than_the_last() {
    let server = single();
    let now = server.clock().now_us();
    assert_eq!(acquire(&server, "a"), now);
    assert_eq!(acquire(&server, "b"), now + 1);
    assert_eq!(acquire(&server, "c"), now + 2);
    server.clock().advance_us(3);
    assert_eq!(acquire(&server, "d"), now + 3);
    server.clock().advance_us(10);
    assert_eq!(acquire(&server, "e"), now + 13);
    assert_eq!(counter(&server, "token_high_water"), now + 13);
}

#[test]
fn tokens_rise_however_the_lock_goes() {
    let server = single();
    let mut c = server.conn();
    let mut high = acquire(&server, "k");
    for line in [
        "LOCK.RELEASE k f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "LOCK.FORCERELEASE k",
        "DEL k",
        "UNLINK k",
        "FLUSHDB SYNC",
        "FLUSHDB ASYNC",
        "FLUSHALL SYNC",
        "FLUSHALL ASYNC",
        "RENAME k elsewhere",
        "MOVE k 1",
        "SWAPDB 0 3",
        "SET k v",
        "PEXPIREAT k 1",
    ] {
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        if line.starts_with("SET") {
            cmd!(c, "DEL", "k");
        }
        let token = acquire(&server, "k");
        assert_eq!(token, high + 1, "after {line}");
        high = token;
    }
}

#[test]
fn tokens_rise_over_expiry_and_a_clock_that_steps_back() {
    let server = single();
    let first = acquire(&server, "k");
    server.clock().advance_ms(1001);
    let second = acquire(&server, "k");
    assert_eq!(second, first + 1_001_000);
    server.clock().advance_ms(1001);
    assert_eq!(cmd!(server.conn(), "EXISTS", "k"), int(0));
    server.clock().advance_ms(-HOUR_MS);
    assert_eq!(acquire(&server, "k"), second + 1);
    assert_eq!(acquire(&server, "l"), second + 2);
}

#[test]
fn each_grant_in_a_transaction_or_script_has_its_own_token() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let acquire = |key| args!["LOCK.ACQUIRE", key, UUID, 1000];
    assert_eq!(
        c.exec_multi(&[acquire("a"), acquire("b"), acquire("a"), acquire("c")]),
        [int(now), int(now + 1), int(now), int(now + 2)]
    );
    let script =
        "return {redis.call('LOCK.ACQUIRE', 'd', 'x', 9), redis.call('LOCK.ACQUIRE', 'e', 'x', 9)}";
    assert_eq!(
        c.eval(script, &[], &[]),
        array([int(now + 3), int(now + 4)])
    );
}

#[test]
fn busy_retried_and_failed_calls_take_no_token() {
    let server = single();
    let mut c = server.conn();
    let token = acquire(&server, "k");
    assert_eq!(acquire(&server, "k"), token);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "other", 1000), nil());
    assert!(cmd!(c, "LOCK.ACQUIRE", "k2", "other", 0).is_error());
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 5000), int(5000));
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", LAST_TOKEN), int(1));
    assert_eq!(counter(&server, "token_high_water"), token);
    assert_eq!(acquire(&server, "next"), token + 1);
}

#[test]
fn tokens_rise_over_debug_reload() {
    let server = single();
    let high = spend(&server);
    assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
    assert_mark(&server, high);
}

// --- restarts; no key is left, so that only the mark itself can carry over ---

#[test]
fn tokens_rise_over_a_restart_from_an_rdb_without_locks() {
    let server = own(Options::new());
    let high = spend(&server);
    assert_eq!(high, T_US);
    server.restart_saving();
    assert_eq!(counter(&server, "token_high_water"), high);
    assert_mark(&server, high);
}

/// Each kind of file, stopped in each way, rewritten before or not.
fn survives_in_an_aof(aof: Aof, rewrite: bool, stop: fn(&Server)) {
    let server = own(Options::new().aof(aof));
    // A second round from a file that starts with the first one's.
    for round in 0..2 {
        cmd!(server.conn(), "FLUSHALL");
        let high = spend(&server);
        if rewrite {
            rewrite_aof(&server);
        }
        stop(&server);
        server.start_again();
        assert_eq!(counter(&server, "token_high_water"), high, "round {round}");
        assert_mark(&server, high);
    }
}

fn stop_cleanly(server: &Server) {
    assert!(server.shutdown_nosave().success());
}

#[test]
fn tokens_rise_over_a_restart_from_a_pure_aof() {
    survives_in_an_aof(Aof::Pure, false, stop_cleanly);
}

#[test]
fn tokens_rise_over_a_restart_from_an_aof_with_preamble() {
    survives_in_an_aof(Aof::Preamble, false, stop_cleanly);
}

#[test]
fn tokens_rise_over_a_rewrite_and_restart_from_a_pure_aof() {
    survives_in_an_aof(Aof::Pure, true, stop_cleanly);
}

#[test]
fn tokens_rise_over_a_rewrite_and_restart_from_an_aof_with_preamble() {
    survives_in_an_aof(Aof::Preamble, true, stop_cleanly);
}

#[test]
fn tokens_rise_over_a_kill_with_a_pure_aof() {
    survives_in_an_aof(Aof::Pure, false, Server::kill9);
}

#[test]
fn tokens_rise_over_a_kill_with_an_aof_with_preamble() {
    survives_in_an_aof(Aof::Preamble, false, Server::kill9);
}

#[test]
fn tokens_rise_over_a_rewrite_and_kill_with_a_pure_aof() {
    survives_in_an_aof(Aof::Pure, true, Server::kill9);
}

#[test]
fn tokens_rise_over_a_rewrite_and_kill_with_an_aof_with_preamble() {
    survives_in_an_aof(Aof::Preamble, true, Server::kill9);
}

#[test]
fn a_rewritten_file_without_keys_holds_the_mark_as_one_effect() {
    let server = own(Options::new().aof(Aof::Pure));
    let high = spend(&server);
    rewrite_aof(&server);
    let mark = effect(T_US, &high.to_le_bytes());
    let commands = server.aof_commands();
    assert_eq!(
        commands
            .iter()
            .filter(|c| c[0] != b"SELECT")
            .collect::<Vec<_>>(),
        [&args!["sluice.hw", mark]]
    );
}

#[test]
fn a_rewrite_by_a_server_that_never_issued_a_token_holds_no_mark() {
    let server = own(Options::new().aof(Aof::Pure));
    rewrite_aof(&server);
    assert_eq!(server.aof_commands(), [] as [Vec<Vec<u8>>; 0]);
}

#[test]
fn a_rewrite_while_writes_are_paused_gets_the_mark_after_the_pause() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let high = spend(&server);
        cmd!(server.conn(), "CLIENT", "PAUSE", 1_000_000_000, "WRITE");
        rewrite_aof(&server);
        let size = || server.info("persistence")["aof_current_size"].clone();
        let before = size();
        // Cron, which writes the mark as soon as it may, also reaps the child of a rewrite.
        rewrite_aof(&server);
        assert_eq!(size(), before, "nothing is written during the pause");
        assert_eq!(cmd!(server.conn(), "CLIENT", "UNPAUSE"), ok());
        eventually("the mark reaches the file", || size() != before);
        server.kill9();
        server.start_again();
        assert_mark(&server, high);
    }
}

// --- replicas ---

#[test]
fn tokens_rise_over_the_promotion_of_a_replica() {
    let chain = chain();
    let high = spend(&chain.primary);
    chain.sync();
    promote(&chain.replica);
    assert_mark(&chain.replica, high);
}

#[test]
fn tokens_rise_over_the_promotion_of_a_sub_replica() {
    let chain = chain();
    let high = spend(&chain.primary);
    chain.sync();
    promote(&chain.sub);
    assert_mark(&chain.sub, high);
}

#[test]
fn tokens_rise_over_a_promotion_while_the_lock_is_held() {
    let chain = chain();
    let high = acquire(&chain.primary, "held");
    chain.sync();
    promote(&chain.replica);
    assert_mark(&chain.replica, high);
    let mut c = chain.replica.conn();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "held", "other", 1000), nil());
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "held", UUID, 1), int(high));
}

#[test]
fn a_fresh_replica_of_an_empty_primary_learns_the_mark() {
    let primary = single();
    let high = spend(&primary);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    assert_eq!(counter(&replica, "token_high_water"), high);
    promote(&replica);
    assert_mark(&replica, high);
}

/// The replica's file was rewritten by itself, from a data set without keys.
#[test]
fn tokens_rise_over_rewrite_restart_and_promotion_of_a_replica() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let primary = own(Options::new());
        let replica = Options::new()
            .clock(primary.clock())
            .aof(aof)
            .replica_of(&primary)
            .start();
        replica.wait_synced_with(&primary);
        let high = spend(&primary);
        replica.wait_synced_with(&primary);
        rewrite_aof(&replica);
        // Alone from here on: nothing else can tell it the mark.
        primary.kill9();
        replica.kill9();
        replica.start_again();
        assert_eq!(replica.info("replication")["role"], "slave");
        assert_eq!(counter(&replica, "token_high_water"), high, "{aof:?}");
        promote(&replica);
        assert_mark(&replica, high);
    }
}

#[test]
fn a_rewrite_on_a_replica_sends_nothing_down_the_chain() {
    let chain = chain();
    spend(&chain.primary);
    chain.sync();
    let offset = || chain.sub.info("replication")["slave_repl_offset"].clone();
    let before = offset();
    wait_for_rewrites(&chain.sub);
    let at = chain.sub.aof_commands().len();
    cmd!(chain.replica.conn(), "BGSAVE");
    eventually("the replica has saved", || {
        chain.replica.info("persistence")["rdb_bgsave_in_progress"] == "0"
    });
    chain.assert_equal();
    assert_eq!(offset(), before);
    assert_eq!(chain.sub.aof_commands().len(), at);
}

// --- RDB files and servers without the module ---

/// Whether a server without the module takes the RDB file of `server`.
fn loads_without_the_module(server: &Server) -> Result<(), String> {
    server.shutdown_save();
    Options::new()
        .without_module()
        .config("dir", server.dir().display())
        .try_start()
        .map(|bare| assert_eq!(cmd!(bare.conn(), "GET", "plain"), bulk("v")))
        .map_err(|error| error.log)
}

#[test]
fn an_rdb_from_before_the_first_token_loads_without_the_module() {
    let server = own(Options::new());
    cmd!(server.conn(), "SET", "plain", "v");
    let loaded = loads_without_the_module(&server);
    if flavour().kind == Kind::Redis && flavour().version < (7, 2, 0) {
        // 7.0 cannot leave auxiliary data out; the documentation says so.
        let log = loaded.expect_err("7.0 always writes auxiliary data");
        assert!(log.contains("sluice-lk"), "{log}");
    } else {
        loaded.expect("no token, no auxiliary data");
    }
}

#[test]
fn an_rdb_with_a_mark_needs_the_module() {
    let server = own(Options::new());
    cmd!(server.conn(), "SET", "plain", "v");
    acquire(&server, "k");
    cmd!(server.conn(), "DEL", "k");
    let log = loads_without_the_module(&server).expect_err("the mark must not be lost");
    assert!(log.contains("sluice-lk"), "{log}");
}

#[test]
fn an_rdb_of_a_server_without_the_module_loads() {
    let bare = Options::new().without_module().start();
    cmd!(bare.conn(), "SET", "plain", "v");
    bare.shutdown_save();
    let server = own(Options::new().config("dir", bare.dir().display()));
    assert_eq!(cmd!(server.conn(), "GET", "plain"), bulk("v"));
    assert_eq!(counter(&server, "token_high_water"), 0);
    assert_eq!(acquire(&server, "k"), T_US);
}

// --- the caps ---

const REFUSED: &str =
    "<sluice> sluice-lk: RESTORE refused: its token is more than 24 hours ahead of the clock";

#[test]
fn restore_of_a_token_from_25_hours_ahead_is_refused() {
    let ahead = own(Options::new());
    let server = own(Options::new());
    ahead.clock().freeze_at(T_US + 25 * DAY_US / 24);
    let token = acquire(&ahead, "k");
    assert_eq!(token, T_US + 25 * DAY_US / 24);
    let payload = cmd!(ahead.conn(), "DUMP", "k");

    let mut c = server.conn();
    let high = acquire(&server, "mine");
    let restored = changes_nothing(&server, || cmd!(c, "RESTORE", "k", 0, payload.as_bytes()));
    assert_eq!(restored, err("ERR Bad data format"));
    server.wait_log(REFUSED);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(counter(&server, "lock_keys"), 1);
    assert_eq!(acquire(&server, "next"), high + 1);

    // The same bytes an hour and a bit later.
    server.clock().advance_ms(HOUR_MS);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, payload.as_bytes()), ok());
    assert_eq!(acquire(&server, "next2"), token + 1);
}

#[test]
fn restore_takes_tokens_up_to_24_hours_ahead_and_no_microsecond_more() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let mut lock = Held::at(now, 5000, "x");
    lock.token = (now + DAY_US + 1) as u64;
    let bad = cmd!(c, "RESTORE", "k", 0, lock.dump());
    assert_eq!(bad, err("ERR Bad data format"));
    assert_eq!(acquire(&server, "low"), now);

    lock.token -= 1;
    assert_eq!(cmd!(c, "RESTORE", "k", 0, lock.dump()), ok());
    assert_eq!(counter(&server, "token_high_water"), now + DAY_US);
    assert_eq!(acquire(&server, "high"), now + DAY_US + 1);

    // What was issued here may come back, however far ahead of the clock it is by now.
    let payload = cmd!(c, "DUMP", "high");
    server.clock().advance_ms(-48 * HOUR_MS);
    assert_eq!(cmd!(c, "RESTORE", "again", 0, payload.as_bytes()), ok());
    assert_eq!(acquire(&server, "higher"), now + DAY_US + 2);
}

#[test]
fn restore_of_a_kept_lock_has_the_same_cap_and_a_guard_has_none() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let until = now as u64 / 1000 + 5000;
    let kept = |token: i64| {
        let blob = [&[1], &kept_body(token as u64, until)[..]].concat();
        dump("sluice-lk", 1, &blob)
    };
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, kept(now + DAY_US + 1)),
        err("ERR Bad data format")
    );
    assert_eq!(cmd!(c, "RESTORE", "k", 0, kept(now + DAY_US)), ok());
    let blob = [&[1], &guard_body(LAST_TOKEN, until)[..]].concat();
    assert_eq!(
        cmd!(c, "RESTORE", "g", 0, dump("sluice-fn", 1, &blob)),
        ok()
    );
    assert_eq!(acquire(&server, "next"), now + DAY_US + 1);
}

#[test]
fn files_may_bring_tokens_from_any_time() {
    // The clock of the machine that wrote the file was 25 hours ahead, or ours is behind.
    for (aof, rewrite) in [
        (Aof::Off, false),
        (Aof::Pure, false),
        (Aof::Pure, true),
        (Aof::Preamble, true),
    ] {
        let server = own(Options::new().aof(aof));
        let high = acquire(&server, "k");
        if rewrite {
            rewrite_aof(&server);
        }
        let digest = cmd!(server.conn(), "DEBUG", "DIGEST");
        if aof == Aof::Off {
            server.shutdown_save();
        } else {
            server.kill9();
        }
        server.clock().advance_ms(-25 * HOUR_MS);
        server.start_again();
        assert_eq!(cmd!(server.conn(), "DEBUG", "DIGEST"), digest, "{aof:?}");
        assert_eq!(counter(&server, "token_high_water"), high, "{aof:?}");
        assert_eq!(acquire(&server, "next"), high + 1, "{aof:?}");
    }
}

#[test]
fn a_primary_may_bring_tokens_from_any_time() {
    let primary = single();
    let early = acquire(&primary, "full-sync");
    let replica = Options::new().replica_of(&primary).start();
    replica.clock().freeze_at(early - 30 * DAY_US);
    replica.wait_synced_with(&primary);
    let late = acquire(&primary, "stream");
    // A RESTORE goes to replicas as it is.
    let mut lock = Held::at(early, 5000, "x");
    lock.token = (early + DAY_US) as u64;
    let mut c = primary.conn();
    assert_eq!(cmd!(c, "RESTORE", "restored", 0, lock.dump()), ok());
    replica.wait_synced_with(&primary);
    assert_eq!(
        cmd!(replica.conn(), "DEBUG", "DIGEST"),
        cmd!(c, "DEBUG", "DIGEST")
    );
    assert_eq!(late, early + 1);
    promote(&replica);
    assert_eq!(acquire(&replica, "next"), early + DAY_US + 1);
}

// --- the end of the counter ---

const EXHAUSTED: &str = "ERR no fencing token is left below 2^53: check the server's clock";

#[track_caller]
fn assert_exhausted(server: &Server) {
    let mut c = server.conn();
    assert_eq!(counter(server, "token_high_water"), LAST_TOKEN as i64);
    assert_eq!(
        changes_nothing(server, || cmd!(c, "LOCK.ACQUIRE", "new", "x", 1000)),
        err(EXHAUSTED)
    );
    assert_eq!(
        c.exec_multi(&[args!["LOCK.ACQUIRE", "new", "x", 1000], args!["PING"]]),
        [err(EXHAUSTED), status("PONG")]
    );
    assert_eq!(cmd!(c, "EXISTS", "new"), int(0));
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", LAST_TOKEN), int(1));
}

#[test]
fn the_last_token_is_granted_and_then_acquire_is_an_error() {
    let server = Options::new().aof(Aof::Pure).start();
    server.clock().freeze_at(LAST_TOKEN as i64 - 1);
    let mut c = server.conn();
    assert_eq!(acquire(&server, "a"), LAST_TOKEN as i64 - 1);
    assert_eq!(acquire(&server, "b"), LAST_TOKEN as i64);
    assert_exhausted(&server);
    // What exists goes on.
    assert_eq!(acquire(&server, "b"), LAST_TOKEN as i64);
    assert_eq!(cmd!(c, "LOCK.RENEW", "b", UUID, 9000), int(9000));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "b", "x", 1000), nil());
    let token = args!["LOCK.RELEASE", "b", UUID, "TOKEN", LAST_TOKEN];
    assert_eq!(c.cmd(&token), int(1));
    assert_exhausted(&server);
    rewrite_aof(&server);
    server.kill9();
    server.start_again();
    assert_exhausted(&server);
}

#[test]
fn a_file_may_bring_the_last_token() {
    let server = own(Options::new().aof(Aof::Pure));
    append_to_aof(
        &server,
        &[args!["sluice.hw", effect(T_US, &LAST_TOKEN.to_le_bytes())]],
    );
    assert_exhausted(&server);
}

#[test]
fn restore_brings_the_last_token_only_when_the_clock_is_near() {
    let server = own(Options::new());
    let mut c = server.conn();
    let mut lock = Held::at(T_US, 5000, "x");
    lock.token = LAST_TOKEN;
    let bad = err("ERR Bad data format");
    assert_eq!(cmd!(c, "RESTORE", "k", 0, lock.dump()), bad);
    server.clock().freeze_at(LAST_TOKEN as i64 - DAY_US - 1);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, lock.dump()), bad);
    server.clock().advance_us(1);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, lock.dump()), ok());
    assert_exhausted(&server);
    // Until then no deadline has to be in the future.
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

#[test]
fn a_clock_beyond_the_last_token_is_an_error_too() {
    let server = Options::new().start();
    server.clock().freeze_at(1 << 53);
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "x", 1000), err(EXHAUSTED));
    assert_eq!(counter(&server, "token_high_water"), 0);
    server.clock().advance_us(-1);
    assert_eq!(acquire(&server, "k"), LAST_TOKEN as i64);
}
