//! LOCK.RELEASE.

use crate::support::*;

const NO_TOKEN: &str = "ERR TOKEN must be an integer between 1 and 9007199254740991";
const NO_KEEP: &str = "ERR KEEP must be an integer between 1 and 86400000";

#[test]
fn the_holder_frees_the_lock() {
    let server = single();
    let mut c = server.conn();
    let first = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(first + 1));
}

#[test]
fn whoever_does_not_hold_it_gets_0_and_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    answers(
        &server,
        &[
            ("LOCK.RELEASE k b", int(0)),
            ("LOCK.RELEASE k A", int(0)),
            ("LOCK.RELEASE k aa", int(0)),
            ("LOCK.RELEASE k b KEEP 5000", int(0)),
            ("LOCK.RELEASE never a", int(0)),
            ("LOCK.RELEASE never a KEEP 5000", int(0)),
            (&format!("LOCK.RELEASE never a TOKEN {T_US}"), int(0)),
        ],
    );
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    // Released already.
    answers(
        &server,
        &[
            ("LOCK.RELEASE k a", int(0)),
            ("LOCK.RELEASE k a KEEP 5000", int(0)),
        ],
    );
}

#[test]
fn only_the_right_token_releases() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    for wrong in [1, token - 1, token + 1, (1 << 53) - 1] {
        answers(
            &server,
            &[
                (&format!("LOCK.RELEASE k a TOKEN {wrong}"), int(0)),
                (&format!("LOCK.RELEASE k a TOKEN {wrong} KEEP 500"), int(0)),
            ],
        );
    }
    // The right token in the wrong hands.
    answers(
        &server,
        &[(&format!("LOCK.RELEASE k b TOKEN {token}"), int(0))],
    );
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "TOKEN", token), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn the_token_of_an_earlier_grant_does_not_release_the_next_one() {
    let server = single();
    let mut c = server.conn();
    let first = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    cmd!(c, "LOCK.RELEASE", "k", "a");
    let second = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "TOKEN", first), int(0));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "TOKEN", second), int(1));
}

#[test]
fn a_release_counts_until_the_last_microsecond_of_the_lease() {
    let server = single();
    let mut c = server.conn();
    let to_next_ms = 1000 - server.clock().now_us() % 1000;
    cmd!(c, "LOCK.ACQUIRE", "in-time", "a", 1000);
    cmd!(c, "LOCK.ACQUIRE", "late", "a", 1000);
    server.clock().advance_us(1_000_000 + to_next_ms - 1);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "in-time", "a"), int(1));
    server.clock().advance_us(1);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "late", "a"), int(0));
}

#[test]
fn a_release_after_a_take_over_leaves_the_successor_alone() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    server.clock().advance_ms(1001);
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000).as_int() > token);
    answers(
        &server,
        &[
            ("LOCK.RELEASE k a", int(0)),
            (&format!("LOCK.RELEASE k a TOKEN {token}"), int(0)),
            ("LOCK.RELEASE k a KEEP 86400000", int(0)),
        ],
    );
}

#[test]
fn keep_holds_everyone_off_for_exactly_so_long() {
    let server = single();
    let mut c = server.conn();
    let to_next_ms = 1000 - server.clock().now_us() % 1000;
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 60_000, "META", "m").as_int();
    server.clock().advance_ms(20);
    // Shorter than the lease that was left: KEEP counts from the release.
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 2000), int(1));
    assert_eq!(cmd!(c, "PTTL", "k"), int(2000));

    let still_kept = |c: &mut Conn| {
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), nil(), "old owner");
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0));
        assert_eq!(
            cmd!(c, "LOCK.RENEW", "k", "a", 1000, "TOKEN", token),
            int(0)
        );
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "TOKEN", token), int(0));
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 9000), int(0));
        let info = cmd!(c, "LOCK.INFO", "k");
        assert_eq!(info.field("mode"), &bulk("kept"));
        assert_eq!(info.field("holders"), &array([]));
    };
    changes_nothing(&server, || still_kept(&mut c));
    server.clock().advance_us(2_000_000 + to_next_ms - 1);
    still_kept(&mut c);
    assert_eq!(cmd!(c, "PTTL", "k"), int(0));
    server.clock().advance_us(1);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000),
        int(server.clock().now_us())
    );
}

