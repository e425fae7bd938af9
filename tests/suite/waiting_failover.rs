//! Waiters and everything that stops or replaces one of the processes: a suspended holder, a
//! suspended waiter, a change of role, a pause of writes, a restart.

use crate::support::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const HOUR_MS: u64 = 3_600_000;
/// Longer than a server takes for anything, a round of its cron included.
const A_WHILE: Duration = Duration::from_millis(250);

/// A client in a process of its own, to be suspended or killed. It sends the lines that it gets,
/// one after the other, and answers the first line of each reply.
pub(crate) struct Process {
    child: Child,
    lines: ChildStdin,
    replies: mpsc::Receiver<String>,
}

impl Process {
    /// Connects to `server` and sends lines there.
    pub(crate) fn client_of(server: &Server) -> Process {
        Process::bash(
            "exec 3<>/dev/tcp/127.0.0.1/$1
            while IFS= read -r line; do
                printf '%s\\r\\n' \"$line\" >&3
                IFS= read -r reply <&3
                printf '%s\\n' \"$reply\"
            done",
            server,
        )
    }

    /// Runs a script whose `$1` is the server's port. It must end when its input does.
    pub(crate) fn bash(script: &str, server: &Server) -> Process {
        let mut child = Command::new("bash")
            .args(["-c", script, "client", &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash is there");
        let lines = child.stdin.take().expect("piped");
        let output: ChildStdout = child.stdout.take().expect("piped");
        let (to, replies) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(line.trim_end().to_string()).is_err() {
                    break;
                }
            }
        });
        Process {
            child,
            lines,
            replies,
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.lines, "{line}").expect("the process lives");
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> String {
        let reply = self.replies.recv_timeout(Duration::from_secs(10));
        reply.expect("the process answers")
    }

