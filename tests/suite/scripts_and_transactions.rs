//! The lock commands in MULTI, in EVAL and in FCALL.

use crate::support::*;

/// Every command with every kind of reply, in an order that makes sense.
const SCENARIO: &[&str] = &[
    "LOCK.ACQUIRE k a 1000 META m",
    "LOCK.ACQUIRE k a 500",
    "LOCK.ACQUIRE k b 1000",
    "LOCK.INFO k",
    "LOCK.RENEW k a 2000",
    "LOCK.RENEW k a 10",
    "LOCK.RENEW k b 2000",
    "LOCK.RELEASE k b",
    "LOCK.RELEASE k a TOKEN 1",
    "LOCK.RELEASE k a KEEP 500",
    "LOCK.INFO k",
    "LOCK.ACQUIRE k a 1000",
    "LOCK.FORCERELEASE k TOKEN 1",
    "LOCK.FORCERELEASE k",
    "LOCK.FORCERELEASE k",
    "LOCK.INFO k",
    "LOCK.RENEW k a 2000",
    "LOCK.ACQUIRE l b 1000",
    "LOCK.RELEASE l b",
    "LOCK.RELEASE l b",
    "LOCK.GUARD g 33",
    "LOCK.GUARD g 32",
    "LOCK.GUARD g 33 PX 5000",
    // Errors.
    "LOCK.ACQUIRE k o 0",
    "LOCK.ACQUIRE k o 1000 META",
    "LOCK.ACQUIRE k o 1000 SHARED SHARED",
    "LOCK.ACQUIRE string o 1000",
    "LOCK.RELEASE k o KEEP 0",
    "LOCK.RELEASE g o",
    "LOCK.RENEW k o 1000 TOKEN x",
    "LOCK.RENEW string o 1000",
    "LOCK.INFO string",
    "LOCK.FORCERELEASE string",
    "LOCK.GUARD string 33",
    "LOCK.GUARD g 0",
    // Something that stays.
    "LOCK.ACQUIRE k a 1000",
];

/// What runs the commands in ARGV and returns their replies.
const RUN_ALL: &str = "local replies = {}
    for i, line in ipairs(ARGV) do
        local words = {}
        for word in string.gmatch(line, '[^ ]+') do table.insert(words, word) end
        replies[i] = redis.pcall(unpack(words))
    end
    return replies";

/// A server at [`T_US`], with a key of another type.
fn server() -> Server {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    cmd!(server.conn(), "SET", "string", "v");
    server
}

/// The replies to the scenario, each command on its own.
fn plainly(conn: &mut Conn) -> Vec<Reply> {
    let lines = SCENARIO.iter();
    lines.map(|line| conn.cmd(&words(line))).collect()
}

fn assert_same(replies: &[Reply], plain: &[Reply]) {
    assert_eq!(replies.len(), SCENARIO.len());
    for (n, line) in SCENARIO.iter().enumerate() {
        assert_eq!(replies[n], plain[n], "{line}");
    }
}

fn digest(server: &Server) -> Reply {
    cmd!(server.conn(), "DEBUG", "DIGEST")
}

#[test]
fn the_scenario_is_what_it_looks_like() {
    let server = server();
    let replies = plainly(&mut server.conn());
    let holds = [int(T_US), int(T_US), nil()];
    assert_eq!(replies[..3], holds);
    let middle: Vec<i64> = replies[4..10].iter().map(Reply::as_int).collect();
    assert_eq!(middle, [2000, 2000, 0, 0, 0, 1]);
    let end = [nil(), int(0), int(1), int(0), nil(), int(0), int(T_US + 1)];
    assert_eq!(replies[11..18], end);
    assert_eq!(replies[18..23], [1, 0, 1, 0, 1].map(int));
    assert!(replies[23..35].iter().all(Reply::is_error));
    assert_eq!(replies[35], int(T_US + 2));
}

