//! What is stored comes back as it was, however long the server was down.

use crate::support::*;

const HOUR_MS: i64 = 3_600_000;

/// One of everything: owners and META of every kind, a kept lock, guards, strayed TTLs.
struct Zoo {
    digest: Reply,
    /// LOCK.INFO and PEXPIRETIME of every key.
    seen: Vec<(String, Reply, Reply)>,
    high: i64,
}

const KEYS: [&str; 9] = [
    "uuid",
    "renewed",
    "meta",
    "binary",
    "long",
    "kept",
    "guard",
    "persisted",
    "shorter",
];

fn own(options: Options) -> Server {
    let server = options.start();
    server.clock().freeze_at(T_US);
    server
}

impl Zoo {
    fn fill(server: &Server) -> Zoo {
        let mut c = server.conn();
        let every_byte: Vec<u8> = (0..=255).collect();
        let long = [&every_byte[..], &every_byte[..]].concat();
        let meta = [&long[..], &long[..]].concat();
        let hour = HOUR_MS;
        cmd!(c, "LOCK.ACQUIRE", "uuid", UUID, hour);
        cmd!(c, "LOCK.ACQUIRE", "renewed", UUID, 1000);
        cmd!(c, "LOCK.RENEW", "renewed", UUID, 2 * hour);
        cmd!(
            c,
            "LOCK.ACQUIRE",
            "meta",
            "me",
            hour,
            "META",
            "host-7 job 12"
        );
        cmd!(
            c,
            "LOCK.ACQUIRE",
            "binary",
            b"\0\r\n\xff",
            hour,
            "META",
            b"\xfe\0"
        );
        cmd!(c, "LOCK.ACQUIRE", "long", &long, hour, "META", &meta);
        cmd!(c, "LOCK.ACQUIRE", "kept", "me", hour);
        cmd!(c, "LOCK.RELEASE", "kept", "me", "KEEP", 3 * hour);
        cmd!(c, "LOCK.GUARD", "guard", 12345);
        cmd!(c, "LOCK.ACQUIRE", "persisted", "me", hour);
        cmd!(c, "PERSIST", "persisted");
        cmd!(c, "LOCK.ACQUIRE", "shorter", "me", hour);
        cmd!(c, "PEXPIRE", "shorter", hour / 2);
        let zoo = Zoo::of(server);
        assert_eq!(zoo.seen.len(), KEYS.len());
        assert_eq!(
            zoo.seen[4].1.field("holders").items()[0].field("owner"),
            &bulk(&long)
        );
        assert_eq!(
            zoo.seen[4].1.field("holders").items()[0].field("meta"),
            &bulk(&meta)
        );
        zoo
    }

    fn of(server: &Server) -> Zoo {
        let mut c = server.conn();
        let look = |key: &str| {
            let info = if key == "guard" {
                cmd!(c, "DEBUG", "DIGEST-VALUE", key)
            } else {
                cmd!(c, "LOCK.INFO", key)
            };
            (key.to_string(), info, cmd!(c, "PEXPIRETIME", key))
        };
        Zoo {
            seen: KEYS.into_iter().map(look).collect(),
            digest: cmd!(c, "DEBUG", "DIGEST"),
            high: counter(server, "token_high_water"),
        }
    }

    #[track_caller]
    fn assert_is(&self, server: &Server) {
        let found = Zoo::of(server);
        assert_eq!(found.seen, self.seen);
        assert_eq!(found.digest, self.digest);
        assert_eq!(found.high, self.high);
        assert_eq!(counter(server, "lock_keys"), 8);
        assert_eq!(counter(server, "guard_keys"), 1);
    }
}

#[test]
fn everything_survives_debug_reload() {
    let server = single();
    let zoo = Zoo::fill(&server);
    assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
    zoo.assert_is(&server);
}

#[test]
fn everything_survives_debug_loadaof() {
    let server = own(Options::new().aof(Aof::Pure));
    let zoo = Zoo::fill(&server);
    assert_eq!(cmd!(server.conn(), "DEBUG", "LOADAOF"), ok());
    zoo.assert_is(&server);
}

#[test]
fn everything_survives_a_restart_from_an_rdb() {
    let server = own(Options::new());
    let zoo = Zoo::fill(&server);
    server.restart_saving();
    zoo.assert_is(&server);
}

fn survives_in_an_aof(aof: Aof) {
    let server = own(Options::new().aof(aof));
    let mut zoo = Zoo::fill(&server);
    // The commands as they came.
    server.kill9();
    server.start_again();
    zoo.assert_is(&server);
    if aof == Aof::Pure {
        // A rewritten effect gives a key its TTL back, and nothing follows to take it again.
        cmd!(
            server.conn(),
            "PEXPIREAT",
            "persisted",
            T_US / 1000 + HOUR_MS
        );
        zoo = Zoo::of(&server);
    }
    // The rewritten file, and then one rewritten from what was loaded from that.
    for _ in 0..2 {
        rewrite_aof(&server);
        zoo.assert_is(&server);
        server.kill9();
        server.start_again();
        zoo.assert_is(&server);
    }
}

#[test]
fn everything_survives_kills_and_rewrites_with_a_pure_aof() {
    survives_in_an_aof(Aof::Pure);
}

#[test]
fn everything_survives_kills_and_rewrites_with_an_rdb_preamble() {
    survives_in_an_aof(Aof::Preamble);
}

