//! LOCK.ACQUIRE.

use crate::support::*;

const NEVER_A_LEASE: &str = "ERR lease_ms must be an integer between 1 and 86400000";

#[test]
fn a_free_lock_is_granted_under_the_clocks_token() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", UUID, 1000), int(now));
    assert_eq!(cmd!(c, "TYPE", "k"), status("sluice-lk"));
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    let scan = cmd!(c, "SCAN", 0, "TYPE", "sluice-lk");
    assert_eq!(scan.items()[1], array([bulk("k")]));
}

#[test]
fn tokens_of_one_microsecond_still_rise() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "a", "o", 1000), int(now));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "b", "o", 1000), int(now + 1));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "c", "o", 1000), int(now + 2));
    server.clock().advance_us(2);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "d", "o", 1000), int(now + 3));
    server.clock().advance_us(8);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "e", "o", 1000), int(now + 10));
}

#[test]
fn a_busy_lock_answers_nil_and_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000, "META", "first");
    let held = cmd!(c, "LOCK.INFO", "k");
    answers(
        &server,
        &[
            ("LOCK.ACQUIRE k b 1000", nil()),
            ("LOCK.ACQUIRE k b 86400000 META mine", nil()),
            ("LOCK.ACQUIRE k b 1", nil()),
            // Owners are bytes: neither case nor prefix nor length may confuse two of them.
            ("LOCK.ACQUIRE k A 1000", nil()),
            ("LOCK.ACQUIRE k aa 1000", nil()),
            ("LOCK.ACQUIRE k a\0 1000", nil()),
        ],
    );
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), held);
    // A busy reply consumes no token.
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "free", "b", 1000), int(T_US + 1));
}

#[test]
fn busy_is_a_nil_in_resp3_too() {
    let server = single();
    let mut c = server.conn3();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    assert_eq!(token, int(server.clock().now_us()));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
}

#[test]
fn a_hold_lives_through_the_last_millisecond_of_its_lease() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let sub_ms = start % 1000;
    assert!(sub_ms > 0, "the lease must count from the floor of now");
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);

    server.clock().advance_ms(1000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
    assert_eq!(cmd!(c, "PTTL", "k"), int(0));
    // The last microsecond of the last millisecond.
    server.clock().advance_us(999 - sub_ms);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
    assert_eq!(cmd!(c, "EXISTS", "k"), int(1));

    server.clock().advance_us(1);
    let freed = server.clock().now_us();
    assert_eq!(freed, start - sub_ms + 1_001_000);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(freed));
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
}

#[test]
fn the_lease_counts_from_the_millisecond_not_the_microsecond() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    for (key, sub_ms) in [("a", 0), ("b", 1), ("c", 500), ("d", 999)] {
        server.clock().freeze_at(ms * 1000 + sub_ms);
        cmd!(c, "LOCK.ACQUIRE", key, "o", 7);
        assert_eq!(cmd!(c, "PEXPIRETIME", key), int(ms + 7), "{sub_ms} µs");
        assert_eq!(cmd!(c, "LOCK.INFO", key).field("ttl_ms"), &int(7));
    }
    server.clock().freeze_at((ms + 7) * 1000 + 999);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", key, "p", 7), nil());
    }
    server.clock().advance_us(1);
    for key in ["a", "b", "c", "d"] {
        assert!(!cmd!(c, "LOCK.ACQUIRE", key, "p", 7).is_nil());
    }
}

#[test]
fn the_shortest_and_the_longest_lease_are_taken() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "short", "a", 1);
    cmd!(c, "LOCK.ACQUIRE", "long", "a", 86_400_000);
    assert_eq!(cmd!(c, "PTTL", "short"), int(1));
    assert_eq!(cmd!(c, "PTTL", "long"), int(86_400_000));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "short", "b", 1), nil());
    server.clock().advance_ms(1);
    assert!(cmd!(c, "LOCK.ACQUIRE", "short", "b", 1).as_int() > 0);
    assert_eq!(cmd!(c, "PTTL", "long"), int(86_400_000 - 2));
}