#[test]
fn a_transaction_gets_the_same_replies() {
    for connect in [Server::conn, Server::conn3] {
        let (one, other) = (server(), server());
        let plain = plainly(&mut connect(&one));
        let commands: Vec<_> = SCENARIO.iter().map(|line| words(line)).collect();
        let replies = connect(&other).exec_multi(&commands);
        assert_same(&replies, &plain);
        assert_eq!(digest(&one), digest(&other));
    }
}

#[test]
fn a_script_gets_the_same_replies() {
    let (one, other) = (server(), server());
    let plain = plainly(&mut one.conn());
    let lines: Vec<_> = SCENARIO
        .iter()
        .map(|line| line.as_bytes().to_vec())
        .collect();
    let replies = other.conn().eval(RUN_ALL, &["k", "l", "g"], &lines);
    assert_same(replies.items(), &plain);
    assert_eq!(digest(&one), digest(&other));
}

#[test]
fn a_script_in_a_transaction_gets_the_same_replies() {
    let (one, other) = (server(), server());
    let plain = plainly(&mut one.conn());
    let mut eval = args!["EVAL", RUN_ALL, 3, "k", "l", "g"];
    eval.extend(SCENARIO.iter().map(|line| line.as_bytes().to_vec()));
    let replies = other.conn().exec_multi(&[eval]);
    assert_same(replies[0].items(), &plain);
}

#[test]
fn a_function_gets_the_same_replies() {
    let (one, other) = (server(), server());
    let plain = plainly(&mut one.conn());
    let mut c = other.conn();
    let library = format!(
        "#!lua name=sluice_tests
        redis.register_function('run_all', function(KEYS, ARGV) {RUN_ALL} end)"
    );
    let loaded = cmd!(c, "FUNCTION", "LOAD", library);
    assert_eq!(loaded, bulk("sluice_tests"));
    let mut call = args!["FCALL", "run_all", 3, "k", "l", "g"];
    call.extend(SCENARIO.iter().map(|line| line.as_bytes().to_vec()));
    assert_same(c.cmd(&call).items(), &plain);
    assert_eq!(digest(&one), digest(&other));
}

#[test]
fn a_script_sees_maps_when_it_asks_for_resp3() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000, "META", "m");
    let script = "redis.setresp(3)
        local info = redis.call('LOCK.INFO', KEYS[1]).map
        local holder = info.holders[1].map
        return {info.mode, info.token, info.ttl_ms, holder.owner, holder.meta}";
    assert_eq!(
        c.eval(script, &["k"], &[]),
        array([bulk("exclusive"), token, int(1000), bulk("a"), bulk("m")])
    );
}

#[test]
fn an_error_ends_a_script_with_its_text_and_nothing_more_runs() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "SET", "string", "v");
    for (call, error) in [
        (
            "'LOCK.ACQUIRE', 'k', 'o', '0'",
            "ERR lease_ms must be an integer between 1 and 86400000",
        ),
        (
            "'LOCK.ACQUIRE', 'k', '', '5'",
            "ERR owner must be between 1 and 512 bytes long",
        ),
        ("'LOCK.ACQUIRE', 'k', 'o', '5', 'BLOCK'", SYNTAX),
        ("'LOCK.ACQUIRE', 'string', 'o', '5'", WRONG_TYPE),
        (
            "'LOCK.RELEASE', 'k', 'o', 'KEEP', '0'",
            "ERR KEEP must be an integer between 1 and 86400000",
        ),
        (
            "'LOCK.RENEW', 'k', 'o', '5', 'TOKEN', '0'",
            "ERR TOKEN must be an integer between 1 and 9007199254740991",
        ),
        ("'LOCK.INFO', 'string'", WRONG_TYPE),
        ("'LOCK.FORCERELEASE', 'string'", WRONG_TYPE),
        (
            "'LOCK.GUARD', 'k', '1', 'PX', '0'",
            "ERR PX must be an integer between 1 and 31536000000",
        ),
    ] {
        let script = format!(
            "redis.call('LOCK.ACQUIRE', 'before', 'o', '1000') redis.call({call}) redis.call('SET', 'after', 1)"
        );
        let sha = cmd!(c, "SCRIPT", "LOAD", script).as_text();
        let text = format!("{error} script: {sha}, on @user_script:1.");
        assert_eq!(c.eval(&script, &[], &[]), err(&text));
        assert_eq!(cmd!(c, "LOCK.RELEASE", "before", "o"), int(1));
        assert_eq!(cmd!(c, "EXISTS", "after", "k"), int(0));
    }
}

