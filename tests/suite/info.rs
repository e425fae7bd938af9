//! LOCK.INFO.

use crate::support::*;

/// The pairs of a map as RESP2 shows them: a flat array.
fn flat(pairs: &[(&str, Reply)]) -> Reply {
    let pairs = pairs.iter().cloned();
    array(pairs.flat_map(|(field, value)| [bulk(field), value]))
}

/// The same pairs in RESP3.
fn map(pairs: &[(&str, Reply)]) -> Reply {
    let pairs = pairs.iter().cloned();
    Reply::Map(pairs.map(|(field, value)| (bulk(field), value)).collect())
}

#[test]
fn a_held_lock_shows_everything_in_both_protocols() {
    let server = single();
    let (mut two, mut three) = (server.conn(), server.conn3());
    let token = cmd!(two, "LOCK.ACQUIRE", "k", UUID, 1000, "META", "host-7");
    server.clock().advance_ms(250);
    let holder = [
        ("owner", bulk(UUID)),
        ("token", token.clone()),
        ("holds", int(1)),
        ("ttl_ms", int(750)),
        ("held_ms", int(250)),
        ("session", int(0)),
        ("meta", bulk("host-7")),
    ];
    let lock = |holders| {
        [
            ("mode", bulk("exclusive")),
            ("token", token.clone()),
            ("ttl_ms", int(750)),
            ("holders", array([holders])),
            ("waiters", int(0)),
        ]
    };
    assert_eq!(cmd!(two, "LOCK.INFO", "k"), flat(&lock(flat(&holder))));
    assert_eq!(cmd!(three, "LOCK.INFO", "k"), map(&lock(map(&holder))));
}

#[test]
fn a_kept_lock_shows_no_holders_in_both_protocols() {
    let server = single();
    let (mut two, mut three) = (server.conn(), server.conn3());
    let token = cmd!(two, "LOCK.ACQUIRE", "k", UUID, 1000);
    assert_eq!(cmd!(two, "LOCK.RELEASE", "k", UUID, "KEEP", 500), int(1));
    server.clock().advance_ms(100);
    let kept = [
        ("mode", bulk("kept")),
        ("token", token),
        ("ttl_ms", int(400)),
        ("holders", array([])),
        ("waiters", int(0)),
    ];
    assert_eq!(cmd!(two, "LOCK.INFO", "k"), flat(&kept));
    assert_eq!(cmd!(three, "LOCK.INFO", "k"), map(&kept));
    server.clock().advance_ms(400);
    assert_eq!(cmd!(two, "LOCK.INFO", "k").field("ttl_ms"), &int(0));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(two, "LOCK.INFO", "k"), nil());
}

#[test]
fn a_free_lock_is_nil() {
    let server = recorder();
    answers(&server, &[("LOCK.INFO k", nil()), ("LOCK.INFO ", nil())]);
    assert_eq!(cmd!(server.conn3(), "LOCK.INFO", "k"), nil());
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

#[test]
fn times_follow_the_clock_to_the_last_microsecond() {
    let server = single();
    let mut c = server.conn();
    let start_ms = server.clock().now_ms();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    // (µs behind the start of the grant's millisecond, held_ms, ttl_ms)
    for (us, held, ttl) in [
        (999, 0, 1000),
        (1000, 1, 999),
        (1999, 1, 999),
        (999_999, 999, 1),
        (1_000_000, 1000, 0),
        (1_000_999, 1000, 0),
    ] {
        server.clock().freeze_at(start_ms * 1000 + us);
        let info = cmd!(c, "LOCK.INFO", "k");
        let holder = &info.field("holders").items()[0];
        assert_eq!(holder.field("held_ms"), &int(held), "{us}");
        assert_eq!(holder.field("ttl_ms"), &int(ttl), "{us}");
        assert_eq!(info.field("ttl_ms"), &int(ttl), "{us}");
        assert_eq!(cmd!(c, "PTTL", "k"), int(ttl), "{us}");
    }
    server.clock().freeze_at(start_ms * 1000 + 1_001_000);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

#[test]
fn held_ms_is_0_after_the_clock_stepped_back() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    server.clock().advance_ms(-5000);
    let info = cmd!(c, "LOCK.INFO", "k");
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("held_ms"), &int(0));
    assert_eq!(holder.field("ttl_ms"), &int(6000));
    server.clock().advance_ms(5300);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("holders").items()[0].field("held_ms"), &int(300));
}

