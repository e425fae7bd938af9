//! Waiting under load: thousands of hand-overs, clients that vanish in the moment of their grant,
//! ten thousand that come and go. Nothing is lost and nothing stays behind.

use crate::support::*;
use crate::waiting_failover::{assert_quiet, holder, let_wait, wait_for_waiters, Process};
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn pause(&mut self, up_to_us: u64) {
        let until = Instant::now() + Duration::from_micros(self.below(up_to_us));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

// --- clients that vanish ---

extern "C" {
    fn setsockopt(fd: i32, level: i32, name: i32, value: *const [i32; 2], len: u32) -> i32;
}

/// A connection whose end is a reset, without a farewell: SO_LINGER 0.
pub(crate) struct Abrupt(TcpStream);

impl Abrupt {
    pub(crate) fn waits(server: &Server, line: &str) -> Abrupt {
        const SOL_SOCKET: i32 = 1;
        const SO_LINGER: i32 = 13;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))
            .expect("the server takes connections");
        let (on, seconds) = (1, 0);
        // SAFETY: a `struct linger` is two ints; the descriptor is the stream's.
        let set =
            unsafe { setsockopt(stream.as_raw_fd(), SOL_SOCKET, SO_LINGER, &[on, seconds], 8) };
        assert_eq!(set, 0);
        stream
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("the server reads");
        Abrupt(stream)
    }

    pub(crate) fn vanish(self) {
        drop(self.0);
    }
}

fn waiters_of(conn: &mut Conn, key: &str) -> i64 {
    let info = cmd!(conn, "LOCK.INFO", key);
    match info.map_get("waiters") {
        Some(waiters) => waiters.as_int(),
        None => 0,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Release,
    OwnDeadline,
    LeaseEnd,
}

/// One waiter vanishes about when it is granted or gives up, and the next one gets the lock: handed
/// on at once, or when the short lease of the dead one ends.
fn vanish_once(server: &Server, key: &str, round: u64, moment: Moment, random: &mut Random) {
    let mut control = server.conn();
    let lease = if moment == Moment::LeaseEnd {
        3
    } else {
        60_000
    };
    let first = cmd!(control, "LOCK.ACQUIRE", key, "first", lease).as_int();
    let wait = if moment == Moment::OwnDeadline {
        3
    } else {
        60_000
    };
    let began = Instant::now();
    let doomed = Abrupt::waits(server, &format!("LOCK.ACQUIRE {key} doomed 5 BLOCK {wait}"));
    let mut next = None;
    match moment {
        Moment::Release => {
            while waiters_of(&mut control, key) < 1 {}
            if round.is_multiple_of(2) {
                let mut conn = server.conn();
                conn.send(&args!["LOCK.ACQUIRE", key, "next", 60_000, "BLOCK", 60_000]);
                while waiters_of(&mut control, key) < 2 {}
                next = Some(conn);
            }
            // Now the one is first, now the other.
            if random.below(2) == 0 {
                control.send(&args!["LOCK.RELEASE", key, "first"]);
                random.pause(150);
                doomed.vanish();
            } else {
                doomed.vanish();
                random.pause(50);
                control.send(&args!["LOCK.RELEASE", key, "first"]);
            }
            assert_eq!(control.recv(), int(1));
        }
        Moment::OwnDeadline | Moment::LeaseEnd => {
            // Within the millisecond before or after the deadline.
            let at = began + Duration::from_micros(2500);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            random.pause(1500);
            doomed.vanish();
            if moment == Moment::OwnDeadline {
                assert_eq!(cmd!(control, "LOCK.RELEASE", key, "first"), int(1));
            }
        }
    }
    // Whoever comes now is served soon, and then nobody is left.
    let mut next = next.unwrap_or_else(|| {
        let mut conn = server.conn();
        conn.send(&args!["LOCK.ACQUIRE", key, "next", 60_000, "BLOCK", 60_000]);
        conn
    });
    let token = next.recv();
    let Reply::Int(token) = token else {
        panic!("{key} round {round}: {token:?}");
    };
    assert!(token > first);
    assert_eq!(cmd!(control, "LOCK.RELEASE", key, "next"), int(1));
    let left = cmd!(control, "LOCK.INFO", key);
    assert!(
        left.is_nil(),
        "{key} round {round}: a ghost holds: {left:?}"
    );
}

#[test]
fn two_thousand_waiters_vanish_in_the_moment_of_their_grant() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let server = Options::new().start();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for round in 0..ROUNDS {
                    let moment = match round % 5 {
                        0..=2 => Moment::Release,
                        3 => Moment::OwnDeadline,
                        _ => Moment::LeaseEnd,
                    };
                    vanish_once(server, &format!("k{thread}"), round, moment, &mut random);
                }
            });
        }
    });
    // Beside the first and the next of each round.
    let to_the_doomed = counter(&server, "lock_granted") - 2 * (THREADS * ROUNDS) as i64;
    assert!(
        to_the_doomed > 100,
        "{to_the_doomed}: the moment was missed"
    );
    assert!(server.is_alive());
    assert_quiet(&server);
    assert_eq!(cmd!(server.conn(), "DBSIZE"), int(0));
}

