//! A panic in any callback of the module: the server lives, the client gets an error where there
//! is a reply, and the log says what happened.
//!
//! Runs against the build of the module that panics on request:
//! `cargo build --release --features faults --target-dir target/faults`.

use crate::support::*;
use std::path::PathBuf;

const INTERNAL: &str = "ERR internal error in sluice: see the server log";

fn faults_module() -> PathBuf {
    let path = std::env::var_os("SLUICE_FAULTS_MODULE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/faults/release/libsluice.so"),
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "no module with faults at {path:?}: run `make modules`, or \
         `cargo build --release --features faults --target-dir target/faults`, \
         or set SLUICE_FAULTS_MODULE"
    );
    path
}

/// The options of a server whose callback `site` panics each time.
fn failing_options(site: &str) -> Options {
    Options::new()
        .module(faults_module())
        .env("SLUICE_FAULT", site)
}

fn failing(site: &str) -> Server {
    let server = failing_options(site).start();
    server.clock().freeze_at(T_US);
    server
}

/// The server lives, and the log has the message with its place and the name of the callback.
#[track_caller]
fn assert_survived(server: &Server, site: &str) {
    assert_eq!(cmd!(server.conn(), "PING"), status("PONG"));
    assert_logged(&server.log(), site);
}

#[track_caller]
fn assert_logged(log: &str, site: &str) {
    for line in [
        "<sluice> bug: panicked at src/boundary/fault.rs:".to_string(),
        format!("fault asked for in {site}"),
        format!("<sluice> {site} failed: the panic is logged above"),
    ] {
        assert!(log.contains(&line), "no {line:?} in:\n{log}");
    }
    assert!(!log.contains("REDIS BUG REPORT") && !log.contains("VALKEY BUG REPORT"));
}

#[test]
fn without_a_fault_asked_for_nothing_fails() {
    let server = Options::new().module(faults_module()).start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", UUID, 1000), int(T_US));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID), int(1));
    assert!(!server.log().contains("bug:"));
}

#[test]
fn a_panic_at_load_refuses_the_load() {
    let error = failing_options("load").try_start().err();
    let log = error.expect("the server must not start").log;
    assert_logged(&log, "load");
    assert!(
        log.contains("<sluice> the module cannot be loaded: see above"),
        "{log}"
    );
}

/// A panic in a command is an error, plainly, in a transaction and in a script, and writes nothing.
#[track_caller]
fn command_fails(site: &str, lines: &[&str]) {
    let server = failing(site);
    let mut c = server.conn();
    for line in lines {
        let command = words(line);
        changes_nothing(&server, || {
            assert_eq!(c.cmd(&command), err(INTERNAL), "{line}");
            assert_eq!(
                c.exec_multi(&[args!["PING"], command.clone()]),
                [status("PONG"), err(INTERNAL)]
            );
            let mut script = args!["EVAL", "return redis.pcall(unpack(ARGV))", 0];
            script.extend(command.clone());
            assert_eq!(c.cmd(&script), err(INTERNAL));
        });
    }
    assert_survived(&server, site);
    let panics = server.log().matches("panicked at").count();
    assert_eq!(panics, 3 * lines.len());
}

#[test]
fn a_panic_in_acquire_is_an_error() {
    command_fails(
        "LOCK.ACQUIRE",
        &["LOCK.ACQUIRE k me 1000", "LOCK.ACQUIRE k me none"],
    );
}

#[test]
fn a_panic_in_release_is_an_error() {
    command_fails("LOCK.RELEASE", &["LOCK.RELEASE k me"]);
}

#[test]
fn a_panic_in_renew_is_an_error() {
    command_fails("LOCK.RENEW", &["LOCK.RENEW k me 1000"]);
}

#[test]
fn a_panic_in_info_of_a_lock_is_an_error() {
    command_fails("LOCK.INFO", &["LOCK.INFO k"]);
}

#[test]
fn a_panic_in_force_release_is_an_error() {
    command_fails("LOCK.FORCERELEASE", &["LOCK.FORCERELEASE k"]);
}

#[test]
fn a_panic_in_guard_is_an_error() {
    command_fails("LOCK.GUARD", &["LOCK.GUARD k 5"]);
}