#[test]
fn a_foreign_expire_shows_as_the_time_that_is_really_left() {
    let server = single();
    let mut c = server.conn();
    // (what somebody did to the key, ttl_ms afterwards)
    let cases: [(&[&str], i64); 4] = [
        (&["PEXPIRE", "k", "300"], 300),
        (&["EXPIRE", "k", "1"], 1000),
        // Nobody prolongs a lease by the back door.
        (&["PEXPIRE", "k", "9000"], 2000),
        (&["PERSIST", "k"], 2000),
    ];
    for (command, ttl) in cases {
        cmd!(c, "DEL", "k");
        cmd!(c, "LOCK.ACQUIRE", "k", "a", 2000);
        assert_eq!(c.cmd(command), int(1));
        let info = cmd!(c, "LOCK.INFO", "k");
        assert_eq!(info.field("ttl_ms"), &int(ttl), "{command:?}");
        let holder = &info.field("holders").items()[0];
        assert_eq!(holder.field("ttl_ms"), &int(ttl), "{command:?}");
        server.clock().advance_ms(ttl);
        assert!(!cmd!(c, "LOCK.INFO", "k").is_nil(), "{command:?}");
        server.clock().advance_ms(1);
        assert!(cmd!(c, "LOCK.INFO", "k").is_nil(), "{command:?}");
    }
}

#[test]
fn a_foreign_expire_shows_on_a_kept_lock_too() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 1000);
    cmd!(c, "PEXPIRE", "k", 300);
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(300));
}

#[test]
fn looking_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "held", "a", 1000);
    cmd!(c, "LOCK.ACQUIRE", "kept", "a", 1000);
    cmd!(c, "LOCK.RELEASE", "kept", "a", "KEEP", 1000);
    // Over, and still there: its TTL was taken away.
    cmd!(c, "LOCK.ACQUIRE", "over", "a", 10);
    cmd!(c, "PERSIST", "over");
    server.clock().advance_ms(11);
    changes_nothing(&server, || {
        assert!(!cmd!(c, "LOCK.INFO", "held").is_nil());
        assert!(!cmd!(c, "LOCK.INFO", "kept").is_nil());
        assert!(cmd!(c, "LOCK.INFO", "over").is_nil());
        assert_eq!(cmd!(c, "EXISTS", "over"), int(1));
    });
}

#[test]
fn a_replica_shows_what_its_primary_shows() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "held", UUID, 1000, "META", "m");
    cmd!(c, "LOCK.ACQUIRE", "kept", UUID, 1000);
    cmd!(c, "LOCK.RELEASE", "kept", UUID, "KEEP", 700);
    chain.clock().advance_ms(100);
    chain.sync();
    for key in ["held", "kept", "free"] {
        let info = cmd!(c, "LOCK.INFO", key);
        for follower in [&chain.replica, &chain.sub] {
            assert_eq!(cmd!(follower.conn(), "LOCK.INFO", key), info, "{key}");
        }
    }
    // Over by the clock, whether the primary has said so yet or not.
    chain.clock().advance_ms(901);
    for follower in [&chain.replica, &chain.sub] {
        for key in ["held", "kept"] {
            assert_eq!(cmd!(follower.conn(), "LOCK.INFO", key), nil(), "{key}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in keys.into_iter().chain(["guard"]) {
        refuses(&server, WRONG_TYPE, &[format!("LOCK.INFO {key}")]);
    }
}

#[test]
fn any_other_number_of_words_is_the_servers_arity_error() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "k", "a", 1000);
    refuses(
        &server,
        &wrong_arity("lock.info"),
        &["LOCK.INFO", "LOCK.INFO k k", "LOCK.INFO k "],
    );
}
