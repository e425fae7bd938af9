//! The commands of semaphores as a client sees them: every reply, every range, every error.

use crate::kinds_support::{flat, map};
use crate::sem_support::*;
use crate::support::*;

const TOKEN_MAX: u64 = (1 << 53) - 1;
const DAY_MS: u64 = 86_400_000;
const TEN_MINUTES_MS: u64 = 600_000;
const MILLION: u64 = 1_000_000;

/// A recorder where `a` holds 2 permits of `k`.
fn server() -> Server {
    let server = recorder();
    acquire(&mut server.conn(), "k a 60000 5 PERMITS 2");
    server
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let server = server();
    for (name, max, before, after) in [
        ("lease_ms", DAY_MS, "SEM.ACQUIRE k b ", " 5"),
        ("limit", MILLION, "SEM.ACQUIRE k b 1000 ", ""),
        (
            "PERMITS",
            MILLION,
            "SEM.ACQUIRE k b 1000 5 PERMITS ",
            " BLOCK 1",
        ),
        ("BLOCK", TEN_MINUTES_MS, "SEM.ACQUIRE k b 1000 5 BLOCK ", ""),
        ("BLOCK", TEN_MINUTES_MS, "SEM.ACQUIRE free b 1 5 BLOCK ", ""),
        ("TOKEN", TOKEN_MAX, "SEM.RELEASE k a TOKEN ", ""),
        ("lease_ms", DAY_MS, "SEM.RENEW k a ", ""),
        ("lease_ms", DAY_MS, "SEM.RENEW k a ", " TOKEN 1"),
        ("TOKEN", TOKEN_MAX, "SEM.RENEW k a 90000 TOKEN ", ""),
    ] {
        let error = format!("ERR {name} must be an integer between 1 and {max}");
        let lines: Vec<String> = no_integers_up_to(max)
            .iter()
            .map(|number| format!("{before}{number}{after}"))
            .collect();
        refuses(&server, &error, &lines);
    }
}

#[test]
fn the_ends_of_every_range_are_taken() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    assert_eq!(acquire(&mut c, "low a 1 1 PERMITS 1 BLOCK 1"), t);
    let line = "high a 86400000 1000000 PERMITS 1000000 BLOCK 600000";
    assert_eq!(acquire(&mut c, line), t + 1);
    holds(&mut c, "low", &[("a", 1)]);
    holds(&mut c, "high", &[("a", 1_000_000)]);
    assert_eq!(cmd!(c, "PTTL", "low"), int(1));
    assert_eq!(cmd!(c, "PTTL", "high"), int(86_400_000));
    all_answer(
        &mut c,
        [
            ("SEM.RENEW low a 1", int(1)),
            ("SEM.RENEW low a 86400000", int(86_400_000)),
            ("SEM.RENEW low a 1 TOKEN 1", int(0)),
            ("SEM.RENEW low a 1 TOKEN 9007199254740991", int(0)),
            ("SEM.RELEASE high a TOKEN 1", int(0)),
            ("SEM.RELEASE high a TOKEN 9007199254740991", int(0)),
            ("SEM.RELEASE high a", int(1_000_000)),
        ],
    );
}

#[test]
fn the_setting_for_leases_bounds_those_of_permits() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "sluice.lock-max-lease-ms", 5000);
    cmd!(c, "CONFIG", "SET", "sluice.lock-max-wait-ms", 700);
    let lease = err("ERR lease_ms must be an integer between 1 and 5000");
    let wait = err("ERR BLOCK must be an integer between 1 and 700");
    acquire(&mut c, "k a 5000 1 BLOCK 700");
    all_answer(
        &mut c,
        [
            ("SEM.ACQUIRE k b 5001 1", lease.clone()),
            ("SEM.RENEW k a 5001", lease),
            ("SEM.ACQUIRE k b 5000 1 BLOCK 701", wait),
            ("SEM.RENEW k a 5000", int(5000)),
        ],
    );
}