#[test]
fn the_same_owner_gets_the_same_token_and_a_lease_that_only_grows() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000, "META", "first");
    server.clock().advance_ms(400);
    // (asked lease, deadline afterwards in ms from the start)
    for (lease, deadline) in [
        (100, 1000),
        (600, 1000),
        (601, 1001),
        (5000, 5400),
        (1, 5400),
    ] {
        let again = cmd!(c, "LOCK.ACQUIRE", "k", "a", lease, "META", "other");
        assert_eq!(again, token, "lease {lease}");
        assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + deadline));
        let info = cmd!(c, "LOCK.INFO", "k");
        assert_eq!(info.field("ttl_ms"), &int(deadline - 400));
        let holder = &info.field("holders").items()[0];
        assert_eq!(holder.field("meta"), &bulk("first"));
        assert_eq!(holder.field("holds"), &int(1));
        assert_eq!(holder.field("held_ms"), &int(400));
        assert_eq!(holder.field("token"), &token);
    }
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "one release frees it");
}

#[test]
fn a_retry_that_extends_nothing_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    answers(
        &server,
        &[
            ("LOCK.ACQUIRE k a 1000", token.clone()),
            ("LOCK.ACQUIRE k a 1", token.clone()),
            ("LOCK.ACQUIRE k a 999 META other", token.clone()),
        ],
    );
    server.clock().advance_ms(1000);
    // In the last millisecond any lease is an extension.
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(1));
}

#[test]
fn a_retry_after_the_lease_is_a_new_grant() {
    let server = single();
    let mut c = server.conn();
    let first = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000, "META", "first").as_int();
    server.clock().advance_ms(1000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), int(first));
    server.clock().advance_ms(1001);
    let now = server.clock().now_us();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), int(now));
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("holders").items()[0].field("meta"), &bulk(""));
    assert_eq!(info.field("holders").items()[0].field("held_ms"), &int(0));
}

#[test]
fn tokens_rise_however_the_lock_became_free() {
    let server = single();
    let mut c = server.conn();
    let mut last = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    let ways: [&[&str]; 5] = [
        &["LOCK.RELEASE", "k", "a"],
        &["LOCK.FORCERELEASE", "k"],
        &["DEL", "k"],
        &["UNLINK", "k"],
        &["FLUSHALL"],
    ];
    for way in ways {
        c.cmd(way);
        let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
        assert_eq!(token, last + 1, "after {way:?}");
        last = token;
    }
    // Also when the clock has gone back meanwhile.
    cmd!(c, "DEL", "k");
    server.clock().advance_ms(-60_000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), int(last + 1));
}

#[test]
fn owners_have_1_to_512_bytes() {
    let server = recorder();
    let mut c = server.conn();
    for (key, length) in [("one", 1), ("inline", 45), ("heap", 46), ("most", 512)] {
        let owner = vec![b'o'; length];
        assert!(cmd!(c, "LOCK.ACQUIRE", key, owner, 1000).as_int() > 0);
        let info = cmd!(c, "LOCK.INFO", key);
        assert_eq!(
            info.field("holders").items()[0].field("owner"),
            &bulk(&owner)
        );
        // All of it counts.
        let mut other = owner.clone();
        other[length - 1] = b'p';
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", key, other, 1000), nil());
    }
    let error = "ERR owner must be between 1 and 512 bytes long";
    let long = "o".repeat(513);
    refuses(
        &server,
        error,
        &[
            "LOCK.ACQUIRE k  1000",
            &format!("LOCK.ACQUIRE k {long} 1000"),
        ],
    );
}

#[test]
fn meta_has_up_to_1024_bytes_of_any_kind() {
    let server = recorder();
    let mut c = server.conn();
    let all_bytes: Vec<u8> = (0..1024).map(|i| i as u8).collect();
    let metas: [&[u8]; 4] = [b"", b"host-7 job 12", b"\0\r\n\xff", &all_bytes];
    for (n, meta) in metas.iter().enumerate() {
        let owner = vec![b'o'; if n == 3 { 512 } else { 1 }];
        assert!(cmd!(c, "LOCK.ACQUIRE", n, owner, 1000, "META", meta).as_int() > 0);
        let info = cmd!(c, "LOCK.INFO", n);
        assert_eq!(info.field("holders").items()[0].field("meta"), &bulk(meta));
    }
    let long = "m".repeat(1025);
    refuses(
        &server,
        "ERR META must be between 0 and 1024 bytes long",
        &[format!("LOCK.ACQUIRE k o 1000 META {long}")],
    );
}

