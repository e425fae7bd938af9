//! Fifty workers and a limit of seven, on the real clock. They do real work against a counter in this
//! process. Some are killed on the way, in all the ways in which workers die; the counter never
//! exceeds the limit, and in the end every permit is back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::nobody_waits;

const WORKERS: usize = 50;
const LIMIT: u32 = 7;
const ROUNDS: usize = 12;
/// Of those who come out alive, or whose connection tells of their death: no machine stalls as long.
const LONG_MS: u64 = 45_000;
/// Of those who just stop.
const SHORT_MS: u64 = 700;

/// How a worker ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// All its rounds, each with a release.
    Finishes,
    /// In the middle of its work, with SESSION: its connection closes.
    Killed,
    /// In the middle of its work, and nobody is told: its connection stays.
    Crashes,
    /// While it waits, or in the instant of its grant.
    GivesUp,
}

impl Fate {
    fn of(worker: usize) -> Fate {
        match worker % 10 {
            1 | 6 => Fate::Killed,
            3 | 8 => Fate::Crashes,
            4 => Fate::GivesUp,
            _ => Fate::Finishes,
        }
    }
}

/// Who is at work, with how many permits, and until when it may be: a worker that has stopped
/// without a word is over at the end of its lease, whatever the scheduler does to its thread.
#[derive(Default)]
struct Counter {
    inside: Mutex<HashMap<usize, (u32, Instant)>>,
    peak: Mutex<u32>,
}

impl Counter {
    /// Counts the worker in, unless its lease is over already. The count is checked in the same step.
    fn enter(&self, worker: usize, permits: u32, until: Instant) -> bool {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if until <= now {
            return false;
        }
        inside.retain(|_, (_, until)| *until > now);
        inside.insert(worker, (permits, until));
        let count: u32 = inside.values().map(|(permits, _)| permits).sum();
        assert!(count <= LIMIT, "{count} at work: {inside:?} at {now:?}");
        let mut peak = self.peak.lock().unwrap_or_else(PoisonError::into_inner);
        *peak = count.max(*peak);
        true
    }

    fn leave(&self, worker: usize) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.remove(&worker);
    }
}

struct Worker<'a> {
    number: usize,
    conn: Conn,
    counter: &'a Counter,
    permits: u32,
    lease_ms: u64,
    random: u64,
}

impl Worker<'_> {
    fn name(&self) -> String {
        format!("worker-{}", self.number)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (self.random >> 33) % n
    }

    fn acquire(&self, more: &str) -> Vec<Vec<u8>> {
        let (name, lease, permits) = (self.name(), self.lease_ms, self.permits);
        let line = format!("SEM.ACQUIRE jobs {name} {lease} {LIMIT} PERMITS {permits}{more}");
        words(&format!("{line} BLOCK 120000"))
    }

    /// Waits for its permits, and counts itself in: only with a lease that is sure to last. The
    /// reply may be late; a renewal says that the permits are still its own, and from when on.
    fn start(&mut self, more: &str) -> i64 {
        loop {
            self.conn.send(&self.acquire(more));
            let reply = self.conn.try_recv(Duration::from_secs(120));
            let token = reply.expect("it is its turn some time").as_int();
            loop {
                let asked = Instant::now();
                let renew = format!("SEM.RENEW jobs {} {}", self.name(), self.lease_ms);
                if number(&mut self.conn, &renew) == 0 {
                    // Too late. To work now would be wrong; it asks again.
                    break;
                }
                // A lease is counted from the start of a millisecond.
                let until = asked + Duration::from_millis(self.lease_ms - 2);
                if self.counter.enter(self.number, self.permits, until) {
                    return token;
                }
            }
        }
    }

    fn work(&mut self) {
        thread::sleep(Duration::from_micros(self.below(4000)));
    }

    fn finish(mut self) -> usize {
        let mut last = 0;
        for _ in 0..ROUNDS {
            let token = self.start("");
            assert!(token > last, "{token} after {last}");
            last = token;
            self.work();
            self.counter.leave(self.number);
            let release = format!("SEM.RELEASE jobs {} TOKEN {token}", self.name());
            assert_eq!(number(&mut self.conn, &release), i64::from(self.permits));
            assert_eq!(number(&mut self.conn, &release), 0);
        }
        ROUNDS
    }

    fn live(mut self, fate: Fate, keep: &Mutex<Vec<Conn>>) -> usize {
        match fate {
            Fate::Finishes => return self.finish(),
            Fate::Killed => {
                self.start(" SESSION");
                self.work();
                // Dead first, and only then does the server see it.
                self.counter.leave(self.number);
                drop(self.conn);
            }
            Fate::Crashes => {
                self.lease_ms = SHORT_MS;
                self.start("");
                let mut keep = keep.lock().unwrap_or_else(PoisonError::into_inner);
                keep.push(self.conn);
            }
            Fate::GivesUp => {
                self.lease_ms = SHORT_MS;
                self.conn.send(&self.acquire(""));
                thread::sleep(Duration::from_micros(self.below(60_000)));
                drop(self.conn);
            }
        }
        0
    }
}

fn fifty_workers(permits: fn(usize) -> u32) {
    let server = Options::new().start();
    let counter = Counter::default();
    let keep = Mutex::new(Vec::new());
    let rounds: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let worker = Worker {
                    number,
                    conn: server.conn(),
                    counter: &counter,
                    permits: permits(number),
                    lease_ms: LONG_MS,
                    random: number as u64 + 1,
                };
                let keep = &keep;
                scope.spawn(move || worker.live(Fate::of(number), keep))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker fails"))
            .sum()
    });
    let of = |fate| (0..WORKERS).filter(|n| Fate::of(*n) == fate).count();
    assert_eq!(rounds, of(Fate::Finishes) * ROUNDS);
    let peak = *counter.peak.lock().unwrap();
    assert!(peak + 3 > LIMIT, "never busy: this tested nothing");

    // Every permit is back, at the end of the last short lease.
    let mut c = server.conn();
    eventually("every permit is back", || {
        cmd!(c, "SEM.INFO", "jobs").is_nil() && cmd!(c, "DBSIZE") == int(0)
    });
    nobody_waits(&server);
    assert_eq!(self::counter(&server, "sem_permits"), 0);
    assert_eq!(self::counter(&server, "sem_keys"), 0);
    let closed = self::counter(&server, "sem_sessions_closed");
    assert_eq!(closed, of(Fate::Killed) as i64);
    let released = self::counter(&server, "sem_released");
    assert_eq!(released, (of(Fate::Finishes) * ROUNDS) as i64);
    let expired = self::counter(&server, "sem_leases_expired");
    assert!(expired >= of(Fate::Crashes) as i64, "{expired} expired");
    // All of it is there for whoever comes next.
    acquire(&mut c, &format!("jobs next 1000 {LIMIT} PERMITS {LIMIT}"));
    assert!(!server.log().contains("panic"));
}

#[test]
fn fifty_workers_never_are_more_than_seven() {
    fifty_workers(|_| 1);
}

/// The same with one to three permits each: the counter counts permits.
#[test]
fn fifty_workers_never_have_more_than_seven_permits() {
    fifty_workers(|worker| worker as u32 % 3 + 1);
}
