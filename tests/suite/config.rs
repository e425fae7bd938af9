//! sluice.lock-max-lease-ms, and the ways to set it; what the others are without being set, and their
//! ranges.

use std::fs;

use sluice_testbed::module_path;

use crate::support::*;

const NAME: &str = "sluice.lock-max-lease-ms";
const DAY_MS: i64 = 86_400_000;
const YEAR_MS: i64 = 31_536_000_000;

fn get(conn: &mut Conn) -> i64 {
    cmd!(conn, "CONFIG", "GET", NAME).field(NAME).as_int()
}

fn too_long(what: &str, max: i64) -> Reply {
    err(&format!(
        "ERR {what} must be an integer between 1 and {max}"
    ))
}

#[test]
fn the_longest_lease_is_a_day_unless_set() {
    let server = single();
    let mut c = server.conn();
    let shown = cmd!(c, "CONFIG", "GET", NAME);
    assert_eq!(shown, array([bulk(NAME), bulk("86400000")]));
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "o", DAY_MS).as_int() > 0);
    let beyond = cmd!(c, "LOCK.ACQUIRE", "l", "o", DAY_MS + 1);
    assert_eq!(beyond, too_long("lease_ms", DAY_MS));
}

#[test]
fn a_new_value_holds_from_the_next_command() {
    let server = single();
    let (mut c, mut operator) = (server.conn(), server.conn());
    for max in [5000, 1, YEAR_MS, DAY_MS] {
        assert_eq!(cmd!(operator, "CONFIG", "SET", NAME, max), ok());
        assert_eq!(get(&mut c), max);
        cmd!(c, "DEL", "k", "free");
        assert!(cmd!(c, "LOCK.ACQUIRE", "k", "o", max).as_int() > 0);
        assert_eq!(cmd!(c, "PTTL", "k"), int(max));
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "o", max), int(max));
        let beyond = max + 1;
        let lease = too_long("lease_ms", max);
        let keep = too_long("KEEP", max);
        changes_nothing(&server, || {
            assert_eq!(cmd!(c, "LOCK.ACQUIRE", "free", "o", beyond), lease);
            assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "o", beyond), lease);
            assert_eq!(cmd!(c, "LOCK.RENEW", "k", "o", beyond), lease);
            assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "o", "KEEP", beyond), keep);
        });
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "o", "KEEP", max), int(1));
        assert_eq!(cmd!(c, "PTTL", "k"), int(max));
    }
}

#[test]
fn a_lower_value_cuts_no_running_lease() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "o", 60_000);
    cmd!(c, "CONFIG", "SET", NAME, 5000);
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "o", 5000), int(60_000));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "o", 5000), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
    // A guard has a bound of its own.
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 5, "PX", YEAR_MS), int(1));
}

#[test]
fn a_replica_takes_leases_beyond_its_own_bound() {
    let chain = chain();
    cmd!(chain.replica.conn(), "CONFIG", "SET", NAME, 5000);
    cmd!(chain.primary.conn(), "LOCK.ACQUIRE", "k", "o", 60_000);
    chain.assert_equal();
    assert_eq!(cmd!(chain.replica.conn(), "PTTL", "k"), int(60_000));
}

#[test]
fn values_out_of_range_are_refused() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", NAME, 5000);
    let range = "argument must be between 1 and 31536000000 inclusive";
    let no_integer = "argument couldn't be parsed into an integer";
    for (value, why) in [
        ("0", range),
        ("-1", range),
        ("31536000001", range),
        ("9223372036854775807", range),
        ("9223372036854775808", no_integer),
        ("abc", no_integer),
        ("", no_integer),
        ("1.5", no_integer),
        ("5s", no_integer),
        ("10gb", no_integer),
    ] {
        let error =
            format!("ERR CONFIG SET failed (possibly related to argument '{NAME}') - {why}");
        assert_eq!(
            cmd!(c, "CONFIG", "SET", NAME, value),
            err(&error),
            "{value}"
        );
        assert_eq!(get(&mut c), 5000);
    }
    // All or nothing, with settings of the server.
    let mixed = cmd!(c, "CONFIG", "SET", NAME, 6000, "maxmemory", "abc");
    assert!(mixed.is_error());
    assert_eq!(get(&mut c), 5000);
    assert_eq!(cmd!(c, "CONFIG", "SET", NAME, 6000, "maxmemory", 0), ok());
    assert_eq!(get(&mut c), 6000);
}

#[test]
fn the_configuration_file_sets_it() {
    let server = Options::new().config(NAME, 7000).start();
    let mut c = server.conn();
    assert_eq!(get(&mut c), 7000);
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "o", 7001),
        too_long("lease_ms", 7000)
    );
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "o", 7000).as_int() > 0);
}

#[test]
fn a_wrong_value_in_the_configuration_file_stops_the_start() {
    for (value, why) in [
        ("0", "argument must be between 1 and 31536000000 inclusive"),
        (
            "31536000001",
            "argument must be between 1 and 31536000000 inclusive",
        ),
        ("day", "argument couldn't be parsed into an integer"),
    ] {
        let refused = Options::new().config(NAME, value).try_start().err();
        let refused = refused.unwrap_or_else(|| panic!("started with {value}"));
        for line in [
            format!("Issue during loading of configuration {NAME} : {why}"),
            "<sluice> the module cannot be loaded: a setting's value is refused".to_string(),
        ] {
            assert!(refused.log.contains(&line), "{line:?}: {refused}");
        }
    }
}

