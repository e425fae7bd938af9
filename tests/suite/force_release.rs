//! LOCK.FORCERELEASE.

use crate::support::*;

/// A connection, and how the log describes it.
fn operator(server: &Server) -> (Conn, String) {
    let mut conn = server.conn();
    let info = cmd!(conn, "CLIENT", "INFO").as_text();
    let addr = info.split(' ').find(|word| word.starts_with("addr=127"));
    let client = format!("client id={} {}", conn.client_id(), addr.unwrap());
    (conn, client)
}

/// What the log says since `clear_log`: the lines of forced releases, each from its first word.
fn forced(server: &Server) -> Vec<String> {
    let log = server.log();
    let lines = log
        .lines()
        .filter_map(|line| line.split_once("LOCK.FORCERELEASE"))
        .map(|(_, rest)| format!("LOCK.FORCERELEASE{rest}"));
    lines.collect()
}

#[test]
fn a_held_lock_is_freed_and_the_log_says_by_whom() {
    let server = single();
    server.clear_log();
    let (mut c, client) = operator(&server);
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 60_000).as_int();
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
    assert_eq!(
        forced(&server),
        [format!(
            "LOCK.FORCERELEASE key=\"k\" owner=\"{UUID}\" token={token} by {client}"
        )]
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    // Its holder finds out.
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 1000), int(0));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(token + 1));
}

#[test]
fn a_kept_lock_is_freed_too() {
    let server = single();
    server.clear_log();
    let (mut c, client) = operator(&server);
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 60_000).as_int();
    cmd!(c, "LOCK.RELEASE", "k", UUID, "KEEP", 5000);
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
    assert_eq!(
        forced(&server),
        [format!(
            "LOCK.FORCERELEASE key=\"k\" kept token={token} by {client}"
        )]
    );
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(token + 1));
}

#[test]
fn what_is_free_answers_0_and_leaves_no_line() {
    let server = recorder();
    let mut c = server.conn();
    answers(
        &server,
        &[
            ("LOCK.FORCERELEASE k", int(0)),
            ("LOCK.FORCERELEASE k TOKEN 5", int(0)),
        ],
    );
    cmd!(c, "LOCK.ACQUIRE", "over", "a", 1000);
    cmd!(c, "PERSIST", "over");
    cmd!(c, "LOCK.ACQUIRE", "expired", "a", 1000);
    server.clock().advance_ms(1000);
    // In its last millisecond it still is somebody's.
    cmd!(c, "LOCK.ACQUIRE", "last", "a", 1);
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "last"), int(1));
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "expired"), int(0));
    answers(&server, &[("LOCK.FORCERELEASE over", int(0))]);
    assert_eq!(forced(&server).len(), 1);
}

#[test]
fn with_a_token_only_the_holder_that_has_it_goes() {
    let server = recorder();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    for wrong in [1, token - 1, token + 1, (1 << 53) - 1] {
        answers(
            &server,
            &[(&format!("LOCK.FORCERELEASE k TOKEN {wrong}"), int(0))],
        );
    }
    assert!(forced(&server).is_empty());
    let freed = cmd!(c, "lock.forceRelease", "k", "token", token);
    assert_eq!(freed, int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(forced(&server).len(), 1);

    // A kept lock has no holder, whatever token its last one had.
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 1000);
    answers(
        &server,
        &[(&format!("LOCK.FORCERELEASE k TOKEN {token}"), int(0))],
    );
    assert_eq!(forced(&server).len(), 1);
}