#[test]
fn holders_and_meta_have_their_lengths() {
    let server = server();
    let long = "x".repeat(513);
    let holder = "ERR holder must be between 1 and 512 bytes long";
    refuses(
        &server,
        holder,
        &[
            "SEM.ACQUIRE k  1000 5".to_string(),
            format!("SEM.ACQUIRE k {long} 1000 5"),
            "SEM.RELEASE k ".to_string(),
            format!("SEM.RELEASE k {long}"),
            "SEM.RENEW k  1000".to_string(),
            format!("SEM.RENEW k {long} 1000"),
        ],
    );
    let meta = "ERR META must be between 0 and 1024 bytes long";
    let too_long = "x".repeat(1025);
    refuses(
        &server,
        meta,
        &[format!("SEM.ACQUIRE k b 1000 5 META {too_long}")],
    );
}

#[test]
fn keys_holders_and_meta_are_any_bytes() {
    let server = single();
    let mut c = server.conn();
    let key: Vec<u8> = (0..=255).collect();
    let holders = [
        vec![0u8],
        vec![0, 0],
        b"\r\n".to_vec(),
        vec![0xff; 512],
        (0..=255).collect(),
        b" ".to_vec(),
        "\u{00e4}".as_bytes().to_vec(),
    ];
    let meta = [vec![0u8; 1024], Vec::new(), (0..=255).rev().collect()];
    for (n, holder) in holders.iter().enumerate() {
        let meta = &meta[n % 3];
        let token = cmd!(c, "SEM.ACQUIRE", &key, holder, 60_000, 7, "META", meta).as_int();
        assert!(token > 0);
    }
    let info = cmd!(c, "SEM.INFO", &key);
    for (n, shown) in info.field("holders").items().iter().enumerate() {
        assert_eq!(shown.field("holder"), &bulk(&holders[n]));
        assert_eq!(shown.field("meta"), &bulk(&meta[n % 3]));
    }
    for holder in &holders {
        assert_eq!(cmd!(c, "SEM.RENEW", &key, holder, 70_000), int(70_000));
        assert_eq!(cmd!(c, "SEM.RELEASE", &key, holder), int(1));
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    // The empty key is one, too.
    assert!(cmd!(c, "SEM.ACQUIRE", "", "a", 1, 1).as_int() > 0);
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = server();
    let options = ["PERMITS 1", "BLOCK 1", "SESSION", "META m"];
    let mut lines: Vec<String> = options
        .iter()
        .map(|o| format!("SEM.ACQUIRE k b 1000 5 {o} {o}"))
        .collect();
    for option in ["PERMITS", "BLOCK", "META"] {
        lines.push(format!("SEM.ACQUIRE k b 1000 5 {option}"));
        lines.push(format!("SEM.ACQUIRE k b 1000 5 SESSION {option}"));
    }
    for word in ["", "SHARED", "REENTRANT", "MAXHOLD 5", "TOKEN 1", "KEEP 1"] {
        lines.push(format!("SEM.ACQUIRE k b 1000 5 {word}"));
        lines.push(format!("SEM.ACQUIRE k b 1000 5 PERMITS 1 {word}"));
    }
    for line in ["SEM.RELEASE k a", "SEM.RENEW k a 1000"] {
        for rest in ["TOKEN", "TOKEN 1 TOKEN 1", "KEEP 1", "PERMITS 1", ""] {
            lines.push(format!("{line} {rest}"));
        }
    }
    refuses(&server, SYNTAX, &lines);
}

#[test]
fn any_other_number_of_words_is_the_servers_error() {
    let server = server();
    for (command, lines) in [
        ("sem.acquire", &["", " k", " k a", " k a 1000"][..]),
        ("sem.release", &["", " k"]),
        ("sem.renew", &["", " k", " k a"]),
        ("sem.info", &["", " k more"]),
    ] {
        let lines: Vec<String> = lines.iter().map(|l| format!("{command}{l}")).collect();
        refuses(&server, &wrong_arity(command), &lines);
    }
}

#[test]
fn options_come_in_any_order_and_case() {
    let server = single();
    let mut c = server.conn();
    let options = [
        &["PERMITS", "2"][..],
        &["block", "50"],
        &["Session"],
        &["mEtA", "m"],
    ];
    let mut n = 0;
    for first in 0..4 {
        for second in 0..4 {
            for third in 0..4 {
                let Some(fourth) = 6usize.checked_sub(first + second + third) else {
                    continue;
                };
                let order = [first, second, third, fourth];
                if !(0..4).all(|option| order.contains(&option)) {
                    continue;
                }
                let holder = format!("h{n}");
                let mut line = args!["sem.AcQuire", "k", &holder, 60_000, 100];
                let words = order.iter().flat_map(|i| options[*i]);
                line.extend(words.map(|word| word.as_bytes().to_vec()));
                assert!(c.cmd(&line).as_int() > 0, "{order:?}");
                assert_eq!(of_holder(&mut c, "k", &holder, "permits"), 2);
                assert_eq!(of_holder(&mut c, "k", &holder, "session"), 1);
                n += 1;
            }
        }
    }
    assert_eq!(n, 24);
    assert_eq!(run(&mut c, "sem.renew k h0 70000 token 1"), int(0));
    assert_eq!(run(&mut c, "Sem.Release k h0 ToKeN 1"), int(0));
}

#[test]
fn what_exceeds_the_limit_can_never_be_granted() {
    let server = server();
    for (permits, limit) in [(2, 1), (6, 5), (1_000_000, 999_999), (1_000_000, 1)] {
        let error =
            format!("ERR PERMITS {permits} is above the limit of {limit}: it can never be granted");
        let lines = ["k b", "k a", "free b"].map(|place| {
            format!("SEM.ACQUIRE {place} 1000 {limit} BLOCK 1000 SESSION PERMITS {permits}")
        });
        refuses(&server, &error, &lines);
    }
}

#[test]
fn info_shows_everything_in_both_protocols() {
    let server = single();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    let a = acquire(&mut c, "k a 60000 5 PERMITS 2 META host-7");
    server.clock().advance_ms(1500);
    let b = acquire(&mut c3, "k b 20000 5 PERMITS 3 SESSION");
    let _w = wait_for(&server, "k w 1000 5");
    let _x = wait_for(&server, "k x 1000 5");
    server.clock().advance_us(250_600);
    let shown = |map: fn(&[(&str, Reply)]) -> Reply| {
        let holder = |name, token, permits, ttl, held, session, meta| {
            map(&[
                ("holder", bulk(name)),
                ("token", int(token)),
                ("permits", int(permits)),
                ("ttl_ms", int(ttl)),
                ("held_ms", int(held)),
                ("session", int(session)),
                ("meta", bulk(meta)),
            ])
        };
        map(&[
            ("permits", int(5)),
            ("ttl_ms", int(58_249)),
            (
                "holders",
                array([
                    holder("a", a, 2, 58_249, 1751, 0, "host-7"),
                    holder("b", b, 3, 19_749, 251, 1, ""),
                ]),
            ),
            ("waiters", int(2)),
        ])
    };
    assert_eq!(cmd!(c, "SEM.INFO", "k"), shown(flat));
    assert_eq!(cmd!(c3, "SEM.INFO", "k"), shown(map));
    assert_eq!(cmd!(c, "SEM.INFO", "none"), nil());
    assert_eq!(cmd!(c3, "SEM.INFO", "none"), nil());
    // The others answer alike in both.
    assert_eq!(run(&mut c3, "SEM.ACQUIRE k y 1 5"), nil());
    assert_eq!(run(&mut c3, "SEM.ACQUIRE k a 1 5 PERMITS 2"), int(a));
    assert_eq!(run(&mut c3, "SEM.RENEW k a 1"), int(58_249));
    assert_eq!(run(&mut c3, "SEM.RELEASE k none"), int(0));
}

#[test]
fn refusals_looks_and_busy_replies_change_nothing() {
    let server = server();
    let mut c = server.conn();
    let token = of_holder(&mut c, "k", "a", "token");
    answers(
        &server,
        &[
            ("SEM.ACQUIRE k b 1000 5 PERMITS 4", nil()),
            ("SEM.ACQUIRE k b 1000 1", nil()),
            ("SEM.ACQUIRE k b 1000 1 SESSION META m", nil()),
            ("SEM.ACQUIRE k a 60000 5 PERMITS 2", int(token)),
            ("SEM.ACQUIRE k a 1 2 PERMITS 2 META other", int(token)),
            ("SEM.ACQUIRE k a 1000 5", permits_changed(2)),
            ("SEM.ACQUIRE k a 1000 5 PERMITS 3", permits_changed(2)),
            ("SEM.RENEW k a 60000", int(60_000)),
            ("SEM.RENEW k a 1", int(60_000)),
            ("SEM.RENEW k b 1000", int(0)),
            ("SEM.RENEW k a 90000 TOKEN 1", int(0)),
            ("SEM.RENEW none a 1000", int(0)),
            ("SEM.RELEASE k b", int(0)),
            ("SEM.RELEASE k a TOKEN 1", int(0)),
            ("SEM.RELEASE none a", int(0)),
            ("SEM.INFO none", nil()),
        ],
    );
    changes_nothing(&server, || {
        assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(2));
    });
}