#[test]
fn a_rewritten_pure_aof_has_one_effect_for_each_key() {
    let server = own(Options::new().aof(Aof::Pure));
    let mut c = server.conn();
    for lease in [1000, 2000, 3000] {
        cmd!(c, "LOCK.ACQUIRE", "k", UUID, lease);
        cmd!(c, "LOCK.GUARD", "g", lease, "PX", lease);
    }
    rewrite_aof(&server);
    let now_ms = T_US as u64 / 1000;
    // It prunes no reader, so it carries no clock.
    let lock = args!["sluice.lk", "k", Held::at(T_US, 3000, UUID).effect(0)];
    let guard = args![
        "sluice.fn",
        "g",
        effect(T_US, &guard_body(3000, now_ms + 3000))
    ];
    let commands = server.aof_commands();
    let of_key = |key: &[u8]| {
        let mut all = commands
            .iter()
            .filter(|c| c.get(1).is_some_and(|k| k == key));
        let effects: Vec<_> = all
            .by_ref()
            .filter(|c| c[0].starts_with(b"sluice"))
            .collect();
        effects
    };
    assert_eq!(of_key(b"k"), [&lock]);
    assert_eq!(of_key(b"g"), [&guard]);
}

#[test]
fn a_lease_goes_on_while_the_server_is_down() {
    for (aof, rewrite) in [
        (Aof::Off, false),
        (Aof::Pure, false),
        (Aof::Pure, true),
        (Aof::Preamble, true),
    ] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 10_000).as_int();
        cmd!(c, "LOCK.ACQUIRE", "kept", UUID, 10_000);
        cmd!(c, "LOCK.RELEASE", "kept", UUID, "KEEP", 8000);
        cmd!(c, "LOCK.GUARD", "g", 5, "PX", 9000);
        if rewrite {
            rewrite_aof(&server);
        }
        let stop = |server: &Server| match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => server.kill9(),
        };
        stop(&server);
        server.clock().advance_ms(3000);
        server.start_again();
        let mut c = server.conn();
        let info = cmd!(c, "LOCK.INFO", "k");
        assert_eq!(info.field("ttl_ms"), &int(7000), "{aof:?} {rewrite}");
        assert_eq!(
            info.field("holders").items()[0].field("held_ms"),
            &int(3000)
        );
        assert_eq!(cmd!(c, "PTTL", "k"), int(7000));
        assert_eq!(cmd!(c, "PTTL", "kept"), int(5000));
        assert_eq!(cmd!(c, "PTTL", "g"), int(6000));
        assert_eq!(
            cmd!(c, "LOCK.RENEW", "k", UUID, 1, "TOKEN", token),
            int(7000)
        );
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "kept", UUID, 1000), nil());
        assert_eq!(cmd!(c, "LOCK.GUARD", "g", 4), int(0));

        // Down again until after the end of all.
        stop(&server);
        server.clock().advance_ms(7001);
        server.start_again();
        let mut c = server.conn();
        for key in ["k", "kept", "g"] {
            assert_eq!(cmd!(c, "EXISTS", key), int(0), "{key} {aof:?} {rewrite}");
        }
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 1000), int(0));
        assert_eq!(
            cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000),
            int(T_US + 10_001_000)
        );
        assert_eq!(
            cmd!(c, "LOCK.ACQUIRE", "kept", "new", 1000),
            int(T_US + 10_001_001)
        );
        assert_eq!(cmd!(c, "LOCK.GUARD", "g", 4), int(1));
    }
}

#[test]
fn a_persisted_lock_whose_lease_ended_while_down_is_free() {
    for aof in [Aof::Off, Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        cmd!(c, "LOCK.ACQUIRE", "k", UUID, 1000);
        cmd!(c, "PERSIST", "k");
        match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => {
                rewrite_aof(&server);
                server.kill9();
            }
        }
        server.clock().advance_ms(1001);
        server.start_again();
        let mut c = server.conn();
        // A rewritten effect sets the TTL right again; an RDB keeps what was stored.
        assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
        assert_eq!(
            cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000),
            int(T_US + 1_001_000)
        );
        assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    }
}

#[test]
fn the_clock_behind_the_stored_state_stretches_the_lease() {
    let server = own(Options::new());
    cmd!(server.conn(), "LOCK.ACQUIRE", "k", UUID, 10_000);
    server.shutdown_save();
    server.clock().advance_ms(-HOUR_MS);
    server.start_again();
    let info = cmd!(server.conn(), "LOCK.INFO", "k");
    assert_eq!(info.field("ttl_ms"), &int(HOUR_MS + 10_000));
    assert_eq!(info.field("holders").items()[0].field("held_ms"), &int(0));
}

#[test]
fn an_rdb_saved_in_the_background_is_the_same() {
    let server = own(Options::new());
    let zoo = Zoo::fill(&server);
    assert!(!cmd!(server.conn(), "BGSAVE").is_error());
    eventually("the RDB is saved", || {
        server.info("persistence")["rdb_bgsave_in_progress"] == "0"
    });
    server.kill9();
    server.start_again();
    zoo.assert_is(&server);
}

#[test]
fn what_came_after_the_fork_of_a_rewrite_is_kept_too() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        let line = |i| args!["LOCK.ACQUIRE", format!("k{i}"), UUID, HOUR_MS];
        c.pipeline(&(0..500).map(line).collect::<Vec<_>>());
        // In one write, so that it arrives while the child works.
        let mut lines = vec![args!["BGREWRITEAOF"]];
        lines.extend((500..1000).map(line));
        lines.extend((0..250).map(|i| args!["LOCK.RELEASE", format!("k{i}"), UUID]));
        c.pipeline(&lines);
        eventually("the rewrite is done", || {
            server.info("persistence")["aof_rewrite_in_progress"] == "0"
        });
        let digest = cmd!(c, "DEBUG", "DIGEST");
        server.kill9();
        server.start_again();
        let mut c = server.conn();
        assert_eq!(cmd!(c, "DBSIZE"), int(750));
        assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "next", "x", 1), int(T_US + 1000));
    }
}
