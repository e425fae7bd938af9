//! How fast a lock reaches the next waiter: BLOCK against clients that poll or subscribe, the end of
//! a lease, and how the queues scale.
//!
//! `make bench-waiting`. Everything runs on this machine, the server with its default `hz 10`.

use hdrhistogram::Histogram;
use sluice_testbed::{args, cmd, flavour, Conn, Options, Reply, Server};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Hand-overs per way to wait.
const HANDOVERS: u64 = 500;
const POLL: Duration = Duration::from_millis(10);
const LEASE_ENDS: u64 = 300;
const FEW: usize = 1_000;
const MANY: usize = 10_000;
/// Of each drain the fastest of so many counts: whatever else runs here only adds.
const DRAINS: usize = 5;

fn main() {
    println!(
        "{}, x86_64, client and server on one machine\n",
        flavour().name
    );
    release_to_grant();
    lease_end_to_grant();
    drains();
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are fine")
}

fn server() -> Server {
    Options::new()
        .without_clock()
        .config("maxclients", MANY + 100)
        .start()
}

// --- release to grant ---

#[derive(Clone, Copy)]
enum Way {
    Block,
    Poll,
    Subscribe,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Block, "BLOCK"),
    (Way::Poll, "polling, 10 ms"),
    (Way::Subscribe, "SUBSCRIBE and retry"),
];

fn acquire(conn: &mut Conn, owner: &str) -> Option<i64> {
    match cmd!(conn, "LOCK.ACQUIRE", "lock", owner, 60_000) {
        Reply::Int(token) => Some(token),
        _ => None,
    }
}

/// One waiter: it starts on a signal, says that it waits, and then when it was granted.
fn waiter(port: u16, starts: mpsc::Receiver<Way>, tell: mpsc::Sender<Option<Instant>>) {
    let mut conn = Conn::connect(port);
    let mut subscriber = Conn::connect(port);
    for way in starts {
        let says_it_waits = || tell.send(None).expect("main listens");
        match way {
            Way::Block => {
                let line = args!["LOCK.ACQUIRE", "lock", "waiter", 60_000, "BLOCK", 60_000];
                conn.send(&line);
                says_it_waits();
                conn.recv().as_int();
            }
            Way::Poll => {
                says_it_waits();
                while acquire(&mut conn, "waiter").is_none() {
                    thread::sleep(POLL);
                }
            }
            Way::Subscribe => {
                subscriber.send(&args!["SUBSCRIBE", "released"]);
                subscriber.recv();
                // Once more after the subscription: the release may have come before it.
                let mut granted = acquire(&mut conn, "waiter");
                says_it_waits();
                while granted.is_none() {
                    subscriber.recv();
                    granted = acquire(&mut conn, "waiter");
                }
            }
        }
        tell.send(Some(Instant::now())).expect("main listens");
        if let Way::Subscribe = way {
            subscriber.send(&args!["UNSUBSCRIBE"]);
            subscriber.recv();
        }
    }
}

fn release_to_grant() {
    let server = server();
    let mut holder = server.conn();
    let mut random = Random(4);
    let mut times = WAYS.map(|_| histogram());
    let (start, starts) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let port = server.port();
    let thread = thread::spawn(move || waiter(port, starts, tell));
    // The first hundredth warms up.
    for round in 0..HANDOVERS + HANDOVERS / 100 {
        for (i, (way, _)) in WAYS.into_iter().enumerate() {
            acquire(&mut holder, "holder").expect("the lock is free");
            start.send(way).expect("the waiter lives");
            assert_eq!(told.recv().expect("it tells"), None);
            // The release falls anywhere into the polling client's sleep.
            thread::sleep(Duration::from_micros(3_000 + random.below(10_000)));
            let release = args!["LOCK.RELEASE", "lock", "holder"];
            let released = Instant::now();
            if let Way::Subscribe = way {
                // In one write, as a script would do it.
                let publish = args!["PUBLISH", "released", "1"];
                holder.pipeline(&[release, publish]);
            } else {
                holder.cmd(&release);
            }
            let granted = told.recv().expect("it tells").expect("granted");
            let us = granted.duration_since(released).as_micros() as u64;
            if round >= HANDOVERS / 100 {
                times[i].record(us).expect("in range");
            }
            cmd!(holder, "LOCK.RELEASE", "lock", "waiter");
        }
    }
    drop(start);
    thread.join().expect("the waiter ends");

    println!("Release to grant, {HANDOVERS} hand-overs each, interleaved, µs:\n");
    println!("| how the client waits | p50 | p99 |\n|---|---:|---:|");
    for ((_, name), times) in WAYS.iter().zip(&times) {
        let (p50, p99) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
        println!("| {name} | {p50} | {p99} |");
    }
    println!();
}