#[test]
fn a_process_with_two_hundred_waiters_is_killed() {
    let server = single();
    cmd!(server.conn(), "LOCK.ACQUIRE", "k", "first", 2000);
    let crowd = || {
        let process = Process::bash(
            "for i in $(seq 200); do
                exec {fd}<>/dev/tcp/127.0.0.1/$1
                printf 'LOCK.ACQUIRE k w%d 60000 BLOCK 60000\\r\\n' $i >&$fd
            done
            read -r _",
            &server,
        );
        wait_for_waiters(&server, 200);
        process.kill9();
        wait_for_waiters(&server, 0);
    };
    // The first lets the server's own tables grow.
    crowd();
    let before = memory_at_rest(&server);
    crowd();
    assert_memory_back(&server, before, 20_000);

    let mut next = let_wait(&server, "LOCK.ACQUIRE k next 60000 BLOCK 60000");
    assert_eq!(waiters_of(&mut server.conn(), "k"), 1);
    server.clock().advance_ms(2001);
    assert!(next.recv().as_int() > 0);
    assert_eq!(holder(&server, "k").as_deref(), Some("next"));
    assert_eq!(cmd!(server.conn(), "LOCK.RELEASE", "k", "next"), int(1));
    assert_quiet(&server);
}

// --- hand-overs ---

#[test]
fn thousands_of_handovers_at_random_moments_lose_none_and_skip_nobody() {
    const CLIENTS: usize = 5;
    const EACH: usize = 800;
    let server = Options::new().start();
    let grants = Mutex::new(Vec::new());
    cmd!(server.conn(), "LOCK.ACQUIRE", "k", "start", 60_000);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, grants) = (&server, &grants);
            scope.spawn(move || {
                let mut conn = server.conn();
                let mut random = Random(client as u64 + 77);
                let owner = |i: usize| format!("{client}-{i}");
                conn.send(&args![
                    "LOCK.ACQUIRE",
                    "k",
                    owner(0),
                    60_000,
                    "BLOCK",
                    60_000
                ]);
                let mut mine = Vec::new();
                for i in 0..EACH {
                    let reply = conn.recv();
                    let Reply::Int(token) = reply else {
                        panic!("client {client}, hand-over {i}: {reply:?}");
                    };
                    mine.push((token, client));
                    random.pause(120);
                    // In one write: it asks again in the instant of its release.
                    let release = resp(&args!["LOCK.RELEASE", "k", owner(i)]);
                    let again = resp(&args![
                        "LOCK.ACQUIRE",
                        "k",
                        owner(i + 1),
                        60_000,
                        "BLOCK",
                        60_000
                    ]);
                    let last = i + 1 == EACH;
                    let wire = if last {
                        release
                    } else {
                        [release, again].concat()
                    };
                    conn.send_raw(&wire);
                    assert_eq!(conn.recv(), int(1), "client {client}, release {i}");
                }
                grants.lock().expect("no panic").extend(mine);
            });
        }
        wait_for_waiters(&server, CLIENTS as i64);
        assert_eq!(cmd!(server.conn(), "LOCK.RELEASE", "k", "start"), int(1));
    });
    let mut grants = grants.into_inner().expect("no panic");
    grants.sort_unstable();
    assert_eq!(grants.len(), CLIENTS * EACH);
    let first: Vec<usize> = grants[..CLIENTS]
        .iter()
        .map(|(_, client)| *client)
        .collect();
    // Whoever asks again in the instant of its release stands last: all take turns, and everybody
    // waits for exactly the others.
    for (i, (token, client)) in grants.iter().enumerate() {
        assert_eq!(*client, first[i % CLIENTS], "hand-over {i}, token {token}");
        assert!(i == 0 || grants[i - 1].0 < *token, "hand-over {i}");
    }
    assert_eq!(counter(&server, "lock_wait_timeouts"), 0);
    assert_eq!(
        counter(&server, "lock_granted"),
        (CLIENTS * EACH + 1) as i64
    );
    assert_quiet(&server);
    assert_eq!(cmd!(server.conn(), "DBSIZE"), int(0));
}