    #[track_caller]
    fn integer(&mut self) -> i64 {
        let reply = self.reply();
        let digits = reply.strip_prefix(':').map(str::parse);
        match digits {
            Some(Ok(number)) => number,
            _ => panic!("not an integer: {reply:?}"),
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("bash")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid])
            .status();
        assert!(sent.expect("bash is there").success(), "cannot signal");
    }

    pub(crate) fn kill9(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub(crate) fn wait_for_waiters(server: &Server, number: i64) {
    eventually("as many wait", || counter(server, "waiters") == number);
}

/// Lets a client wait, and returns when it does.
#[track_caller]
pub(crate) fn let_wait(server: &Server, line: &str) -> Conn {
    let before = counter(server, "waiters");
    let mut conn = server.conn();
    conn.send(&words(line));
    wait_for_waiters(server, before + 1);
    conn
}

#[track_caller]
fn acquire(server: &Server, line: &str) -> i64 {
    server.conn().cmd(&words(line)).as_int()
}

#[track_caller]
fn run(server: &Server, line: &str) -> Reply {
    server.conn().cmd(&words(line))
}

#[track_caller]
pub(crate) fn holder(server: &Server, key: &str) -> Option<String> {
    let info = cmd!(server.conn(), "LOCK.INFO", key);
    if info.is_nil() {
        return None;
    }
    let holders = info.field("holders").items();
    holders
        .first()
        .map(|holder| holder.field("owner").as_text())
}

/// Nobody waits and nothing is blocked.
#[track_caller]
pub(crate) fn assert_quiet(server: &Server) {
    wait_for_waiters(server, 0);
    assert_eq!(server.info("clients")["blocked_clients"], "0");
    assert!(!server.log().contains("panic"), "{}", server.log());
}

#[track_caller]
pub(crate) fn assert_unblocked(conn: &mut Conn) {
    let reply = conn.recv();
    let text = reply.as_text();
    assert!(reply.is_error() && text.starts_with("UNBLOCKED"), "{text}");
}

#[track_caller]
fn assert_still_waits(conn: &mut Conn) {
    assert_eq!(conn.recv_timeout(Duration::from_millis(20)), None);
}

#[track_caller]
fn assert_same_data(a: &Server, b: &Server) {
    let digest = |server: &Server| cmd!(server.conn(), "DEBUG", "DIGEST");
    assert_eq!(digest(a), digest(b));
}

// --- suspended clients ---

#[test]
fn a_suspended_holder_loses_its_lease_to_the_next_and_is_told_when_it_wakes() {
    let server = single();
    leave_expired(&mut server.conn());
    let mut sleeper = Process::client_of(&server);
    sleeper.send("LOCK.ACQUIRE k sleeper 300");
    let first = sleeper.integer();
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 5000 BLOCK 60000");
    sleeper.signal("STOP");
    sleeper.send(&format!("LOCK.RENEW k sleeper 300 TOKEN {first}"));

    server.clock().advance_ms(300);
    assert_still_waits(&mut next);
    server.clock().advance_ms(1);
    let second = next.recv().as_int();
    assert!(second > first);

    sleeper.signal("CONT");
    assert_eq!(sleeper.integer(), 0, "its RENEW");
    sleeper.send("LOCK.RELEASE k sleeper");
    assert_eq!(sleeper.integer(), 0);
    assert_eq!(holder(&server, "k").as_deref(), Some("next"));
    assert_eq!(run(&server, "LOCK.RELEASE k next"), int(1));
    assert_quiet(&server);
}

#[test]
fn a_suspended_waiter_is_granted_and_keeps_its_lease_until_that_ends() {
    let server = single();
    leave_expired(&mut server.conn());
    acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut sleeper = Process::client_of(&server);
    sleeper.send("LOCK.ACQUIRE k sleeper 400 BLOCK 60000");
    wait_for_waiters(&server, 1);
    sleeper.signal("STOP");
    sleeper.send("LOCK.RENEW k sleeper 400");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 400 BLOCK 60000");

    assert_eq!(run(&server, "LOCK.RELEASE k first"), int(1));
    assert_eq!(holder(&server, "k").as_deref(), Some("sleeper"));
    server.clock().advance_ms(400);
    std::thread::sleep(A_WHILE);
    assert_eq!(holder(&server, "k").as_deref(), Some("sleeper"));
    assert_still_waits(&mut next);
    server.clock().advance_ms(1);
    let token = next.recv().as_int();

    sleeper.signal("CONT");
    let its_own = sleeper.integer();
    assert!(its_own < token);
    assert_eq!(sleeper.integer(), 0, "its RENEW");
    assert_eq!(run(&server, "LOCK.RELEASE k next"), int(1));
    assert_quiet(&server);
}

#[test]
fn a_waiter_that_never_reads_is_granted_and_its_lease_ends() {
    let server = single();
    acquire(&server, "LOCK.ACQUIRE k first 60000");
    let deaf = let_wait(&server, "LOCK.ACQUIRE k deaf 400 BLOCK 60000");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 400 BLOCK 60000");
    assert_eq!(run(&server, "LOCK.RELEASE k first"), int(1));
    assert_eq!(holder(&server, "k").as_deref(), Some("deaf"));
    server.clock().advance_ms(401);
    assert!(next.recv().as_int() > 0);
    // Its connection closes long after: that takes nothing from anybody.
    drop(deaf);
    std::thread::sleep(A_WHILE);
    assert_eq!(holder(&server, "k").as_deref(), Some("next"));
    assert_eq!(run(&server, "LOCK.RELEASE k next"), int(1));
    assert_quiet(&server);
}

#[test]
fn a_dead_holder_that_had_its_reply_keeps_its_lease() {
    let server = single();
    acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut dies = let_wait(&server, "LOCK.ACQUIRE k dies 400 BLOCK 60000");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 400 BLOCK 60000");
    run(&server, "LOCK.RELEASE k first");
    assert!(dies.recv().as_int() > 0);
    drop(dies);
    std::thread::sleep(A_WHILE);
    assert_eq!(holder(&server, "k").as_deref(), Some("dies"));
    assert_still_waits(&mut next);
    server.clock().advance_ms(401);
    assert!(next.recv().as_int() > 0);
    assert_quiet(&server);
}

// --- changes of role ---

/// A primary and a replica on one frozen clock.
pub(crate) fn pair() -> (Server, Server) {
    // No PING in the middle of a comparison of offsets.
    let options = Options::new().config("repl-ping-replica-period", 3600);
    let primary = options.start();
    primary.clock().freeze_at(T_US);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    (primary, replica)
}

#[track_caller]
pub(crate) fn follow(server: &Server, primary: &Server) {
    let port = primary.port().to_string();
    assert_eq!(
        cmd!(server.conn(), "REPLICAOF", "127.0.0.1", port),
        status("OK")
    );
}

#[test]
fn a_demoted_primary_sends_its_waiters_away_and_the_promoted_one_grants_anew() {
    let (old, new) = pair();
    let first = acquire(&old, "LOCK.ACQUIRE k first 5000");
    let mut waiters: Vec<Conn> = (0..2)
        .map(|i| let_wait(&old, &format!("LOCK.ACQUIRE k w{i} 5000 BLOCK 60000")))
        .collect();
    new.wait_synced_with(&old);
    assert_eq!(run(&new, "REPLICAOF NO ONE"), ok());
    follow(&old, &new);
    for waiter in &mut waiters {
        assert_unblocked(waiter);
    }
    wait_for_waiters(&old, 0);
    old.wait_synced_with(&new);
    // The holder's lease goes on, and the old primary takes no more requests.
    assert_eq!(run(&new, "LOCK.RENEW k first 6000"), int(6000));
    let refused = run(&old, "LOCK.ACQUIRE k w0 5000 BLOCK 60000").as_text();
    assert!(refused.starts_with("READONLY"), "{refused}");

    let mut waiters: Vec<Conn> = (0..2)
        .map(|i| let_wait(&new, &format!("LOCK.ACQUIRE k w{i} 5000 BLOCK 60000")))
        .collect();
    assert_eq!(run(&new, "LOCK.RELEASE k first"), int(1));
    let second = waiters[0].recv().as_int();
    assert!(second > first);
    assert_still_waits(&mut waiters[1]);
    new.clock().advance_ms(5001);
    assert!(waiters[1].recv().as_int() > second);
    old.wait_synced_with(&new);
    assert_same_data(&old, &new);
    assert_eq!(counter(&old, "lock_granted"), 1, "granted on a replica");
    assert_quiet(&old);
    assert_quiet(&new);
}

#[test]
fn a_lease_that_ends_as_the_role_changes_is_granted_by_nobody_but_the_new_primary() {
    let (old, new) = pair();
    let first = acquire(&old, "LOCK.ACQUIRE k first 5000");
    let mut waiter = let_wait(&old, "LOCK.ACQUIRE k next 5000 BLOCK 60000");
    new.wait_synced_with(&old);
    let mut c = old.conn();
    // DEL only queues the grant; in the same turn of its loop the server turns into a replica.
    let replies = c.pipeline(&[
        args!["DEL", "k"],
        args!["REPLICAOF", "127.0.0.1", new.port()],
    ]);
    assert_eq!(replies, [int(1), ok()]);
    assert_unblocked(&mut waiter);
    assert_eq!(run(&new, "REPLICAOF NO ONE"), ok());
    std::thread::sleep(A_WHILE);
    assert_eq!(counter(&old, "lock_granted"), 1);
    assert!(old.is_alive());
    let token = acquire(&new, "LOCK.ACQUIRE k2 next 5000 BLOCK 60000");
    assert!(token > first);
    old.wait_synced_with(&new);
    assert_same_data(&old, &new);
    assert_quiet(&old);
}

#[test]
fn a_replica_never_grants_what_ends_on_its_own_clock() {
    let (primary, replica) = pair();
    acquire(&primary, "LOCK.ACQUIRE k first 500");
    let mut next = let_wait(&primary, "LOCK.ACQUIRE k next 5000 BLOCK 60000");
    replica.wait_synced_with(&primary);
    primary.clock().advance_ms(501);
    let token = next.recv().as_int();
    replica.wait_synced_with(&primary);
    assert_same_data(&primary, &replica);
    let info = cmd!(replica.conn(), "LOCK.INFO", "k");
    assert_eq!(info.field("token"), &int(token));
    assert_eq!(counter(&replica, "lock_granted"), 0);
    assert_quiet(&primary);
}

/// The clock runs: FAILOVER counts by it.
fn running_pair() -> (Server, Server) {
    let primary = Options::new().start();
    let replica = Options::new().replica_of(&primary).start();
    replica.wait_synced_with(&primary);
    (primary, replica)
}

#[test]
fn failover_sends_waiters_away_and_the_new_primary_serves_them() {
    let (old, new) = running_pair();
    let first = acquire(&old, "LOCK.ACQUIRE k first 60000");
    let mut waiters: Vec<Conn> = (0..3)
        .map(|i| let_wait(&old, &format!("LOCK.ACQUIRE k w{i} 60000 BLOCK 60000")))
        .collect();
    new.wait_synced_with(&old);
    assert_eq!(run(&old, "FAILOVER"), ok());
    for waiter in &mut waiters {
        assert_unblocked(waiter);
    }
    eventually("the roles have changed", || {
        new.info("replication")["role"] == "master" && old.info("replication")["role"] == "slave"
    });
    old.wait_synced_with(&new);
    assert_quiet(&old);

    let mut waiters: Vec<Conn> = (0..3)
        .map(|i| let_wait(&new, &format!("LOCK.ACQUIRE k w{i} 60000 BLOCK 60000")))
        .collect();
    assert_eq!(run(&new, "LOCK.RELEASE k first"), int(1));
    let mut last = first;
    for (i, waiter) in waiters.iter_mut().enumerate() {
        let token = waiter.recv().as_int();
        assert!(token > last);
        last = token;
        assert_eq!(run(&new, &format!("LOCK.RELEASE k w{i}")), int(1));
    }
    old.wait_synced_with(&new);
    assert_same_data(&old, &new);
    assert_quiet(&new);
}

#[test]
fn nothing_is_granted_while_a_failover_waits_for_its_replica() {
    let (primary, replica) = running_pair();
    acquire(&primary, "LOCK.ACQUIRE k first 30000");
    let mut waiter = let_wait(&primary, "LOCK.ACQUIRE k next 60000 BLOCK 60000");
    replica.wait_synced_with(&primary);
    replica.sigstop();
    // What the replica does not have yet.
    cmd!(primary.conn(), "SET", "lag", "1");
    assert_eq!(run(&primary, "FAILOVER"), ok());
    eventually("the failover waits", || {
        primary.info("replication")["master_failover_state"] == "waiting-for-sync"
    });
    // The lease ends meanwhile.
    primary.clock().advance_ms(30_001);
    std::thread::sleep(A_WHILE);
    assert_still_waits(&mut waiter);
    assert_eq!(counter(&primary, "lock_granted"), 1);
    assert_eq!(run(&primary, "FAILOVER ABORT"), ok());
    assert!(waiter.recv().as_int() > 0);
    replica.sigcont();
    replica.wait_synced_with(&primary);
    assert_same_data(&primary, &replica);
    assert_eq!(run(&primary, "LOCK.RELEASE k next"), int(1));
    assert_quiet(&primary);
}

// --- pauses ---

#[test]
fn nothing_is_written_in_a_pause_and_the_queue_goes_first_after_it() {
    for mode in ["WRITE", "ALL"] {
        let (primary, replica) = pair();
        let first = acquire(&primary, "LOCK.ACQUIRE k first 500");
        acquire(&primary, "LOCK.ACQUIRE deleted first 60000");
        let mut next = let_wait(&primary, "LOCK.ACQUIRE k next 5000 BLOCK 60000");
        let mut other = let_wait(&primary, "LOCK.ACQUIRE deleted other 5000 BLOCK 60000");
        let mut hasty = let_wait(&primary, "LOCK.ACQUIRE k hasty 5000 BLOCK 5000");
        let mut late = primary.conn();
        replica.wait_synced_with(&primary);

        let mut control = primary.conn();
        let replies = control.pipeline(&[
            args!["DEL", "deleted"],
            args!["CLIENT", "PAUSE", 3000, mode],
        ]);
        assert_eq!(replies, [int(1), ok()]);
        // Asked of the replica: a pause of everything stops every question to the primary. What
        // stood before the pause still arrives.
        std::thread::sleep(A_WHILE);
        let offset = || replica.info("replication")["slave_repl_offset"].clone();
        let before = offset();
        primary.clock().advance_ms(501);
        // A newcomer asks in the pause.
        late.send(&words("LOCK.ACQUIRE k late 5000 BLOCK 60000"));
        std::thread::sleep(A_WHILE);
        for waiter in [&mut next, &mut other, &mut late] {
            assert_still_waits(waiter);
        }
        // The wait of another ends even now.
        primary.clock().advance_mono_ms(5000);
        assert_eq!(hasty.recv(), nil(), "{mode}");
        std::thread::sleep(A_WHILE);
        for waiter in [&mut next, &mut other, &mut late] {
            assert_still_waits(waiter);
        }
        assert_eq!(offset(), before, "{mode}");
        assert!(primary.is_alive(), "{mode}");

        // The pause follows the wall clock.
        primary.clock().advance_ms(2500);
        let second = next.recv().as_int();
        assert!(second > first);
        assert!(other.recv().as_int() > first);
        wait_for_waiters(&primary, 1);
        assert_eq!(run(&primary, "LOCK.RELEASE k next"), int(1));
        assert!(late.recv().as_int() > second);
        replica.wait_synced_with(&primary);
        assert_same_data(&primary, &replica);
        assert_quiet(&primary);
    }
}

#[test]
fn a_release_in_a_pause_hands_over_after_it() {
    let server = single();
    let first = acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 60000 BLOCK 60000");
    let mut control = server.conn();
    assert_eq!(cmd!(control, "CLIENT", "PAUSE", HOUR_MS, "WRITE"), ok());
    let mut releasing = server.conn();
    releasing.send(&words("LOCK.RELEASE k first"));
    assert_still_waits(&mut next);
    assert_still_waits(&mut releasing);
    assert_eq!(cmd!(control, "CLIENT", "UNPAUSE"), ok());
    assert_eq!(releasing.recv(), int(1));
    assert!(next.recv().as_int() > first);
    assert_quiet(&server);
}

#[test]
fn a_waiter_that_dies_in_a_pause_is_not_granted_after_it() {
    let server = single();
    acquire(&server, "LOCK.ACQUIRE k first 500");
    let dies = let_wait(&server, "LOCK.ACQUIRE k dies 60000 BLOCK 60000");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 60000 BLOCK 60000");
    let mut control = server.conn();
    assert_eq!(cmd!(control, "CLIENT", "PAUSE", HOUR_MS, "WRITE"), ok());
    server.clock().advance_ms(501);
    drop(dies);
    wait_for_waiters(&server, 1);
    assert_still_waits(&mut next);
    assert_eq!(cmd!(control, "CLIENT", "UNPAUSE"), ok());
    assert!(next.recv().as_int() > 0);
    assert_eq!(holder(&server, "k").as_deref(), Some("next"));
    assert_quiet(&server);
}

// --- restarts ---

#[test]
fn a_restart_ends_waits_and_keeps_the_hold() {
    let server = Options::new().aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    let first = acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut waiters: Vec<Conn> = (0..20)
        .map(|i| let_wait(&server, &format!("LOCK.ACQUIRE k w{i} 60000 BLOCK 60000")))
        .collect();
    let status = server.shutdown_nosave();
    assert!(status.success(), "{status}");
    for waiter in &mut waiters {
        // Told or cut off, but not granted.
        if let Ok(reply) = waiter.try_recv(Duration::from_secs(5)) {
            assert!(reply.is_error(), "{reply:?}");
        }
    }
    server.start_again();
    assert_eq!(holder(&server, "k").as_deref(), Some("first"));
    assert_eq!(counter(&server, "waiters"), 0);
    let mut again = let_wait(&server, "LOCK.ACQUIRE k w0 60000 BLOCK 60000");
    assert_eq!(run(&server, "LOCK.RELEASE k first"), int(1));
    assert!(again.recv().as_int() > first);
    assert_quiet(&server);
}

#[test]
fn a_kill_of_the_server_with_waiters_loses_nothing_that_was_granted() {
    let server = Options::new().aof(Aof::Preamble).start();
    server.clock().freeze_at(T_US);
    acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut granted = let_wait(&server, "LOCK.ACQUIRE k granted 60000 BLOCK 60000");
    let _waiting = let_wait(&server, "LOCK.ACQUIRE k waiting 60000 BLOCK 60000");
    run(&server, "LOCK.RELEASE k first");
    let token = granted.recv().as_int();
    server.kill9();
    server.start_again();
    let info = cmd!(server.conn(), "LOCK.INFO", "k");
    assert_eq!(info.field("token"), &int(token));
    assert_eq!(info.field("waiters"), &int(0));
    assert_eq!(run(&server, "LOCK.RENEW k granted 60000"), int(60000));
}

#[test]
fn waiters_outlive_a_reload_of_the_data_set() {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    let first = acquire(&server, "LOCK.ACQUIRE k first 60000");
    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 60000 BLOCK 60000");
    assert_eq!(run(&server, "DEBUG RELOAD"), ok());
    std::thread::sleep(A_WHILE);
    assert_still_waits(&mut next);
    assert_eq!(run(&server, "LOCK.RELEASE k first"), int(1));
    assert!(next.recv().as_int() > first);
    // Over at once after a reload, because the key is gone from what was saved.
    let mut last = let_wait(&server, "LOCK.ACQUIRE k last 60000 BLOCK 60000");
    let began = Instant::now();
    server.clock().advance_ms(60001);
    assert!(last.recv().as_int() > first);
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_quiet(&server);
}
