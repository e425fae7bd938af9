//! SESSION: permits that come back when their connection closes.

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_failover::{wait_for_waiters, Process};
use crate::waiting_support::*;

const IN_SCRIPT: &str = "ERR SESSION is not possible in a script: it has no connection to bind to";

#[track_caller]
fn becomes(c: &mut Conn, key: &str, expected: &[(&str, i64)]) {
    eventually(&format!("{key} is held by {expected:?}"), || {
        let held = held(c, key);
        held.iter()
            .map(|(h, n)| (h.as_str(), *n))
            .eq(expected.iter().copied())
    });
}

#[track_caller]
fn stays(c: &mut Conn, key: &str, expected: &[(&str, i64)]) {
    std::thread::sleep(TWO_CRONS);
    holds(c, key, expected);
}

#[test]
fn permits_of_a_session_come_back_however_its_connection_ends() {
    type End = fn(Conn, &mut Conn);
    let ends: [(&str, End); 4] = [
        ("close", |conn, _| drop(conn)),
        ("QUIT", |mut conn, _| assert_eq!(cmd!(conn, "QUIT"), ok())),
        ("CLIENT KILL", |mut conn, c| {
            let id = conn.client_id();
            assert_eq!(cmd!(c, "CLIENT", "KILL", "ID", id), int(1));
        }),
        ("a protocol error", |mut conn, _| {
            conn.send_raw(b"*1\r\nnot a bulk\r\n");
        }),
    ];
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for (what, end) in ends {
        let since = Since::now(server);
        let mut conn = server.conn();
        acquire(&mut c, "k other 60000 9 PERMITS 2");
        acquire(&mut conn, "k a 86400000 9 PERMITS 3 SESSION");
        acquire(&mut conn, "k b 86400000 9 SESSION");
        acquire(&mut conn, "k lease 86400000 9");
        acquire(&mut conn, "alone a 86400000 1 SESSION");
        for (holder, bound) in [("other", 0), ("a", 1), ("b", 1), ("lease", 0)] {
            assert_eq!(of_holder(&mut c, "k", holder, "session"), bound);
        }
        end(conn, &mut c);
        becomes(&mut c, "k", &[("other", 2), ("lease", 1)]);
        becomes(&mut c, "alone", &[]);
        assert_eq!(cmd!(c, "EXISTS", "alone"), int(0), "{what}");
        since.all_counted(&[
            ("sem_sessions_closed", 3),
            ("lock_sessions_closed", 0),
            ("sem_released", 0),
        ]);
        chain.assert_equal();
        cmd!(c, "DEL", "k");
    }
}

#[test]
fn what_a_session_gives_back_goes_to_the_queue_at_once() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    acquire(&mut conn, "k a 60000 3 PERMITS 2 SESSION");
    acquire(&mut c, "k b 60000 3");
    let mut two = wait_for(&server, "k two 60000 3 PERMITS 2");
    let mut one = wait_for(&server, "k one 60000 3");
    drop(conn);
    two.token();
    one.still_waits();
    holds(&mut c, "k", &[("b", 1), ("two", 2)]);
}

#[test]
fn a_released_or_lapsed_binding_takes_nothing_from_anybody() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let mut conn = server.conn();
    // Released, and held again from elsewhere.
    acquire(&mut conn, "k a 60000 5 SESSION");
    cmd!(c, "SEM.RELEASE", "k", "a");
    acquire(&mut c, "k a 60000 5");
    // Lapsed, and held again from elsewhere.
    acquire(&mut conn, "k b 1000 5 SESSION");
    server.clock().advance_ms(1001);
    acquire(&mut c, "k b 60000 5");
    // Deleted.
    acquire(&mut conn, "gone a 60000 5 SESSION");
    cmd!(c, "DEL", "gone");
    acquire(&mut c, "gone a 60000 5");
    drop(conn);
    stays(&mut c, "k", &[("a", 1), ("b", 1)]);
    stays(&mut c, "gone", &[("a", 1)]);
    assert_eq!(since.counted("sem_sessions_closed"), 0);
}

#[test]
fn a_retry_with_session_binds_to_the_new_connection() {
    let server = single();
    let mut c = server.conn();
    let [mut old, mut new] = [0; 2].map(|_| server.conn());
    let token = acquire(&mut old, "k a 60000 5 PERMITS 2 SESSION");
    assert_eq!(acquire(&mut new, "k a 60000 5 PERMITS 2 SESSION"), token);
    drop(old);
    stays(&mut c, "k", &[("a", 2)]);
    drop(new);
    becomes(&mut c, "k", &[]);

    // Without SESSION the binding is what it was.
    let [mut old, mut new] = [0; 2].map(|_| server.conn());
    acquire(&mut old, "k a 60000 5 SESSION");
    acquire(&mut new, "k a 60000 5");
    drop(new);
    stays(&mut c, "k", &[("a", 1)]);
    drop(old);
    becomes(&mut c, "k", &[]);

    // One that was granted without is bound by its retry.
    let mut old = server.conn();
    acquire(&mut c, "k a 60000 5");
    acquire(&mut old, "k a 60000 5 SESSION");
    drop(old);
    becomes(&mut c, "k", &[]);
}