#[test]
fn sixteen_threads_never_are_in_the_section_together() {
    const THREADS: usize = 16;
    const EACH: usize = 100;
    let server = Options::new().start();
    let inside = AtomicBool::new(false);
    let last_token = AtomicI64::new(0);
    // Read and written in two steps: two at once would lose an addition.
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, inside, count, last_token) = (&server, &inside, &count, &last_token);
            scope.spawn(move || {
                let mut conn = server.conn();
                for i in 0..EACH {
                    let owner = format!("{thread}-{i}");
                    let acquire = args!["LOCK.ACQUIRE", "k", &owner, 60_000, "BLOCK", 60_000];
                    let token = conn.cmd(&acquire).as_int();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    assert!(last_token.swap(token, Ordering::SeqCst) < token);
                    let seen = count.load(Ordering::SeqCst);
                    std::thread::yield_now();
                    count.store(seen + 1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    assert_eq!(cmd!(conn, "LOCK.RELEASE", "k", &owner), int(1));
                }
            });
        }
    });
    assert_eq!(count.into_inner(), (THREADS * EACH) as u64);
    assert_quiet(&server);
}

// --- many ---

const MANY: usize = 10_000;

/// What the server's own tables grow by stays. A waiter that is lost would take 300 bytes or more.
const SLACK: i64 = 100 * MANY as i64;

/// Only one crowd at a time: two have more connections than a process may commonly have files open.
static CROWD: Mutex<()> = Mutex::new(());

fn used_memory(server: &Server) -> i64 {
    let info = cmd!(server.conn(), "INFO", "memory").as_text();
    let line = info.lines().find_map(|l| l.strip_prefix("used_memory:"));
    line.expect("INFO has it").parse().expect("a number")
}

/// Once the temporary clients of earlier waiters are gone but for those that the server keeps.
fn memory_at_rest(server: &Server) -> i64 {
    let mut last = i64::MAX;
    loop {
        for _ in 0..20 {
            let_cron_run(server);
        }
        let now = used_memory(server);
        if now >= last {
            return now;
        }
        last = now;
    }
}

/// Rounds of cron come sooner when the monotonic clock jumps.
fn let_cron_run(server: &Server) {
    let mut conn = server.conn();
    server.clock().advance_mono_ms(100);
    for _ in 0..4 {
        cmd!(conn, "PING");
    }
}

/// Redis 7.0 keeps two temporary clients per waiter and frees 50 of them in each round of its cron,
/// ten times a second.
#[track_caller]
fn assert_memory_back(server: &Server, before: i64, slack: i64) {
    let mut now = 0;
    for _ in 0..1500 {
        now = used_memory(server);
        if now - before < slack {
            return;
        }
        let_cron_run(server);
    }
    panic!("{before} bytes before, {now} after");
}

/// A server for many connections. It inherits our limit of open files.
fn spacious() -> Server {
    let server = Options::new().config("maxclients", MANY + 500).start();
    server.clock().freeze_at(T_US);
    let max = cmd!(server.conn(), "CONFIG", "GET", "maxclients");
    let max = max.items()[1].as_int();
    assert!(
        max >= MANY as i64 + 500,
        "the limit of open files allows {max} clients only: raise `ulimit -n`"
    );
    server
}

/// Each waits on a connection of its own; with the ids of their clients.
fn let_many_wait(
    server: &Server,
    lines: impl Iterator<Item = Vec<Vec<u8>>>,
) -> (Vec<Conn>, Vec<i64>) {
    let (mut waiters, mut ids) = (Vec::new(), Vec::new());
    for line in lines {
        let mut conn = server.conn();
        conn.send_raw(&[resp(&args!["CLIENT", "ID"]), resp(&line)].concat());
        waiters.push(conn);
        // Connections beyond the server's backlog would be tried again after a second.
        if waiters.len() % 100 == 0 {
            for conn in &mut waiters[ids.len()..] {
                ids.push(conn.recv().as_int());
            }
        }
    }
    wait_for_waiters(server, waiters.len() as i64);
    assert_eq!(waiters.len(), ids.len());
    (waiters, ids)
}