#[test]
fn a_panic_in_a_limiter_is_an_error() {
    for line in [
        "RL.GCRA k 1 1 1000",
        "RL.TOKENBUCKET k 1 1 1000",
        "RL.LEAKYBUCKET k 1 1 1000",
        "RL.FIXEDWINDOW k 1 1000",
        "RL.SLIDINGWINDOW k 1 1000",
        "RL.SLIDINGLOG k 1 1000",
        "RL.PEEK k GCRA 1 1 1000",
        "RL.ALL 2 k l GCRA 1 1 1000 SLIDINGLOG 1 1000",
        "RL.CHARGE k GCRA 1 1 1000",
        "RL.REFUND k GCRA 1 1 1000",
        "RL.BLOCK k 1000",
        "RL.RESET k",
        "RL.INFO k",
        "CL.THROTTLE k 1 1 1",
    ] {
        let (site, _) = line.split_once(' ').expect("a key");
        command_fails(site, &[line]);
    }
}

#[test]
fn a_panic_in_one_command_leaves_the_others() {
    let server = failing("LOCK.RELEASE");
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000), int(T_US));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "me"), err(INTERNAL));
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("token"), &int(T_US));
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 2000), int(2000));
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
    assert_survived(&server, "LOCK.RELEASE");
}

#[test]
fn a_panic_in_an_effect_leaves_the_rest_of_the_file() {
    let now_ms = T_US as u64 / 1000;
    let lock = args!["sluice.lk", "k", Held::at(T_US, 5000, "x").effect(T_US)];
    let guard = args!["sluice.fn", "g", effect(T_US, &guard_body(5, now_ms + 9))];
    let token = args!["sluice.hw", effect(T_US, &77u64.to_le_bytes())];
    for (site, keys) in [("sluice.lk", 1), ("sluice.fn", 1), ("sluice.hw", 2)] {
        let server = failing_options(site).aof(Aof::Pure).start();
        server.clock().freeze_at(T_US);
        let all = [
            args!["SELECT", 0],
            lock.clone(),
            guard.clone(),
            token.clone(),
        ];
        append_to_aof(&server, &all);
        assert_survived(&server, site);
        assert_eq!(cmd!(server.conn(), "DBSIZE"), int(keys), "{site}");
    }
}

#[test]
fn a_panic_while_loading_a_value_refuses_the_payload() {
    let server = failing("rdb_load");
    let mut c = server.conn();
    let payload = Held::at(T_US, 5000, UUID).dump();
    let reply = changes_nothing(&server, || cmd!(c, "RESTORE", "k", 0, &payload));
    assert_eq!(reply, err("ERR Bad data format"));
    assert_survived(&server, "rdb_load");
}

#[test]
fn a_panic_while_loading_a_file_refuses_the_start() {
    for site in ["rdb_load", "aux_load"] {
        let server = Options::new().start();
        cmd!(server.conn(), "LOCK.ACQUIRE", "k", UUID, 3_600_000);
        server.shutdown_save();
        let started = failing_options(site)
            .clock(server.clock())
            .config("dir", server.dir().display())
            .try_start();
        let log = started.err().expect("half a data set is none").log;
        for line in [
            format!("fault asked for in {site}"),
            format!("<sluice> {site} failed: the panic is logged above"),
        ] {
            assert!(log.contains(&line), "{log}");
        }
    }
}

#[test]
fn a_panic_while_saving_a_value_ends_in_a_payload_that_is_refused() {
    let server = failing("rdb_save");
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let payload = cmd!(c, "DUMP", "k");
    assert_eq!(
        cmd!(c, "RESTORE", "l", 0, payload.as_bytes()),
        err("ERR Bad data format")
    );
    assert_survived(&server, "rdb_save");
    assert!(!cmd!(c, "LOCK.INFO", "k").is_nil());
}

#[test]
fn a_panic_while_saving_the_mark_leaves_the_server() {
    let server = failing("aux_save");
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    assert!(!cmd!(c, "SAVE").is_error());
    assert_survived(&server, "aux_save");
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 6000), int(6000));
}

#[test]
fn a_panic_in_the_rewrite_leaves_the_server() {
    let server = failing_options("aof_rewrite").aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    cmd!(c, "SET", "s", "v");
    rewrite_aof(&server);
    assert_survived(&server, "aof_rewrite");
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 6000), int(6000));
    // What the rewrite left out is there again with its next effect.
    server.kill9();
    server.start_again();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "GET", "s"), bulk("v"));
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 1), int(6000));
}

#[test]
fn a_panic_in_the_digest_leaves_the_server() {
    let server = failing("digest");
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    assert!(!cmd!(c, "DEBUG", "DIGEST").is_error());
    assert!(!cmd!(c, "DEBUG", "DIGEST-VALUE", "k").is_error());
    assert_survived(&server, "digest");
}

