//! Denials, looks, refunds to what is full and errors of every algorithm and of RL.ALL: no write, no
//! aborted WATCH, no invalidated cache; and what does change a key does both.

use crate::limiter_support::*;
use crate::support::*;

/// A policy of each algorithm with five a minute.
const POLICIES: [&str; 6] = [
    "GCRA 5 5 60000",
    "TOKENBUCKET 5 5 60000",
    "LEAKYBUCKET 5 5 60000",
    "FIXEDWINDOW 5 60000",
    "SLIDINGWINDOW 5 60000",
    "SLIDINGLOG 5 60000",
];

fn call(policy: &str, cost: i64) -> String {
    let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
    format!("RL.{algorithm} k {numbers} COST {cost}")
}

/// What was done to key `k` before, the command, and whether it changes the key.
fn watched(policy: &str) -> Vec<(Vec<String>, String, bool)> {
    let call = |cost| call(policy, cost);
    let with = |command: &str, rest: &str| format!("RL.{command} k {policy}{rest}");
    let all = |rest: &str| format!("RL.ALL 2 other k GCRA 9 9 9000 {policy}{rest}");
    let blocked = || vec!["RL.BLOCK k 60000".to_string()];
    let full = || vec![call(5)];
    let used = || vec![call(2)];
    vec![
        (vec![], call(1), true),
        (used(), call(3), true),
        (used(), call(4), false),
        (full(), call(1), false),
        (full(), call(5), false),
        (blocked(), call(1), false),
        (vec![], with("PEEK", ""), false),
        (used(), with("PEEK", ""), false),
        (full(), with("PEEK", " COST 5"), false),
        (vec![], with("CHARGE", ""), true),
        (full(), with("CHARGE", ""), true),
        (blocked(), with("CHARGE", ""), true),
        (vec![], with("REFUND", ""), false),
        (used(), with("REFUND", ""), true),
        (used(), with("REFUND", " COST 9"), true),
        (blocked(), with("REFUND", ""), false),
        (used(), all(""), true),
        (used(), all(" COST 4"), false),
        (full(), all(""), false),
        (blocked(), all(""), false),
        (
            used(),
            format!("RL.ALL 2 k full {policy} GCRA 1 1 60000"),
            false,
        ),
        (vec![], "RL.BLOCK k 1000".to_string(), true),
        (used(), "RL.BLOCK k 1000".to_string(), true),
        (blocked(), "RL.BLOCK k 1000".to_string(), false),
        (blocked(), "RL.BLOCK k 60000".to_string(), false),
        (blocked(), "RL.BLOCK k 60001".to_string(), true),
        (blocked(), "RL.INFO k".to_string(), false),
        (used(), "RL.INFO k".to_string(), false),
        (blocked(), "RL.RESET k".to_string(), true),
        // Errors.
        (used(), call(6), false),
        (used(), with("CHARGE", " COST 0"), false),
        (used(), with("REFUND", " COST"), false),
        (used(), all(" COST 6"), false),
        (used(), "RL.BLOCK k 0".to_string(), false),
        (vec!["SET k v".to_string()], call(1), false),
        (vec!["SET k v".to_string()], with("CHARGE", ""), false),
        (vec!["SET k v".to_string()], all(""), false),
    ]
}

/// What holds for buckets only.
fn throttled() -> Vec<(Vec<String>, String, bool)> {
    let line = |quantity: i64| format!("CL.THROTTLE k 4 5 60 {quantity}");
    vec![
        (vec![], line(1), true),
        (vec![line(5)], line(1), false),
        (vec![line(5)], line(0), false),
        (vec![line(2)], line(6), false),
        (vec![line(2)], line(-1), true),
        (vec![], line(-1), false),
        (vec![line(2)], line(MAX_TOKENS + 1), false),
    ]
}

fn every_case() -> Vec<(Vec<String>, String, bool)> {
    let cases = POLICIES.iter().flat_map(|policy| watched(policy));
    cases.chain(throttled()).collect()
}

fn set_up(conn: &mut Conn, before: &[String]) {
    cmd!(conn, "DEL", "k", "other", "full");
    cmd!(conn, "RL.GCRA", "full", 1, 1, 60_000);
    for line in before {
        assert!(!conn.cmd(&words(line)).is_error(), "{line}");
    }
}

#[test]
fn only_changes_abort_a_watched_transaction() {
    let server = single();
    let (mut c, mut watcher) = (server.conn(), server.conn());
    let ways: [fn(&mut Conn, &str) -> Reply; 2] = [
        |c, command| c.cmd(&words(command)),
        |c, command| c.eval("redis.pcall(unpack(ARGV))", &["k"], &words(command)),
    ];
    for run in ways {
        for (before, command, changes) in every_case() {
            set_up(&mut c, &before);
            assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
            run(&mut c, &command);
            let exec = watcher.multi(&[args!["PING"]]);
            assert_eq!(exec.is_nil(), changes, "{before:?}, {command}");
        }
    }
}

#[test]
fn only_changes_invalidate_a_cached_key() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON"), ok());
    let pushes = |conn: &mut Conn| -> Vec<Reply> {
        assert_eq!(cmd!(conn, "PING"), status("PONG"));
        std::iter::from_fn(|| pushed(conn)).collect()
    };
    let invalidation = || Reply::Push(vec![bulk("invalidate"), array([bulk("k")])]);
    for (before, command, changes) in every_case() {
        set_up(&mut c, &before);
        pushes(&mut cache);
        // A peek is how a client caches a limiter, whatever the answer.
        cmd!(cache, "RL.INFO", "k");
        c.cmd(&words(&command));
        let expected: Vec<_> = changes.then(invalidation).into_iter().collect();
        assert_eq!(pushes(&mut cache), expected, "{before:?}, {command}");
    }
}

#[test]
fn only_changes_are_written_and_propagated() {
    let server = recorder();
    let mut c = server.conn();
    let dirty = |server: &Server| -> i64 {
        let info = server.info("persistence");
        info["rdb_changes_since_last_save"]
            .parse()
            .expect("a number")
    };
    for (before, command, changes) in every_case() {
        set_up(&mut c, &before);
        if !changes {
            changes_nothing(&server, || c.cmd(&words(&command)));
            continue;
        }
        let before_it = dirty(&server);
        c.cmd(&words(&command));
        let keys = if command.starts_with("RL.ALL") { 2 } else { 1 };
        assert_eq!(dirty(&server) - before_it, keys, "{before:?}, {command}");
    }
}

#[test]
fn denials_in_great_numbers_leave_everything_as_it_was() {
    let server = recorder();
    let mut c = server.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        assert_eq!(c.cmd(&words(&call(policy, 5))).items()[0], int(1));
        server.clock().advance_ms(7000);
        changes_nothing(&server, || {
            assert_eq!(admitted(&mut c, &call(policy, 5), 500), 0);
            assert_eq!(
                admitted(&mut c, &format!("RL.ALL 1 k {policy} COST 5"), 500),
                0
            );
        });
    }
}