#[test]
fn keys_of_other_types_are_wrongtype_both_ways() {
    let server = recorder();
    let mut c = server.conn();
    acquire(&mut c, "sem a 60000 5");
    number(&mut c, "LOCK.ACQUIRE lock a 60000");
    number(&mut c, "LOCK.GUARD guard 5");
    run(&mut c, "RL.GCRA limiter 5 5 60000");
    let foreign = make_foreign_keys(&mut c);
    let mut lines = Vec::new();
    for key in foreign.iter().chain(&["lock", "guard", "limiter"]) {
        lines.push(format!("SEM.ACQUIRE {key} a 1000 5"));
        lines.push(format!("SEM.ACQUIRE {key} a 1000 5 PERMITS 2 BLOCK 1000"));
        lines.push(format!("SEM.RELEASE {key} a"));
        lines.push(format!("SEM.RENEW {key} a 1000"));
        lines.push(format!("SEM.INFO {key}"));
    }
    lines.extend(
        [
            "LOCK.ACQUIRE sem a 1000",
            "LOCK.ACQUIRE sem a 1000 SHARED BLOCK 1000",
            "LOCK.RELEASE sem a",
            "LOCK.RENEW sem a 1000",
            "LOCK.DOWNGRADE sem a",
            "LOCK.INFO sem",
            "LOCK.FORCERELEASE sem",
            "LOCK.MACQUIRE 2 free sem a 1000",
            "LOCK.GUARD sem 5",
            "RL.GCRA sem 5 5 60000",
            "RL.TOKENBUCKET sem 5 5 60000",
            "RL.PEEK sem GCRA 5 5 60000",
            "RL.INFO sem",
            "RL.RESET sem",
            "GET sem",
            "LPUSH sem v",
            "HGET sem f",
        ]
        .map(String::from),
    );
    refuses(&server, WRONG_TYPE, &lines);
}

#[test]
fn the_type_has_its_name() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "sem a 60000 5");
    number(&mut c, "LOCK.ACQUIRE lock a 60000");
    assert_eq!(cmd!(c, "TYPE", "sem"), status("sluice-sm"));
    for (type_name, key) in [("sluice-sm", "sem"), ("sluice-lk", "lock")] {
        assert_eq!(
            cmd!(c, "SCAN", 0, "TYPE", type_name, "COUNT", 100),
            array([bulk("0"), array([bulk(key)])])
        );
    }
    assert!(!cmd!(c, "OBJECT", "ENCODING", "sem").is_error());
    assert!(cmd!(c, "MEMORY", "USAGE", "sem").as_int() > 50);
}
