//! The limiters in MULTI, in EVAL and in FCALL.

use crate::limiter_support::*;
use crate::support::*;

/// Every command with every kind of reply.
const SCENARIO: &[&str] = &[
    "RL.GCRA k 3 1 60000",
    "RL.GCRA k 3 1 60000 COST 2",
    "RL.GCRA k 3 1 60000",
    "RL.TOKENBUCKET k 3 1 60000",
    "RL.PEEK k GCRA 3 1 60000",
    "RL.PEEK k TOKENBUCKET 3 60 60000 COST 3",
    "RL.GCRA k 3 1 3600000",
    "RL.INFO k",
    "RL.PEEK l GCRA 3 1 60000",
    "RL.INFO l",
    "RL.RESET l k k",
    "RL.RESET l k",
    "RL.INFO k",
    "RL.TOKENBUCKET l 5 5 1000 COST 5",
    "RL.TOKENBUCKET l 5 5 1000",
    "RL.GCRA l 7 5 1000",
    // Errors.
    "RL.GCRA k 0 1 60000",
    "RL.GCRA k 1 1 60000 COST 2",
    "RL.GCRA k 1 1 60000 COST",
    "RL.GCRA k 1 1 60000 NX",
    "RL.GCRA k 101 1 31536000000",
    "RL.GCRA string 1 1 60000",
    "RL.TOKENBUCKET k 1 0 60000",
    "RL.TOKENBUCKET string 1 1 60000",
    "RL.PEEK k FOO 1 1 60000",
    "RL.PEEK string GCRA 1 1 60000",
    "RL.RESET l string",
    "RL.INFO string",
    // Something that stays.
    "RL.GCRA k 10 1 60000 COST 3",
];

/// The same of the other algorithms and commands. Keys differ by algorithm.
const MORE: &[&str] = &[
    "RL.LEAKYBUCKET k 3 1 60000 COST 2",
    "RL.LEAKYBUCKET k 3 1 60000",
    "RL.LEAKYBUCKET k 3 1 60000",
    "RL.FIXEDWINDOW f 3 60000 COST 2",
    "RL.FIXEDWINDOW f 3 60000 COST 2",
    "RL.FIXEDWINDOW a 3 86400000 ALIGN 7200000",
    "RL.SLIDINGWINDOW s 3 60000 COST 3",
    "RL.SLIDINGWINDOW s 3 60000",
    "RL.SLIDINGLOG log 3 60000 COST 2",
    "RL.SLIDINGLOG log 3 60000",
    "RL.SLIDINGLOG log 3 60000",
    "RL.PEEK f FIXEDWINDOW 3 60000",
    "RL.PEEK s SLIDINGWINDOW 3 60000 COST 3",
    "RL.PEEK log SLIDINGLOG 3 60000",
    "RL.CHARGE f FIXEDWINDOW 3 60000 COST 50",
    "RL.CHARGE log SLIDINGLOG 3 60000 COST 50",
    "RL.CHARGE k GCRA 3 1 60000",
    "RL.REFUND k GCRA 3 1 60000 COST 2",
    "RL.REFUND log SLIDINGLOG 3 60000 COST 51",
    "RL.REFUND s SLIDINGWINDOW 3 60000 COST 3",
    "RL.REFUND s SLIDINGWINDOW 3 60000",
    "RL.ALL 2 k new GCRA 3 1 60000 FIXEDWINDOW 1 60000",
    "RL.ALL 2 k new GCRA 3 1 60000 FIXEDWINDOW 1 60000",
    "RL.ALL 3 k new other GCRA 9 1 60000 FIXEDWINDOW 3 60000 SLIDINGLOG 2 500 COST 2",
    "RL.BLOCK b 5000",
    "RL.BLOCK b 1000",
    "RL.GCRA b 1 1 1000",
    "RL.CHARGE b SLIDINGLOG 1 1000",
    "CL.THROTTLE t 1 1 60",
    "CL.THROTTLE t 1 1 60 1",
    "CL.THROTTLE t 1 1 60",
    "CL.THROTTLE t 1 1 60 0",
    "CL.THROTTLE t 1 1 60 -1",
    "CL.THROTTLE t 1 1 60 9",
    "RL.INFO f",
    "RL.INFO s",
    "RL.INFO log",
    "RL.INFO b",
    "RL.RESET f a missing",
    // Errors.
    "RL.FIXEDWINDOW k 3 60000",
    "RL.ALL 2 k k GCRA 3 1 60000 GCRA 3 1 60000",
    "RL.ALL 3 k log GCRA 3 1 60000",
    "RL.ALL 2 k string GCRA 3 1 60000 GCRA 3 1 60000",
    "RL.SLIDINGLOG log 100001 60000",
    "RL.CHARGE k GCRA 3 1 31536000000 COST 1000",
    "RL.BLOCK k 0",
    "RL.BLOCK string 5",
    "CL.THROTTLE log 1 1 60",
];