#[test]
fn any_bytes_make_one_printable_line() {
    let server = single();
    let (mut c, client) = operator(&server);
    // (key or owner, as the log shows it)
    let cases: [(Vec<u8>, String); 9] = [
        (b"\0\x01\x1b[31m".to_vec(), r#""\x00\x01\x1b[31m""#.into()),
        (b"a\r\nb\tc".to_vec(), r#""a\r\nb\tc""#.into()),
        (b"\xff\xc3\xa9".to_vec(), r#""\xff\xc3\xa9""#.into()),
        (
            br#"say "hi" \ 'ho'"#.to_vec(),
            r#""say \"hi\" \\ \'ho\'""#.into(),
        ),
        (b"%s%n".to_vec(), r#""%s%n""#.into()),
        // 256 characters as printed, and never half of one.
        (vec![b'x'; 256], format!("\"{}\"", "x".repeat(256))),
        (
            vec![b'x'; 257],
            format!("\"{}\"... (1 more bytes)", "x".repeat(256)),
        ),
        (vec![0xff; 64], format!("\"{}\"", r"\xff".repeat(64))),
        (
            [&b"x"[..], &[0xff; 64]].concat(),
            format!("\"x{}\"... (1 more bytes)", r"\xff".repeat(63)),
        ),
    ];
    for (bytes, shown) in cases {
        server.clear_log();
        let token = cmd!(c, "LOCK.ACQUIRE", bytes, "o", 1000).as_int();
        assert_eq!(cmd!(c, "LOCK.FORCERELEASE", bytes), int(1));
        let as_key = format!("LOCK.FORCERELEASE key={shown} owner=\"o\" token={token} by {client}");
        let token = cmd!(c, "LOCK.ACQUIRE", "k", bytes, 1000).as_int();
        assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
        let as_owner =
            format!("LOCK.FORCERELEASE key=\"k\" owner={shown} token={token} by {client}");
        assert_eq!(forced(&server), [as_key, as_owner]);
    }
}

#[test]
fn the_longest_key_and_owner_leave_room_for_the_client() {
    let server = single();
    server.clear_log();
    let (mut c, client) = operator(&server);
    // Four characters a byte on the line, whose end the server cuts off at 1024.
    let (key, owner) = (vec![0u8; 100_000], vec![0xffu8; 512]);
    let token = cmd!(c, "LOCK.ACQUIRE", key, owner, 1000).as_int();
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", key), int(1));
    let line = &forced(&server)[0];
    assert!(
        line.ends_with(&format!(" token={token} by {client}")),
        "{line}"
    );
    assert!(line.contains("... (99936 more bytes) owner="), "{line}");
}

#[test]
fn in_a_transaction_the_log_still_names_the_client() {
    let server = single();
    server.clear_log();
    let (mut c, client) = operator(&server);
    let replies = c.exec_multi(&[
        args!["LOCK.ACQUIRE", "k", "a", 1000],
        args!["LOCK.FORCERELEASE", "k"],
        args!["LOCK.FORCERELEASE", "k"],
    ]);
    assert_eq!(replies[1..], [int(1), int(0)]);
    let token = replies[0].as_int();
    assert_eq!(
        forced(&server),
        [format!(
            "LOCK.FORCERELEASE key=\"k\" owner=\"a\" token={token} by {client}"
        )]
    );
}

#[test]
fn in_a_script_the_line_is_there_too() {
    // Its client is the server's own for scripts, which has no address.
    let server = single();
    server.clear_log();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    let script = "return redis.call('LOCK.FORCERELEASE', KEYS[1])";
    assert_eq!(c.eval(script, &["k"], &[]), int(1));
    let lines = forced(&server);
    let line = format!("LOCK.FORCERELEASE key=\"k\" owner=\"a\" token={token} by client id=");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(&line), "{lines:?}");
}

#[test]
fn tokens_out_of_range_are_refused() {
    let server = recorder();
    cmd!(server.conn(), "LOCK.ACQUIRE", "held", "o", 1000);
    for key in ["k", "held"] {
        let lines: Vec<String> = no_integers_up_to((1 << 53) - 1)
            .iter()
            .map(|text| format!("LOCK.FORCERELEASE {key} TOKEN {text}"))
            .collect();
        let error = "ERR TOKEN must be an integer between 1 and 9007199254740991";
        refuses(&server, error, &lines);
    }
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
            "TOKEN 5 6",
            "",
            "o",
            "5",
            "KEEP 5",
            "FORCE",
        ]
        .map(|options| format!("LOCK.FORCERELEASE {key} {options}"));
        refuses(&server, SYNTAX, &lines);
    }
    assert!(forced(&server).is_empty());
}

#[test]
fn no_key_is_the_servers_arity_error() {
    let server = recorder();
    let error = wrong_arity("lock.forcerelease");
    refuses(&server, &error, &["LOCK.FORCERELEASE"]);
}

#[test]
fn a_key_of_another_type_is_a_wrongtype_error() {
    let server = recorder();
    let mut c = server.conn();
    let keys = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in keys.into_iter().chain(["guard"]) {
        let lines = ["", " TOKEN 5"].map(|end| format!("LOCK.FORCERELEASE {key}{end}"));
        refuses(&server, WRONG_TYPE, &lines);
    }
    assert!(forced(&server).is_empty());
}
