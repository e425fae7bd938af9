//! LOCK.RENEW.

use crate::support::*;

#[test]
fn a_renewal_answers_the_lease_that_is_left() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000, "META", "m");
    server.clock().advance_ms(400);
    // (asked lease, lease left): never shorter than what there was.
    for (lease, left) in [
        (100, 600),
        (600, 600),
        (601, 601),
        (86_400_000, 86_400_000),
        (1, 86_400_000),
    ] {
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", lease), int(left), "{lease}");
        assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + 400 + left));
    }
    let info = cmd!(c, "LOCK.INFO", "k");
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("token"), &token);
    assert_eq!(holder.field("meta"), &bulk("m"));
    assert_eq!(holder.field("held_ms"), &int(400));
    assert_eq!(holder.field("holds"), &int(1));
}

#[test]
fn a_renewal_counts_from_the_millisecond() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1);
    server.clock().freeze_at(ms * 1000 + 1999);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 5), int(5));
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + 6));
}

#[test]
fn a_renewal_that_extends_nothing_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    answers(
        &server,
        &[
            ("LOCK.RENEW k a 1000", int(1000)),
            ("LOCK.RENEW k a 1", int(1000)),
            (&format!("LOCK.RENEW k a 999 TOKEN {token}"), int(1000)),
        ],
    );
}

#[test]
fn the_last_microsecond_is_in_time_and_the_next_is_not() {
    let server = single();
    let mut c = server.conn();
    let to_next_ms = 1000 - server.clock().now_us() % 1000;
    cmd!(c, "LOCK.ACQUIRE", "in-time", "a", 1000);
    cmd!(c, "LOCK.ACQUIRE", "late", "a", 1000);
    server.clock().advance_us(1_000_000 + to_next_ms - 1);
    // The lease left is 0 here, but a renewal answers at least 1.
    assert_eq!(cmd!(c, "LOCK.RENEW", "in-time", "a", 1), int(1));
    server.clock().advance_us(1);
    assert_eq!(cmd!(c, "LOCK.RENEW", "late", "a", 1000), int(0));
    assert_eq!(cmd!(c, "EXISTS", "late"), int(0));
    assert_eq!(cmd!(c, "LOCK.RENEW", "in-time", "a", 1), int(1));
}

#[test]
fn a_lost_lock_answers_0_and_nothing_changes() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    let (before, after) = (token - 1, token + 1);
    answers(
        &server,
        &[
            ("LOCK.RENEW k b 1000", int(0)),
            ("LOCK.RENEW k A 2000", int(0)),
            (&format!("LOCK.RENEW k b 2000 TOKEN {token}"), int(0)),
            (&format!("LOCK.RENEW k a 2000 TOKEN {before}"), int(0)),
            (&format!("LOCK.RENEW k a 2000 TOKEN {after}"), int(0)),
            ("LOCK.RENEW k a 2000 TOKEN 1", int(0)),
            ("LOCK.RENEW k a 2000 TOKEN 9007199254740991", int(0)),
            ("LOCK.RENEW never a 1000", int(0)),
        ],
    );
    let renewed = cmd!(c, "LOCK.RENEW", "k", "a", 2000, "TOKEN", token);
    assert_eq!(renewed, int(2000));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 500), int(1));
    answers(&server, &[("LOCK.RENEW k a 2000", int(0))]);
    server.clock().advance_ms(501);
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000).as_int() > token);
    answers(&server, &[("LOCK.RENEW k a 2000", int(0))]);
}

#[test]
fn a_lost_lock_is_never_created_again() {
    let server = single();
    let mut c = server.conn();
    let ways: [&[&str]; 5] = [
        &["LOCK.RELEASE", "k", "a"],
        &["LOCK.FORCERELEASE", "k"],
        &["DEL", "k"],
        &["FLUSHALL"],
        &["PEXPIRE", "k", "0"],
    ];
    for way in ways {
        let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
        c.cmd(way);
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0), "{way:?}");
        let with_token = cmd!(c, "LOCK.RENEW", "k", "a", 1000, "TOKEN", token);
        assert_eq!(with_token, int(0), "{way:?}");
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "{way:?}");
    }
}

#[test]
fn a_renewal_after_the_clock_stepped_back_does_not_shorten() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    server.clock().advance_ms(-5000);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(6000));
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 7000), int(7000));
}

#[test]
fn integers_out_of_range_are_refused() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "held", "o", 1000);
    let lease_error = "ERR lease_ms must be an integer between 1 and 86400000";
    let token_error = "ERR TOKEN must be an integer between 1 and 9007199254740991";
    for key in ["k", "held"] {
        let with = |option: &str, max| {
            let texts = no_integers_up_to(max);
            let line = |text: &String| format!("LOCK.RENEW {key} o {option}{text}");
            texts.iter().map(line).collect::<Vec<_>>()
        };
        refuses(&server, lease_error, &with("", 86_400_000));
        refuses(&server, token_error, &with("2000 TOKEN ", (1 << 53) - 1));
    }
}

#[test]
fn owners_of_no_or_too_many_bytes_are_refused() {
    let server = recorder();
    let long = "o".repeat(513);
    refuses(
        &server,
        "ERR owner must be between 1 and 512 bytes long",
        &["LOCK.RENEW k  1000", &format!("LOCK.RENEW k {long} 1000")],
    );
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let lines = [
            "TOKEN",
            "TOKEN 5 TOKEN",
            "TOKEN 5 TOKEN 5",
            "TOKEN 5 token 6",
            "TOKEN 5 6",
            "5",
            "",
            "KEEP 5",
            "META m",
            "MAXHOLD 5",
            "SHARED",
        ]
        .map(|options| format!("LOCK.RENEW {key} o 2000 {options}"));
        refuses(&server, SYNTAX, &lines);
    }
}

#[test]
fn the_token_option_is_read_in_any_case() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    for (n, word) in ["TOKEN", "token", "ToKeN"].into_iter().enumerate() {
        let lease = 2000 + n;
        let renewed = cmd!(c, "lock.renew", "k", "a", lease, word, token);
        assert_eq!(renewed, int(lease as i64));
    }
}

#[test]
fn too_few_words_are_the_servers_arity_error() {
    let server = recorder();
    refuses(
        &server,
        &wrong_arity("lock.renew"),
        &["LOCK.RENEW", "LOCK.RENEW k", "LOCK.RENEW k o"],
    );
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in keys.into_iter().chain(["guard"]) {
        let lines = ["", " TOKEN 5"].map(|end| format!("LOCK.RENEW {key} o 1000{end}"));
        refuses(&server, WRONG_TYPE, &lines);
    }
}