fn lines() -> Vec<&'static str> {
    [SCENARIO, MORE].concat()
}

const RUN_ALL: &str = "local replies = {}
    for i, line in ipairs(ARGV) do
        local words = {}
        for word in string.gmatch(line, '[^ ]+') do table.insert(words, word) end
        replies[i] = redis.pcall(unpack(words))
    end
    return replies";

fn scenario_server() -> Server {
    let server = recorder();
    cmd!(server.conn(), "SET", "string", "v");
    server
}

/// The replies to the scenario, each command on its own.
fn plainly(conn: &mut Conn) -> Vec<Reply> {
    lines().iter().map(|line| conn.cmd(&words(line))).collect()
}

#[test]
fn the_scenario_is_what_it_looks_like() {
    let server = scenario_server();
    let replies = plainly(&mut server.conn());
    let (minute, hour) = (60_000, HOUR_MS);
    let verdicts = [
        (0, [1, 3, 2, 0, minute]),
        (1, [1, 3, 0, 0, 3 * minute]),
        (2, [0, 3, 0, minute, 3 * minute]),
        (3, [0, 3, 0, minute, 3 * minute]),
        (4, [0, 3, 0, minute, 3 * minute]),
        (5, [0, 3, 0, 3000, 3000]),
        (6, [0, 3, 0, hour, 3 * hour]),
        (8, [1, 3, 3, 0, 0]),
        (13, [1, 5, 0, 0, 1000]),
        (14, [0, 5, 0, 200, 1000]),
        (15, [1, 7, 1, 0, 1200]),
        (28, [1, 10, 7, 0, 3 * minute]),
    ];
    for (at, expected) in verdicts {
        assert_eq!(replies[at], five(expected), "{}", SCENARIO[at]);
    }
    assert_eq!(replies[7].field("limit"), &int(3));
    let rest = [&replies[9..10], &replies[10..13]].concat();
    assert_eq!(rest, [nil(), int(1), int(0), nil()]);
    assert!(replies[16..28].iter().all(Reply::is_error));
    let more = &replies[SCENARIO.len()..];
    let errors = more.iter().filter(|reply| reply.is_error()).count();
    assert_eq!(errors, 9);
    assert!(more[more.len() - errors..].iter().all(Reply::is_error));
}

/// Runs the scenario plainly on one server and as `run` does on another.
#[track_caller]
fn gives_the_same(run: impl Fn(&Server) -> Vec<Reply>) {
    let (one, other) = (scenario_server(), scenario_server());
    let plain = plainly(&mut one.conn());
    let replies = run(&other);
    assert_eq!(replies.len(), lines().len());
    for (n, line) in lines().iter().enumerate() {
        assert_eq!(replies[n], plain[n], "{line}");
    }
    let digest = |server: &Server| cmd!(server.conn(), "DEBUG", "DIGEST");
    assert_eq!(digest(&one), digest(&other));
    assert_eq!(deadlines(&one), deadlines(&other));
    // The same effects, apart from the frame of a transaction and the library.
    let effects = |server: &Server| {
        let mut all = server.aof_commands();
        all.retain(|command| !matches!(&command[0][..], b"MULTI" | b"EXEC" | b"FUNCTION"));
        all
    };
    assert_eq!(effects(&one), effects(&other));
}

fn scenario_args() -> Vec<Vec<u8>> {
    lines()
        .iter()
        .map(|line| line.as_bytes().to_vec())
        .collect()
}

#[test]
fn a_transaction_gets_the_same_replies() {
    gives_the_same(|server| {
        let commands: Vec<_> = lines().iter().map(|line| words(line)).collect();
        server.conn().exec_multi(&commands)
    });
}

#[test]
fn a_script_gets_the_same_replies() {
    gives_the_same(|server| {
        let replies = server
            .conn()
            .eval(RUN_ALL, &["k", "l", "string"], &scenario_args());
        replies.items().to_vec()
    });
}

#[test]
fn a_script_in_a_transaction_gets_the_same_replies() {
    gives_the_same(|server| {
        let mut eval = args!["EVAL", RUN_ALL, 3, "k", "l", "string"];
        eval.extend(scenario_args());
        server.conn().exec_multi(&[eval])[0].items().to_vec()
    });
}

#[test]
fn a_function_gets_the_same_replies() {
    gives_the_same(|server| {
        let mut c = server.conn();
        let library = format!(
            "#!lua name=sluice_tests
            redis.register_function('run_all', function(KEYS, ARGV) {RUN_ALL} end)"
        );
        assert_eq!(cmd!(c, "FUNCTION", "LOAD", library), bulk("sluice_tests"));
        let mut call = args!["FCALL", "run_all", 3, "k", "l", "string"];
        call.extend(scenario_args());
        c.cmd(&call).items().to_vec()
    });
}