#[test]
fn a_panic_in_free_leaves_the_server() {
    let server = failing("free");
    let mut c = server.conn();
    for (line, reply) in [
        ("DEL k", int(1)),
        ("UNLINK k", int(1)),
        ("SET k v", ok()),
        ("FLUSHALL SYNC", ok()),
        ("FLUSHALL ASYNC", ok()),
        ("LOCK.RELEASE k me", int(1)),
    ] {
        cmd!(c, "DEL", "k");
        assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).is_nil());
        assert_eq!(c.cmd(&words(line)), reply, "{line}");
    }
    assert_survived(&server, "free");
}

#[test]
fn a_panic_in_unlink_leaves_the_server() {
    let server = failing("unlink");
    let mut c = server.conn();
    for (line, reply) in [
        ("DEL k", int(1)),
        ("UNLINK k", int(1)),
        ("SET k v", ok()),
        ("LOCK.RELEASE k me", int(1)),
    ] {
        cmd!(c, "DEL", "k");
        assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).is_nil());
        assert_eq!(c.cmd(&words(line)), reply, "{line}");
    }
    assert_survived(&server, "unlink");
    assert_eq!(counter(&server, "lock_keys"), 0);
}

#[test]
fn a_panic_in_copy_is_an_error() {
    let server = failing("copy");
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    let reply = changes_nothing(&server, || cmd!(c, "COPY", "k", "l"));
    assert_eq!(reply, err("ERR module key failed to copy"));
    assert_survived(&server, "copy");
    assert_eq!(cmd!(c, "EXISTS", "k", "l"), int(1));
}

#[test]
fn a_panic_in_memory_usage_leaves_the_server() {
    let server = failing("mem_usage");
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    assert!(cmd!(c, "MEMORY", "USAGE", "k").as_int() < 200);
    assert_survived(&server, "mem_usage");
}

#[test]
fn a_panic_in_info_leaves_the_other_sections() {
    let server = failing("info");
    let mut c = server.conn();
    let everything = cmd!(c, "INFO", "everything").as_text();
    assert!(everything.contains("used_memory:") && !everything.contains("sluice_lock_granted"));
    assert!(!cmd!(c, "INFO", "sluice").is_error());
    assert_survived(&server, "info");
}

#[test]
fn a_panic_in_an_event_leaves_the_server() {
    let server = failing_options("event").aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    rewrite_aof(&server);
    // Cron is such an event.
    server.wait_log("<sluice> event failed: the panic is logged above");
    assert_survived(&server, "event");
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 6000), int(6000));
}

#[test]
fn a_panic_while_reading_a_setting_leaves_the_server() {
    let server = failing("config_get");
    let mut c = server.conn();
    assert!(!cmd!(c, "CONFIG", "GET", "sluice.*").is_error());
    assert!(!cmd!(c, "CONFIG", "GET", "*").is_error());
    assert_survived(&server, "config_get");
}

/// The load sets each setting to its default, so it is where such a panic shows first.
#[test]
fn a_panic_while_setting_one_refuses_the_load() {
    let error = failing_options("config_set").try_start().err();
    assert_logged(&error.expect("the load is refused").log, "config_set");
}

#[test]
fn a_panic_in_the_defragmenter_leaves_the_server() {
    let server = Options::new()
        .module(faults_module())
        .env("SLUICE_FAULT", "defrag")
        .start();
    let mut c = server.conn();
    let reply = cmd!(c, "CONFIG", "SET", "activedefrag", "yes");
    if reply.is_error() {
        println!("skipped: {} cannot defragment", flavour().name);
        return;
    }
    for (name, value) in [
        ("active-defrag-threshold-lower", "1"),
        ("active-defrag-ignore-bytes", "1"),
    ] {
        assert_eq!(cmd!(c, "CONFIG", "SET", name, value), ok(), "{name}");
    }
    let key = |i: usize| format!("k{i}");
    for start in (0..40_000).step_by(2000) {
        let line = |i| args!["LOCK.ACQUIRE", key(i), UUID, 3_600_000];
        c.pipeline(&(start..start + 2000).map(line).collect::<Vec<_>>());
    }
    // Few stay: each of them leaves a line in the log.
    for start in (0..40_000).step_by(2000) {
        let mut line = args!["DEL"];
        line.extend(
            (start..start + 2000)
                .filter(|i| i % 100 != 0)
                .map(|i| key(i).into_bytes()),
        );
        c.cmd(&line);
    }
    server.wait_log("<sluice> defrag failed: the panic is logged above");
    cmd!(c, "CONFIG", "SET", "activedefrag", "no");
    assert_survived(&server, "defrag");
    for i in (0..40_000).step_by(100) {
        assert_eq!(cmd!(c, "LOCK.RELEASE", key(i), UUID), int(1));
    }
}