#[test]
fn a_lease_that_is_no_integer_in_range_is_refused() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let lines: Vec<String> = no_integers_up_to(86_400_000)
            .iter()
            .map(|text| format!("LOCK.ACQUIRE {key} o {text}"))
            .collect();
        refuses(&server, NEVER_A_LEASE, &lines);
    }
    for text in [" 1000", "1000 ", "1 000", "\u{a0}1"] {
        let reply = cmd!(server.conn(), "LOCK.ACQUIRE", "k", "o", text);
        assert_eq!(reply, err(NEVER_A_LEASE), "{text:?}");
    }
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let lines = [
            "META",
            "META m META",
            "META m META m",
            "META m meta n",
            "META m n",
            "FOO",
            "FOO 1",
            "MET m",
            "METAS m",
            "",
            "1000",
            "TOKEN 1",
            "KEEP 1",
            "NX",
            "SHARED SHARED",
            "REENTRANT META m REENTRANT",
            "SESSION SESSION",
            "SHARED 1",
            "BLOCK",
            "BLOCK 5 META m BLOCK 5",
            "MAXHOLD",
            "MAXHOLD 1000 MAXHOLD 1000",
        ]
        .map(|options| format!("LOCK.ACQUIRE {key} o 1000 {options}"));
        refuses(&server, SYNTAX, &lines);
    }
}

#[test]
fn options_and_the_command_are_read_in_any_case() {
    let server = single();
    let mut c = server.conn();
    for (n, word) in ["META", "meta", "MeTa"].into_iter().enumerate() {
        assert!(cmd!(c, "lock.Acquire", n, "o", 1000, word, "meta").as_int() > 0);
        let info = cmd!(c, "LOCK.INFO", n);
        assert_eq!(
            info.field("holders").items()[0].field("meta"),
            &bulk("meta")
        );
    }
}

#[test]
fn too_few_words_are_the_servers_arity_error() {
    let server = recorder();
    refuses(
        &server,
        &wrong_arity("lock.acquire"),
        &["LOCK.ACQUIRE", "LOCK.ACQUIRE k", "LOCK.ACQUIRE k o"],
    );
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in keys.into_iter().chain(["guard"]) {
        refuses(
            &server,
            WRONG_TYPE,
            &[
                format!("LOCK.ACQUIRE {key} o 1000"),
                format!("LOCK.ACQUIRE {key} o 1000 META m"),
            ],
        );
    }
}

#[test]
fn keys_and_owners_are_any_bytes() {
    let server = single();
    let mut c = server.conn();
    let names: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\r\n$5\r\n", b"\xff\xfe", b" k "];
    for key in names {
        for owner in names.iter().filter(|owner| !owner.is_empty()) {
            let token = cmd!(c, "LOCK.ACQUIRE", key, owner, 1000);
            assert!(token.as_int() > 0);
            assert_eq!(cmd!(c, "LOCK.ACQUIRE", key, owner, 1000), token);
            assert_eq!(cmd!(c, "LOCK.ACQUIRE", key, "other", 1000), nil());
            let info = cmd!(c, "LOCK.INFO", key);
            assert_eq!(
                info.field("holders").items()[0].field("owner"),
                &bulk(owner)
            );
            assert_eq!(cmd!(c, "LOCK.RENEW", key, owner, 1000), int(1000));
            assert_eq!(cmd!(c, "LOCK.RELEASE", key, owner), int(1));
        }
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn locks_of_two_databases_are_two_locks() {
    let server = single();
    let mut c = server.conn();
    let first = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    cmd!(c, "SELECT", 1);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(first + 1));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    cmd!(c, "SELECT", 0);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
}

#[test]
fn a_lease_stretches_when_the_clock_steps_back() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    server.clock().advance_ms(-5000);
    assert_eq!(cmd!(c, "PTTL", "k"), int(6000));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(6000));
    server.clock().advance_ms(6000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
    server.clock().advance_ms(1);
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000),
        int(server.clock().now_us())
    );
}

#[test]
fn a_lease_ends_early_when_the_clock_steps_forward() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 86_400_000);
    server.clock().advance_ms(365 * 86_400_000);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0));
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000),
        int(server.clock().now_us())
    );
}
