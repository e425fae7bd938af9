//! LOCK.GUARD.

use crate::support::*;

const WEEK_MS: i64 = 7 * 24 * 3600 * 1000;
const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;

#[test]
fn a_guard_accepts_what_is_not_older_than_the_newest_it_saw() {
    let server = single();
    let mut c = server.conn();
    for (token, accepted) in [
        (33, 1),
        (33, 1),
        (34, 1),
        (33, 0),
        (1, 0),
        (34, 1),
        (1000, 1),
        (999, 0),
        ((1i64 << 53) - 1, 1),
        ((1 << 53) - 2, 0),
        ((1 << 53) - 1, 1),
    ] {
        let verdict = cmd!(c, "LOCK.GUARD", "k", token);
        assert_eq!(verdict, int(accepted), "token {token}");
    }
    assert_eq!(cmd!(c, "TYPE", "k"), status("sluice-fn"));
}

#[test]
fn a_stale_token_changes_nothing() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.GUARD", "k", 33, "PX", 5000);
    server.clock().advance_ms(100);
    answers(
        &server,
        &[
            ("LOCK.GUARD k 32", int(0)),
            ("LOCK.GUARD k 1", int(0)),
            ("LOCK.GUARD k 32 PX 31536000000", int(0)),
        ],
    );
}

#[test]
fn the_same_token_in_the_same_millisecond_changes_nothing() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.GUARD", "k", 33, "PX", 5000);
    answers(
        &server,
        &[
            ("LOCK.GUARD k 33 PX 5000", int(1)),
            ("LOCK.GUARD k 33 PX 1", int(1)),
        ],
    );
}

#[test]
fn a_guard_remembers_for_seven_days_from_the_last_accepted_token() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    cmd!(c, "LOCK.GUARD", "k", 33);
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + WEEK_MS));
    server.clock().advance_ms(1000);
    cmd!(c, "LOCK.GUARD", "k", 32); // stale: does not count
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + WEEK_MS));
    cmd!(c, "LOCK.GUARD", "k", 33); // equal: accepted
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + 1000 + WEEK_MS));
    server.clock().advance_ms(1000);
    cmd!(c, "LOCK.GUARD", "k", 34);
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + 2000 + WEEK_MS));
}

#[test]
fn px_sets_how_long_it_remembers_and_never_shortens() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    // (token, PX, ms from the start until which it remembers)
    for (token, px, until) in [
        (10, 1, 1),
        (10, 5000, 5000),
        (11, 4999, 5000),
        (12, 1, 5000),
        (12, 5001, 5001),
        (13, YEAR_MS, YEAR_MS),
        (14, YEAR_MS - 1, YEAR_MS),
    ] {
        assert_eq!(cmd!(c, "LOCK.GUARD", "k", token, "PX", px), int(1));
        assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + until), "PX {px}");
    }
    // Without PX seven days are asked for, which is no reason to shorten either.
    cmd!(c, "LOCK.GUARD", "k", 15);
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + YEAR_MS));
    cmd!(c, "lock.guard", "l", 1, "px", 5000);
    cmd!(c, "Lock.Guard", "l", 2, "Px", 4000);
    assert_eq!(cmd!(c, "PTTL", "l"), int(5000));
}

#[test]
fn a_guard_forgets_one_millisecond_after_its_end() {
    let server = single();
    let mut c = server.conn();
    let to_next_ms = 1000 - server.clock().now_us() % 1000;
    cmd!(c, "LOCK.GUARD", "k", 33, "PX", 1000);
    server.clock().advance_us(1_000_000 + to_next_ms - 1);
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 32), int(0));
    assert_eq!(cmd!(c, "PTTL", "k"), int(0));
    server.clock().advance_us(1);
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 5, "PX", 1000), int(1));
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 4), int(0));
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
}

#[test]
fn a_guard_that_was_deleted_forgets() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.GUARD", "k", 33);
    cmd!(c, "DEL", "k");
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 5), int(1));
}