#[test]
fn keep_outlasts_the_lease_that_it_replaces() {
    let server = single();
    let mut c = server.conn();
    for (key, keep) in [("least", 1), ("longer", 5000), ("most", 86_400_000)] {
        let token = cmd!(c, "LOCK.ACQUIRE", key, "a", 1000).as_int();
        assert_eq!(cmd!(c, "LOCK.RELEASE", key, "a", "KEEP", keep), int(1));
        assert_eq!(cmd!(c, "PTTL", key), int(keep));
        // All that is left of the hold is its token.
        let kept = array([
            bulk("mode"),
            bulk("kept"),
            bulk("token"),
            int(token),
            bulk("ttl_ms"),
            int(keep),
            bulk("holders"),
            array([]),
            bulk("waiters"),
            int(0),
        ]);
        assert_eq!(cmd!(c, "LOCK.INFO", key), kept);
    }
}

#[test]
fn keep_and_token_go_together_in_any_order_and_case() {
    let server = single();
    let mut c = server.conn();
    for n in 0..4 {
        let token = cmd!(c, "LOCK.ACQUIRE", n, "a", 1000).as_int();
        let released = match n {
            0 => cmd!(c, "LOCK.RELEASE", n, "a", "TOKEN", token, "KEEP", 70),
            1 => cmd!(c, "LOCK.RELEASE", n, "a", "KEEP", 70, "TOKEN", token),
            2 => cmd!(c, "lock.release", n, "a", "keep", 70, "token", token),
            _ => cmd!(c, "Lock.Release", n, "a", "Token", token, "kEEP", 70),
        };
        assert_eq!(released, int(1));
        assert_eq!(cmd!(c, "PTTL", n), int(70));
    }
}

#[test]
fn integers_out_of_range_are_refused() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let with = |option: &str, max| {
            let texts = no_integers_up_to(max);
            let line = |text: &String| format!("LOCK.RELEASE {key} o {option} {text}");
            texts.iter().map(line).collect::<Vec<_>>()
        };
        refuses(&server, NO_KEEP, &with("KEEP", 86_400_000));
        refuses(&server, NO_TOKEN, &with("TOKEN", (1 << 53) - 1));
    }
    // The highest one there is, not this lock's.
    answers(
        &server,
        &[("LOCK.RELEASE held o TOKEN 9007199254740991", int(0))],
    );
}

#[test]
fn owners_of_no_or_too_many_bytes_are_refused() {
    let server = recorder();
    let long = "o".repeat(513);
    refuses(
        &server,
        "ERR owner must be between 1 and 512 bytes long",
        &["LOCK.RELEASE k ", &format!("LOCK.RELEASE k {long}")],
    );
    let most = "o".repeat(512);
    answers(&server, &[(&format!("LOCK.RELEASE k {most}"), int(0))]);
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let lines = [
            "TOKEN",
            "KEEP",
            "KEEP 5 TOKEN",
            "TOKEN 5 KEEP",
            "TOKEN 5 TOKEN 5",
            "TOKEN 5 token 6",
            "KEEP 5 KEEP 5",
            "KEEP 5 TOKEN 5 KEEP 5",
            "KEEP 5 6",
            "5",
            "",
            "TOKENS 5",
            "META m",
            "PX 5",
            "FORCE",
        ]
        .map(|options| format!("LOCK.RELEASE {key} o {options}"));
        refuses(&server, SYNTAX, &lines);
    }
}

#[test]
fn too_few_words_are_the_servers_arity_error() {
    let server = recorder();
    refuses(
        &server,
        &wrong_arity("lock.release"),
        &["LOCK.RELEASE", "LOCK.RELEASE k"],
    );
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in keys.into_iter().chain(["guard"]) {
        let lines = ["", " TOKEN 5", " KEEP 5"].map(|end| format!("LOCK.RELEASE {key} o{end}"));
        refuses(&server, WRONG_TYPE, &lines);
    }
}