#[test]
fn an_unknown_name_in_the_configuration_file_stops_the_start() {
    let refused = Options::new()
        .config("sluice.lock-max-leas-ms", 5)
        .try_start();
    let refused = refused.err().expect("started with an unknown name");
    let line = "Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting";
    assert!(refused.log.contains(line), "{refused}");
}

#[test]
fn config_rewrite_keeps_the_value_over_a_restart() {
    let server = Options::new().start();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", NAME, 5000);
    assert_eq!(cmd!(c, "CONFIG", "REWRITE"), ok());
    let file = fs::read_to_string(server.dir().join("redis.conf")).unwrap();
    let lines: Vec<&str> = file.lines().filter(|line| line.starts_with(NAME)).collect();
    assert_eq!(lines, [format!("{NAME} 5000")]);
    server.restart();
    assert_eq!(get(&mut server.conn()), 5000);
}

#[test]
fn module_loadex_sets_it() {
    let server = Options::new()
        .without_module()
        .config("enable-module-command", "yes")
        .start();
    let mut c = server.conn();
    let path = module_path().unwrap();
    let path = path.to_str().unwrap();
    let mut load = |value| cmd!(c, "MODULE", "LOADEX", path, "CONFIG", NAME, value);
    // A wrong value leaves the server as it was.
    let failed = err("ERR Error loading the extension. Please check the server logs.");
    for value in ["0", "31536000001", "day"] {
        assert_eq!(load(value), failed, "{value}");
    }
    let line = "<sluice> the module cannot be loaded: a setting's value is refused";
    assert_eq!(server.log().matches(line).count(), 3);
    let mut c = server.conn();
    let unknown = cmd!(c, "LOCK.INFO", "k").as_text();
    assert!(unknown.starts_with("ERR unknown command"), "{unknown}");

    let mut c = server.conn();
    let loaded = cmd!(c, "MODULE", "LOADEX", path, "CONFIG", NAME, 7000);
    assert_eq!(loaded, ok());
    assert_eq!(get(&mut c), 7000);
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "o", 7001),
        too_long("lease_ms", 7000)
    );
}

/// Each setting, its default, and the least and the most it may be.
const SETTINGS: [(&str, i64, i64, i64); 5] = [
    (NAME, DAY_MS, 1, YEAR_MS),
    ("sluice.lock-max-wait-ms", 600_000, 1, DAY_MS),
    ("sluice.max-waiters-per-key", 10_000, 1, 1_000_000),
    ("sluice.rl-max-log-entries", 100_000, 1, 1_000_000),
    ("sluice.rl-replication-interval-ms", 0, 0, 3_600_000),
];

#[test]
fn every_setting_has_its_default_and_its_range() {
    let server = Options::new().start();
    let mut c = server.conn();
    let shown = cmd!(c, "CONFIG", "GET", "sluice.*");
    assert_eq!(shown.items().len(), 2 * SETTINGS.len());
    for (name, default, least, most) in SETTINGS {
        let get = |c: &mut Conn| cmd!(c, "CONFIG", "GET", name).field(name).as_int();
        assert_eq!(get(&mut c), default, "{name}");
        for value in [least, most, default] {
            assert_eq!(cmd!(c, "CONFIG", "SET", name, value), ok(), "{name}");
            assert_eq!(get(&mut c), value, "{name}");
        }
        let error = err(&format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - \
             argument must be between {least} and {most} inclusive"
        ));
        for value in [least - 1, most + 1] {
            assert_eq!(cmd!(c, "CONFIG", "SET", name, value), error, "{name}");
            assert_eq!(get(&mut c), default, "{name}");
        }
    }
}

#[test]
fn the_longest_log_is_set_like_any_other() {
    let name = "sluice.rl-max-log-entries";
    let error = |max: i64| {
        err(&format!(
            "ERR limit must be an integer between 1 and {max} (sluice.rl-max-log-entries)"
        ))
    };
    let server = Options::new().config(name, 50).start();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.SLIDINGLOG", "k", 51, 1000), error(50));
    assert_eq!(cmd!(c, "RL.SLIDINGLOG", "k", 50, 1000).items()[0], int(1));
    assert_eq!(cmd!(c, "CONFIG", "SET", name, 60), ok());
    assert_eq!(cmd!(c, "RL.SLIDINGLOG", "k", 60, 1000).items()[0], int(1));
    assert_eq!(cmd!(c, "CONFIG", "REWRITE"), ok());
    server.restart();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.SLIDINGLOG", "k", 61, 1000), error(60));
    let refused = Options::new().config(name, 1_000_001).try_start();
    let refused = refused.err().expect("started with a log too long");
    let why = "argument must be between 1 and 1000000 inclusive";
    assert!(refused.log.contains(why), "{refused}");
}