// --- lease end to grant ---

fn lease_end_to_grant() {
    let server = server();
    let (mut holder, mut waiter) = (server.conn(), server.conn());
    let mut random = Random(5);
    let mut times = histogram();
    for round in 0..LEASE_ENDS {
        let lease = 20 + random.below(40);
        let first = format!("first{round}");
        cmd!(holder, "LOCK.ACQUIRE", "lock", &first, lease).as_int();
        let last_ms = cmd!(holder, "PEXPIRETIME", "lock").as_int() as u128;
        let line = args!["LOCK.ACQUIRE", "lock", "next", 60_000, "BLOCK", 60_000];
        waiter.cmd(&line).as_int();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_micros();
        // A hold lives through the millisecond of its deadline.
        let free_at = (last_ms + 1) * 1000;
        times
            .record(now.saturating_sub(free_at) as u64)
            .expect("in range");
        cmd!(waiter, "LOCK.RELEASE", "lock", "next");
    }
    let ms = |us: u64| us as f64 / 1000.0;
    println!("Lease end to next grant, idle server, hz 10, {LEASE_ENDS} times, ms:\n");
    println!("| p50 | p99 | max |\n|---:|---:|---:|");
    println!(
        "| {:.2} | {:.2} | {:.2} |\n",
        ms(times.value_at_quantile(0.5)),
        ms(times.value_at_quantile(0.99)),
        ms(times.max())
    );
}

// --- many waiters ---

/// `n` connections that wait, one after the other.
fn crowd(server: &Server, n: usize, line: impl Fn(usize) -> Vec<Vec<u8>>) -> Vec<Conn> {
    let crowd: Vec<Conn> = (0..n)
        .map(|i| {
            let mut conn = server.conn();
            conn.send(&line(i));
            conn
        })
        .collect();
    while server.info("sluice")["sluice_waiters"] != n.to_string() {
        thread::sleep(Duration::from_millis(5));
    }
    crowd
}

/// Sends the releases in one pipeline, and stops when the last has its reply.
fn timed(control: &mut Conn, releases: &[Vec<Vec<u8>>], crowd: &mut [Conn]) -> Duration {
    let began = Instant::now();
    let replies = control.pipeline(releases);
    let took = began.elapsed();
    assert!(replies.iter().all(|reply| *reply == Reply::Int(1)));
    for waiter in crowd {
        waiter.recv().as_int();
    }
    took
}

/// Each release hands the lock to the next in the queue, whose release is next in the pipeline.
fn drain_one_key(n: usize) -> Duration {
    let server = server();
    let mut control = server.conn();
    cmd!(control, "LOCK.ACQUIRE", "k", "w0", 600_000);
    let wait = |i: usize| {
        let owner = format!("w{}", i + 1);
        args!["LOCK.ACQUIRE", "k", owner, 600_000, "BLOCK", 600_000]
    };
    let mut crowd = crowd(&server, n, wait);
    let release = |i: usize| args!["LOCK.RELEASE", "k", format!("w{i}")];
    let releases: Vec<_> = (0..n).map(release).collect();
    timed(&mut control, &releases, &mut crowd)
}

fn drain_many_keys(n: usize) -> Duration {
    let server = server();
    let mut control = server.conn();
    let key = |i: usize| format!("k{i}");
    let held: Vec<_> = (0..n)
        .map(|i| args!["LOCK.ACQUIRE", key(i), "first", 600_000])
        .collect();
    control.pipeline(&held);
    let wait = |i: usize| args!["LOCK.ACQUIRE", key(i), "next", 600_000, "BLOCK", 600_000];
    let mut crowd = crowd(&server, n, wait);
    let releases: Vec<_> = (0..n)
        .map(|i| args!["LOCK.RELEASE", key(i), "first"])
        .collect();
    timed(&mut control, &releases, &mut crowd)
}

fn drains() {
    println!("Drain, releases in one pipeline, the fastest of {DRAINS}:\n");
    println!("| waiters | {FEW} | {MANY} | ratio | per hand-over at {MANY} |");
    println!("|---|---:|---:|---:|---:|");
    drain("all on one key", drain_one_key);
    drain("one on each of as many keys", drain_many_keys);
}

fn drain(name: &str, measure: impl Fn(usize) -> Duration) {
    let fastest = |n| (0..DRAINS).map(|_| measure(n)).min().expect("measured");
    let (few, many) = (fastest(FEW), fastest(MANY));
    println!(
        "| {name} | {:.1} ms | {:.1} ms | {:.1} | {:.1} µs |",
        few.as_secs_f64() * 1e3,
        many.as_secs_f64() * 1e3,
        many.as_secs_f64() / few.as_secs_f64(),
        many.as_secs_f64() * 1e6 / MANY as f64
    );
}