#[test]
fn a_wrong_number_of_words_in_a_script_is_the_servers_error() {
    let server = single();
    let what = match flavour().kind {
        Kind::Redis => "Redis command",
        Kind::Valkey => "command",
    };
    let error = format!("ERR Wrong number of args calling {what} from script");
    for call in ["'LOCK.ACQUIRE', 'k', 'o'", "'LOCK.INFO', 'k', 'k'"] {
        let reply = server
            .conn()
            .eval(&format!("return redis.pcall({call})"), &[], &[]);
        assert_eq!(reply, err(&error), "{call}");
    }
}

#[test]
fn a_wrong_number_of_words_aborts_the_whole_transaction() {
    let server = recorder();
    let mut c = server.conn();
    let reply = changes_nothing(&server, || {
        c.multi(&[
            args!["LOCK.ACQUIRE", "k", "a", 1000],
            args!["LOCK.ACQUIRE", "k", "a"],
        ])
    });
    assert_eq!(
        reply,
        err("EXECABORT Transaction discarded because of previous errors.")
    );
}

#[test]
fn any_other_error_leaves_the_rest_of_the_transaction_alone() {
    let server = single();
    let replies = server.conn().exec_multi(&[
        args!["LOCK.ACQUIRE", "k", "a", 0],
        args!["LOCK.ACQUIRE", "k", "a", 1000],
        args!["LOCK.RENEW", "k", "a", "x"],
        args!["LOCK.RELEASE", "k", "a"],
    ]);
    let error = err("ERR lease_ms must be an integer between 1 and 86400000");
    let now = server.clock().now_us();
    assert_eq!(replies, [error.clone(), int(now), error, int(1)]);
}

#[test]
fn a_discarded_transaction_takes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    changes_nothing(&server, || {
        assert_eq!(cmd!(c, "MULTI"), ok());
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), status("QUEUED"));
        assert_eq!(cmd!(c, "DISCARD"), ok());
    });
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), int(T_US));
}

#[test]
fn read_only_scripts_may_look_and_nothing_else() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    let info = cmd!(c, "LOCK.INFO", "k");
    let look = "return redis.call('LOCK.INFO', KEYS[1])";
    assert_eq!(cmd!(c, "EVAL_RO", look, 1, "k"), info);
    for call in [
        "'LOCK.ACQUIRE', KEYS[1], 'b', '5'",
        "'LOCK.RELEASE', KEYS[1], 'a'",
        "'LOCK.RENEW', KEYS[1], 'a', '9000'",
        "'LOCK.FORCERELEASE', KEYS[1]",
        "'LOCK.GUARD', KEYS[1], '1'",
    ] {
        let script = format!("return redis.pcall({call})");
        let reply = changes_nothing(&server, || cmd!(c, "EVAL_RO", script, 1, "k"));
        let error = "ERR Write commands are not allowed from read-only scripts.";
        assert_eq!(reply, err(error), "{call}");
    }
}

#[test]
fn a_script_checks_the_token_before_it_writes() {
    let server = single();
    let mut c = server.conn();
    let script = "if redis.call('LOCK.GUARD', KEYS[2], ARGV[1]) == 0 then
            return redis.error_reply('STALE a newer holder was here')
        end
        return redis.call('SET', KEYS[1], ARGV[2])";
    let keys = ["{row}", "{row}guard"];
    let old = cmd!(c, "LOCK.ACQUIRE", "{row}lock", "a", 1000).as_int();
    server.clock().advance_ms(1001);
    let new = cmd!(c, "LOCK.ACQUIRE", "{row}lock", "b", 1000).as_int();
    assert_eq!(c.eval(script, &keys, &args![new, "by b"]), ok());
    assert_eq!(
        c.eval(script, &keys, &args![old, "by a"]),
        err("STALE a newer holder was here")
    );
    assert_eq!(cmd!(c, "GET", "{row}"), bulk("by b"));
}