#[test]
fn a_guard_whose_ttl_was_taken_away_forgets_all_the_same() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.GUARD", "k", 33, "PX", 1000);
    cmd!(c, "PERSIST", "k");
    server.clock().advance_ms(1000);
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 32), int(0));
    assert_eq!(cmd!(c, "PTTL", "k"), int(-1), "stale: nothing is mended");
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 32, "PX", 1000), int(1));
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
}

#[test]
fn an_accepted_token_sets_a_strayed_ttl_right() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.GUARD", "k", 33, "PX", 1000);
    for stray in [args!["PERSIST", "k"], args!["PEXPIRE", "k", 10]] {
        c.cmd(&stray);
        assert_eq!(cmd!(c, "LOCK.GUARD", "k", 33, "PX", 1), int(1));
        assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    }
}

#[test]
fn a_guard_never_raises_the_token_counter() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", (1i64 << 53) - 1), int(1));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "o", 1000), int(T_US));
    // Nor does it when it comes back from a file.
    server.restart();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", (1i64 << 53) - 2), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "l", "o", 1000), int(T_US + 1));
}

#[test]
fn the_tokens_of_a_lock_pass_in_their_order() {
    let server = single();
    let mut c = server.conn();
    let first = cmd!(c, "LOCK.ACQUIRE", "lock", "a", 1000).as_int();
    server.clock().advance_ms(1001);
    let second = cmd!(c, "LOCK.ACQUIRE", "lock", "b", 1000).as_int();
    assert_eq!(cmd!(c, "LOCK.GUARD", "resource", first), int(1));
    assert_eq!(cmd!(c, "LOCK.GUARD", "resource", second), int(1));
    assert_eq!(cmd!(c, "LOCK.GUARD", "resource", first), int(0));
}

#[test]
fn a_guard_outlives_a_clock_that_stepped_back() {
    let server = single();
    let mut c = server.conn();
    let ms = server.clock().now_ms();
    cmd!(c, "LOCK.GUARD", "k", 33, "PX", 1000);
    server.clock().advance_ms(-5000);
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 32), int(0));
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 34, "PX", 1000), int(1));
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(ms + 1000));
}

#[test]
fn integers_out_of_range_are_refused() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.GUARD", "seen", 33);
    for key in ["k", "seen"] {
        let with = |words: &str, max| {
            let texts = no_integers_up_to(max);
            let line = |text: &String| format!("LOCK.GUARD {key} {words}{text}");
            texts.iter().map(line).collect::<Vec<_>>()
        };
        let token_error = "ERR token must be an integer between 1 and 9007199254740991";
        refuses(&server, token_error, &with("", (1 << 53) - 1));
        let px_error = "ERR PX must be an integer between 1 and 31536000000";
        refuses(&server, px_error, &with("99 PX ", YEAR_MS as u64));
    }
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.GUARD", "seen", 33);
    for key in ["k", "seen"] {
        let lines = [
            "PX",
            "PX 5 PX",
            "PX 5 PX 5",
            "PX 5 px 6",
            "PX 5 6",
            "",
            "5",
            "EX 5",
            "PXAT 5",
            "TOKEN 5",
        ]
        .map(|options| format!("LOCK.GUARD {key} 99 {options}"));
        refuses(&server, SYNTAX, &lines);
    }
}

#[test]
fn too_few_words_are_the_servers_arity_error() {
    let server = recorder();
    let error = wrong_arity("lock.guard");
    refuses(&server, &error, &["LOCK.GUARD", "LOCK.GUARD k"]);
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "lock", "o", 1000);
    for key in keys.into_iter().chain(["lock"]) {
        let lines = ["", " PX 5"].map(|end| format!("LOCK.GUARD {key} 99{end}"));
        refuses(&server, WRONG_TYPE, &lines);
    }
}

#[test]
fn guards_have_any_bytes_for_a_name() {
    let server = single();
    let mut c = server.conn();
    let names: [&[u8]; 4] = [b"", b"\0", b"\r\n", b"\xff\xfe"];
    for name in names {
        assert_eq!(cmd!(c, "LOCK.GUARD", name, 33), int(1));
        assert_eq!(cmd!(c, "LOCK.GUARD", name, 32), int(0));
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(4));
}