#[test]
fn a_waiters_session_begins_with_its_grant() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 1");
    let mut b = wait_for(&server, "k b 60000 1 SESSION");
    let mut d = wait_for(&server, "k d 60000 1 SESSION");
    cmd!(c, "SEM.RELEASE", "k", "a");
    b.token();
    assert_eq!(of_holder(&mut c, "k", "b", "session"), 1);
    drop(b);
    d.token();
    assert_eq!(of_holder(&mut c, "k", "d", "session"), 1);
    drop(d);
    becomes(&mut c, "k", &[]);
}

#[test]
fn scripts_have_no_session() {
    let server = recorder();
    let mut c = server.conn();
    load_function(&mut c);
    acquire(&mut c, "k a 60000 5");
    changes_nothing(&server, || {
        for holder in ["a", "b"] {
            let rest = args!["SEM.ACQUIRE", holder, 60_000, 5, "SESSION"];
            let scripted = c.eval(RUN, &["k"], &rest).as_text();
            assert!(scripted.starts_with(IN_SCRIPT), "{scripted}");
            let call = [args!["FCALL", "run", 1, "k"], rest].concat();
            let called = c.cmd(&call).as_text();
            assert!(called.starts_with(IN_SCRIPT), "{called}");
        }
    });
    // A transaction has one.
    let mut conn = server.conn();
    let line = words("SEM.ACQUIRE k b 60000 5 SESSION");
    assert!(conn.exec_multi(&[line])[0].as_int() > 0);
    drop(conn);
    becomes(&mut c, "k", &[("a", 1)]);
}

#[test]
fn renamed_copied_and_restored_permits_keep_the_lease_and_drop_the_binding() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    for key in ["renamed", "moved", "copied", "dumped"] {
        acquire(&mut conn, &format!("{key} a 60000 5 PERMITS 2 SESSION"));
    }
    assert_eq!(cmd!(c, "RENAME", "renamed", "r"), ok());
    assert_eq!(cmd!(c, "COPY", "copied", "c"), int(1));
    let dump = cmd!(c, "DUMP", "dumped");
    let restored = cmd!(c, "RESTORE", "d", 60_000, dump.as_bytes());
    assert_eq!(restored, ok());
    assert_eq!(cmd!(c, "MOVE", "moved", 5), int(1));
    for key in ["r", "c", "d"] {
        assert_eq!(of_holder(&mut c, key, "a", "session"), 0, "{key}");
    }
    drop(conn);
    becomes(&mut c, "copied", &[]);
    becomes(&mut c, "dumped", &[]);
    for key in ["r", "c", "d"] {
        stays(&mut c, key, &[("a", 2)]);
    }
    cmd!(c, "SELECT", 5);
    holds(&mut c, "moved", &[("a", 2)]);
}

#[test]
fn one_connection_may_hold_many_permits() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    let commands: Vec<_> = (0..2000)
        .map(|n| words(&format!("SEM.ACQUIRE k h{n} 60000 4000 SESSION")))
        .collect();
    conn.pipeline(&commands);
    acquire(&mut c, "k other 60000 4000");
    assert_eq!(counter(&server, "sem_permits"), 2001);
    drop(conn);
    becomes(&mut c, "k", &[("other", 1)]);
    assert_eq!(counter(&server, "sem_permits"), 1);
}

/// kill -9 on processes that hold and wait: with SESSION the permits are back at once, without it at
/// the end of the lease, and a dead waiter is none.
#[test]
fn killed_processes_leave_what_they_said_they_would() {
    let server = single();
    let mut c = server.conn();
    let mut processes = [0; 3].map(|_| Process::client_of(&server));
    for (process, line) in processes.iter_mut().zip([
        "SEM.ACQUIRE k bound 60000 3 PERMITS 2 SESSION",
        "SEM.ACQUIRE k lease 5000 3",
        "SEM.ACQUIRE k dead 60000 3 BLOCK 60000",
    ]) {
        process.send(line);
        if !line.contains("BLOCK") {
            assert!(process.reply().starts_with(':'), "{line}");
        }
    }
    wait_for_waiters(&server, 1);
    let mut three = wait_for(&server, "k three 60000 3 PERMITS 3");
    let [bound, lease, dead] = processes;
    dead.kill9();
    wait_for_waiters(&server, 1);
    bound.kill9();
    becomes(&mut c, "k", &[("lease", 1)]);
    lease.kill9();
    three.still_waits();
    server.clock().advance_ms(5001);
    three.token();
    holds(&mut c, "k", &[("three", 3)]);
}