/// They leave in every way, in turn: a quarter is granted, a quarter unblocked, a quarter waits to
/// its end, the rest disconnects.
#[test]
fn ten_thousand_waiters_on_one_key_come_and_go() {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let server = spacious();
    let mut control = server.conn();
    let before = memory_at_rest(&server);
    cmd!(control, "LOCK.ACQUIRE", "k", "w-first", 3_000_000);

    let line = |i: usize| {
        let wait = if i % 4 == 2 { 60_000 } else { 600_000 };
        args![
            "LOCK.ACQUIRE",
            "k",
            format!("w{i}"),
            3_000_000,
            "BLOCK",
            wait
        ]
    };
    let (mut waiters, ids) = let_many_wait(&server, (0..MANY).map(line));
    assert_eq!(server.info("clients")["blocked_clients"], MANY.to_string());
    // One more than may wait.
    let full = control.cmd(&line(MANY)).as_text();
    assert!(full.starts_with("QUEUEFULL"), "{full}");

    let mut granted = Vec::new();
    let mut told = Vec::new();
    let mut unblocks = Vec::new();
    let mut gone = Vec::new();
    for (i, waiter) in waiters.drain(..).enumerate() {
        match i % 4 {
            0 => granted.push((i, waiter)),
            1 => {
                unblocks.push(args!["CLIENT", "UNBLOCK", ids[i]]);
                told.push(waiter);
            }
            2 => told.push(waiter),
            _ => gone.push(waiter),
        }
    }
    drop(gone);
    assert!(control.pipeline(&unblocks).iter().all(|r| *r == int(1)));
    server.clock().advance_mono_ms(60_000);
    for waiter in &mut told {
        assert_eq!(waiter.recv(), nil());
    }
    wait_for_waiters(&server, granted.len() as i64);

    let mut last = 0;
    let mut owner = "w-first".to_string();
    for (i, waiter) in &mut granted {
        assert_eq!(cmd!(control, "LOCK.RELEASE", "k", &owner), int(1));
        let token = waiter.recv().as_int();
        assert!(token > last);
        (last, owner) = (token, format!("w{i}"));
    }
    drop(granted);
    drop(told);
    assert_quiet(&server);
    assert_eq!(holder(&server, "k"), Some(owner));
    assert_memory_back(&server, before, SLACK);
    assert_eq!(counter(&server, "waiters_peak"), MANY as i64);
    // Waits that ended, not those that CLIENT UNBLOCK ended.
    assert_eq!(counter(&server, "lock_wait_timeouts"), (MANY / 4) as i64);
}

/// Half of the keys are released one by one, the rest flushed away.
#[test]
fn one_waiter_on_each_of_ten_thousand_keys() {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let server = spacious();
    let mut control = server.conn();
    let before = memory_at_rest(&server);
    let all = |f: &dyn Fn(usize) -> Vec<Vec<u8>>| (0..MANY).map(f).collect::<Vec<_>>();
    let acquire = |i: usize| args!["LOCK.ACQUIRE", format!("k{i}"), "first", 3_000_000];
    control.pipeline(&all(&acquire));
    let wait = |i: usize| {
        let mut line = acquire(i);
        line[2] = b"next".to_vec();
        line.extend(args!["BLOCK", 600_000]);
        line
    };
    let (mut waiters, _) = let_many_wait(&server, (0..MANY).map(wait));

    let mut release = all(&|i| args!["LOCK.RELEASE", format!("k{i}"), "first"]);
    release.truncate(MANY / 2);
    assert!(control.pipeline(&release).iter().all(|r| *r == int(1)));
    for waiter in &mut waiters[..MANY / 2] {
        assert!(waiter.recv().as_int() > 0);
    }
    wait_for_waiters(&server, (MANY / 2) as i64);
    assert_eq!(cmd!(control, "FLUSHALL"), ok());
    for waiter in &mut waiters[MANY / 2..] {
        assert!(waiter.recv().as_int() > 0);
    }
    assert_eq!(cmd!(control, "DBSIZE"), int((MANY / 2) as i64));
    drop(waiters);
    assert_quiet(&server);
    cmd!(control, "FLUSHALL");
    assert_memory_back(&server, before, SLACK);
}