#[test]
fn a_token_survives_the_way_through_a_script() {
    // Lua numbers are doubles, which is why tokens stay below 2^53.
    let server = Options::new().start();
    let (highest, mut c) = ((1i64 << 53) - 1, server.conn());
    server.clock().freeze_at(highest - 1);
    let script = "local token = redis.call('LOCK.ACQUIRE', KEYS[1], 'o', '1000')
        return {token, redis.call('LOCK.GUARD', KEYS[2], token), token + 0}";
    for expected in [highest - 1, highest] {
        let reply = c.eval(script, &["k", "g"], &[]);
        assert_eq!(reply, array([int(expected), int(1), int(expected)]));
        cmd!(c, "DEL", "k");
    }
    // What Lua's own tostring loses is refused, not misread.
    let rounded = "return redis.pcall('LOCK.GUARD', KEYS[1], tostring(9007199254740991))";
    let error = "ERR token must be an integer between 1 and 9007199254740991";
    assert_eq!(c.eval(rounded, &["g"], &[]), err(error));
    let exhausted = "ERR no fencing token is left below 2^53: check the server's clock";
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "o", 1000), err(exhausted));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn a_transaction_is_one_instant_where_the_server_has_one() {
    let server = single();
    server.clock().run();
    let replies = server.conn().exec_multi(&[
        args!["LOCK.ACQUIRE", "a", "o", 60_000],
        args!["LOCK.ACQUIRE", "short", "o", 1],
        args!["DEBUG", "SLEEP", "0.03"],
        args!["LOCK.ACQUIRE", "b", "o", 60_000],
        args!["LOCK.RELEASE", "short", "o"],
        args!["LOCK.INFO", "a"],
    ]);
    let between = replies[3].as_int() - replies[0].as_int();
    let held = replies[5].field("holders").items()[0].field("held_ms");
    if since_7_2() {
        assert_eq!(between, 2, "the clock stood, the counter went on");
        assert_eq!(replies[4], int(1));
        assert_eq!(held, &int(0));
    } else {
        assert!(between >= 30_000, "{between}");
        assert_eq!(replies[4], int(0));
        assert!(held.as_int() >= 29);
    }
}

#[test]
fn a_script_is_one_instant_where_the_server_has_one() {
    let server = single();
    server.clock().run();
    let script = "local first = redis.call('LOCK.ACQUIRE', 'a', 'o', '60000')
        redis.call('LOCK.ACQUIRE', 'short', 'o', '1')
        for i = 1, 3000000 do end
        local second = redis.call('LOCK.ACQUIRE', 'b', 'o', '60000')
        return {second - first, redis.call('LOCK.RELEASE', 'short', 'o')}";
    let reply = server.conn().eval(script, &[], &[]);
    if since_7_2() {
        assert_eq!(reply, array([int(2), int(1)]));
    } else {
        assert!(reply.items()[0].as_int() > 2, "{reply:?}");
        assert_eq!(reply.items()[1], int(0));
    }
}

#[test]
fn within_a_transaction_everyone_sees_the_last_grant() {
    let server = single();
    let now = server.clock().now_us();
    let replies = server.conn().exec_multi(&[
        args!["LOCK.ACQUIRE", "k", "a", 1000],
        args!["LOCK.ACQUIRE", "k", "b", 1000],
        args!["LOCK.RELEASE", "k", "a"],
        args!["LOCK.ACQUIRE", "k", "b", 1000],
        args!["DEL", "k"],
        args!["LOCK.RELEASE", "k", "b"],
        args!["LOCK.ACQUIRE", "k", "c", 1000],
    ]);
    let expected = [
        int(now),
        nil(),
        int(1),
        int(now + 1),
        int(1),
        int(0),
        int(now + 2),
    ];
    assert_eq!(replies, expected);
}