#[test]
fn a_script_decides_by_the_verdict() {
    let server = single();
    let mut c = server.conn();
    let script = "local verdict = redis.call('RL.GCRA', KEYS[1], 1, 1, 1000)
        if verdict[1] == 0 then
            return redis.error_reply('LIMITED retry in ' .. verdict[4] .. ' ms')
        end
        return redis.call('INCR', KEYS[2])";
    assert_eq!(c.eval(script, &["k", "n"], &[]), int(1));
    server.clock().advance_ms(400);
    assert_eq!(
        c.eval(script, &["k", "n"], &[]),
        err("LIMITED retry in 600 ms")
    );
    server.clock().advance_ms(600);
    assert_eq!(c.eval(script, &["k", "n"], &[]), int(2));
}

#[test]
fn a_script_sees_a_map_when_it_asks_for_resp3() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 3, 1, 1000);
    let script = "redis.setresp(3)
        local info = redis.call('RL.INFO', KEYS[1]).map
        return {info.algorithm, info.limit, info.count, info.period_ms, info.remaining,
            info.reset_ms}";
    assert_eq!(
        c.eval(script, &["k"], &[]),
        array([bulk("bucket"), int(3), int(1), int(1000), int(2), int(1000)])
    );
}

#[test]
fn read_only_scripts_may_peek_and_nothing_else() {
    let server = half_used();
    let mut c = server.conn();
    let peek = "return redis.call('RL.PEEK', KEYS[1], 'GCRA', 10, 10, 1000)";
    assert_eq!(cmd!(c, "EVAL_RO", peek, 1, "k"), five([1, 10, 5, 0, 500]));
    let info = "return redis.call('RL.INFO', KEYS[1])";
    assert_eq!(cmd!(c, "EVAL_RO", info, 1, "k"), cmd!(c, "RL.INFO", "k"));
    for call in [
        "'RL.GCRA', KEYS[1], 10, 10, 1000",
        "'RL.TOKENBUCKET', KEYS[1], 10, 10, 1000",
        "'RL.LEAKYBUCKET', KEYS[1], 10, 10, 1000",
        "'RL.FIXEDWINDOW', 'new', 10, 1000",
        "'RL.SLIDINGWINDOW', 'new', 10, 1000",
        "'RL.SLIDINGLOG', 'new', 10, 1000",
        "'RL.ALL', 1, KEYS[1], 'GCRA', 10, 10, 1000",
        "'RL.CHARGE', KEYS[1], 'GCRA', 10, 10, 1000",
        "'RL.REFUND', KEYS[1], 'GCRA', 10, 10, 1000",
        "'RL.BLOCK', KEYS[1], 1000",
        "'CL.THROTTLE', KEYS[1], 9, 10, 1, 0",
        "'RL.RESET', KEYS[1]",
    ] {
        let script = format!("return redis.pcall({call})");
        let reply = changes_nothing(&server, || cmd!(c, "EVAL_RO", script, 1, "k"));
        let error = "ERR Write commands are not allowed from read-only scripts.";
        assert_eq!(reply, err(error), "{call}");
    }
}

#[test]
fn several_charges_of_a_transaction_are_one_unit() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let mut c = chain.primary.conn();
    c.exec_multi(&[
        words("RL.GCRA a 2 1 60000"),
        words("RL.GCRA a 2 1 60000"),
        words("RL.GCRA a 2 1 60000"),
        words("RL.GCRA b 2 1 60000"),
    ]);
    let policy = (2, 1, 60_000);
    assert_eq!(
        tap.take(),
        [
            args!["MULTI"],
            Bucket::owing(1, now, policy).effect_on("a", now),
            Bucket::owing(2, now, policy).effect_on("a", now),
            Bucket::owing(1, now, policy).effect_on("b", now),
            args!["EXEC"],
        ]
    );
}

#[test]
fn a_discarded_transaction_spends_nothing() {
    let server = recorder();
    let mut c = server.conn();
    changes_nothing(&server, || {
        assert_eq!(cmd!(c, "MULTI"), ok());
        assert_eq!(cmd!(c, "RL.GCRA", "k", 1, 1, 1000), status("QUEUED"));
        assert_eq!(cmd!(c, "DISCARD"), ok());
    });
    assert_eq!(
        changes_nothing(&server, || c.multi(&[
            args!["RL.GCRA", "k", 1, 1, 1000],
            args!["RL.GCRA", "k", 1, 1],
        ])),
        err("EXECABORT Transaction discarded because of previous errors.")
    );
}

#[test]
fn a_transaction_is_one_instant_where_the_server_has_one() {
    let server = single();
    server.clock().run();
    let line = args!["RL.GCRA", "k", 1, 1, 20];
    let replies =
        server
            .conn()
            .exec_multi(&[line.clone(), args!["DEBUG", "SLEEP", "0.03"], line.clone()]);
    let admitted = i64::from(!since_7_2());
    assert_eq!(replies[2].items()[0], int(admitted));
}
