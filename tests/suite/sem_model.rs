//! Random interleavings of everything that happens to semaphores with several clients, on a real
//! chain, against a slow model that is nothing but lists.
//!
//! `SLUICE_MODEL_SEED` runs one seed instead, `SLUICE_MODEL_ROUNDS` as many seeds from there on.
//! A failure prints the seed and what was done under it.

use std::collections::VecDeque;

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::{RUN, UNBLOCKED};
use sluice_testbed::Chain;

pub(crate) const KEYS: usize = 2;
const CLIENTS: usize = 7;
const HOLDERS: usize = 6;
const STEPS: usize = 250;
const CROWD: usize = 30;

/// What the monotonic clock jumps by. Waits are no multiples of it, and real time adds seconds at
/// most, so that it is always clear which waits are over.
const JUMP_MS: i64 = 40_000;
const WAITS_MS: [i64; 3] = [60_000, 100_000, 590_000];

#[test]
fn random_interleavings_do_what_the_model_says() {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect("a number"))
    };
    let first = number("SLUICE_MODEL_SEED");
    let rounds = number("SLUICE_MODEL_ROUNDS").unwrap_or(if first.is_some() { 1 } else { 6 });
    let first = first.unwrap_or(1);
    for seed in first..first + rounds {
        let chain = chain();
        Run::new(&chain, seed).run();
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) holder: usize,
    pub(crate) permits: i64,
    pub(crate) deadline: i64,
    /// `None` until a reply or SEM.INFO shows it.
    pub(crate) token: Option<i64>,
    /// The highest token seen before it.
    pub(crate) above: i64,
    pub(crate) session: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) client: usize,
    pub(crate) lease: i64,
    pub(crate) limit: i64,
    pub(crate) until: i64,
    pub(crate) session: bool,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) holder: usize,
    pub(crate) permits: i64,
    pub(crate) seats: Vec<Seat>,
}

#[derive(Default, Debug)]
pub(crate) struct Key {
    /// In the order of the grants.
    pub(crate) holds: Vec<Hold>,
    pub(crate) queue: VecDeque<Place>,
}

/// A reply that a waiting client is due.
#[derive(Debug)]
pub(crate) enum Due {
    Token { key: usize, holder: usize },
    Is(Reply),
}

pub(crate) struct Client {
    pub(crate) conn: Conn,
    pub(crate) id: i64,
    pub(crate) waits: bool,
}

pub(crate) struct Run<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) random: u64,
    pub(crate) seed: u64,
    pub(crate) done: Vec<String>,
    pub(crate) control: Conn,
    pub(crate) clients: Vec<Client>,
    pub(crate) keys: Vec<Key>,
    pub(crate) mono: i64,
    /// So many others hold one permit each of the last key, which crosses the size from which on
    /// holders are kept in trees.
    pub(crate) crowd: usize,
    pub(crate) highest: i64,
    pub(crate) due: Vec<(usize, Due)>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SLUICE_MODEL_SEED={}", self.seed);
            for (n, line) in self.done.iter().enumerate() {
                eprintln!("{n:4} {line}");
            }
            eprintln!("the model: {:#?}", self.keys);
        }
    }
}

/// What SEM.ACQUIRE asks for.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) client: usize,
    pub(crate) key: usize,
    pub(crate) holder: usize,
    pub(crate) lease: i64,
    pub(crate) limit: i64,
    pub(crate) permits: i64,
    pub(crate) wait: Option<i64>,
    pub(crate) session: bool,
}

impl Run<'_> {
    fn new(chain: &Chain, seed: u64) -> Run<'_> {
        let clients = (0..CLIENTS).map(|_| client_of(&chain.primary)).collect();
        Run {
            chain,
            random: seed,
            seed,
            done: Vec::new(),
            control: chain.primary.conn(),
            clients,
            keys: (0..KEYS).map(|_| Key::default()).collect(),
            mono: 0,
            crowd: if seed.is_multiple_of(2) { 0 } else { CROWD },
            highest: 0,
            due: Vec::new(),
        }
    }

    fn run(mut self) {
        self.gather();
        self.check();
        for step in 0..STEPS {
            self.step();
            self.check();
            if step % 50 == 49 {
                self.chain.assert_equal();
            }
        }
        // Everybody leaves, and all ends in time.
        for client in 0..CLIENTS {
            self.vanish(client);
            self.settle_all();
            self.check();
        }
        self.chain.clock().advance_ms(86_400_001);
        self.settle_all();
        self.check();
        let mut control = self.chain.primary.conn();
        eventually("all keys are gone", || cmd!(control, "DBSIZE") == int(0));
        eventually("no permit is counted", || {
            counter(&self.chain.primary, "sem_permits") == 0
        });
        self.chain.assert_equal();
    }

    // --- what may happen ---

    fn gather(&mut self) {
        for n in 0..self.crowd {
            self.send(Ask {
                client: 0,
                key: KEYS - 1,
                holder: 100 + n,
                lease: 80_000_000,
                limit: 1000,
                permits: 1,
                wait: None,
                session: false,
            });
        }
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn step(&mut self) {
        match self.below(100) {
            0..50 => self.acquire(),
            50..70 => self.release(),
            70..78 => self.renew(),
            78..87 => {
                let ms = self.pick(&[1, 100, 700, 2000]);
                self.note(format!("+{ms} ms"));
                self.chain.clock().advance_ms(ms);
            }
            87..90 => {
                let client = self.below(CLIENTS);
                self.vanish(client);
            }
            90..93 => self.unblock(),
            93..96 => self.release_and_kill(),
            96..98 => {
                self.note("the monotonic clock jumps".to_string());
                self.chain.clock().advance_mono_ms(JUMP_MS);
                self.mono += JUMP_MS;
                let mono = self.mono;
                self.leave_where(|seat| seat.until <= mono, nil());
            }
            98 => {
                // Not the key of the crowd.
                self.command_of_control("DEL k0");
                self.keys[0].holds.clear();
            }
            _ if self.crowd > 0 => {}
            _ => {
                self.command_of_control("FLUSHALL");
                for key in &mut self.keys {
                    key.holds.clear();
                }
            }
        }
        self.settle_all();
    }

    fn acquire(&mut self) {
        let Some(client) = self.idle() else { return };
        let limit = self.pick(&[1, 2, 3, 5, 5, 5, 8]);
        let key = self.below(KEYS);
        let others = if key == KEYS - 1 { self.crowd } else { 0 };
        let ask = Ask {
            client,
            key,
            holder: self.below(HOLDERS),
            lease: self.pick(&[50, 500, 1500, 60_000]),
            limit: limit + others as i64,
            permits: self.pick(&[1, 1, 1, 2, 2, 3, 5]).min(limit + 1),
            wait: match self.below(4) {
                0 => None,
                n => Some(WAITS_MS[n - 1]),
            },
            session: self.below(5) == 0,
        };
        self.send(ask);
    }

    fn send(&mut self, ask: Ask) {
        let client = ask.client;
        let mut line = format!(
            "SEM.ACQUIRE k{} h{} {} {} PERMITS {}",
            ask.key, ask.holder, ask.lease, ask.limit, ask.permits
        );
        if let Some(wait) = ask.wait {
            line += &format!(" BLOCK {wait}");
        }
        if ask.session {
            line += " SESSION";
        }
        let expected = self.decide(ask);
        self.note(format!("client {client}: {line} -> {expected:?}"));
        let conn = &mut self.clients[client].conn;
        conn.send(&words(&line));
        match expected {
            Some(due) => self.due.push((client, due)),
            None => self.clients[client].waits = true,
        }
    }

    fn release(&mut self) {
        let (key, holder) = (self.below(KEYS), self.below(HOLDERS));
        let hold = self.hold(key, holder).cloned();
        let mut line = format!("SEM.RELEASE k{key} h{holder}");
        let mut expected = hold.as_ref().map_or(0, |hold| hold.permits);
        match (self.below(4), hold.and_then(|hold| hold.token)) {
            (0, Some(token)) => line += &format!(" TOKEN {token}"),
            (1, Some(token)) => {
                line += &format!(" TOKEN {}", token - 1);
                expected = 0;
            }
            _ => {}
        }
        let reply = self.run_somehow(&line);
        assert_eq!(reply, int(expected), "{line}");
        if expected > 0 {
            self.keys[key].holds.retain(|hold| hold.holder != holder);
        }
    }

    fn renew(&mut self) {
        let (key, holder) = (self.below(KEYS), self.below(HOLDERS));
        let lease = self.pick(&[10, 1000, 3000]);
        let now = self.now();
        let line = format!("SEM.RENEW k{key} h{holder} {lease}");
        let reply = self.run_somehow(&line);
        let hold = self.keys[key].holds.iter_mut();
        let left = hold
            .filter(|hold| hold.holder == holder)
            .map(|hold| {
                hold.deadline = hold.deadline.max(now + lease);
                hold.deadline - now
            })
            .sum();
        assert_eq!(reply, int(left), "{line}");
    }

    /// A grant to a client that dies in the same unit goes on.
    fn release_and_kill(&mut self) {
        let key = self.below(KEYS);
        let Some(hold) = self.keys[key].holds.first().cloned() else {
            return;
        };
        let Some(place) = self.keys[key].queue.front() else {
            return;
        };
        let client = place.seats[0].client;
        let release = format!("SEM.RELEASE k{key} h{}", hold.holder);
        self.note(format!("{release}, and client {client} is killed"));
        let kill = words(&format!("CLIENT KILL ID {}", self.clients[client].id));
        let replies = self.control.exec_multi(&[words(&release), kill]);
        assert_eq!(replies, [int(hold.permits), int(1)]);
        self.keys[key].holds.remove(0);
        let granted = self.settle(key);
        self.replace(client);
        // Those places whose only client it was.
        for (holder, clients) in granted {
            if clients.iter().all(|other| *other == client) {
                self.keys[key].holds.retain(|hold| hold.holder != holder);
            }
        }
    }

    fn vanish(&mut self, client: usize) {
        self.note(format!("client {client} vanishes"));
        self.replace(client);
    }

    fn unblock(&mut self) {
        let client = self.below(CLIENTS);
        let (how, answer) = self.pick(&[(" ERROR", true), (" TIMEOUT", false), ("", false)]);
        let line = format!("CLIENT UNBLOCK {}{how}", self.clients[client].id);
        self.note(format!("client {client}: {line}"));
        let waits = self.clients[client].waits;
        let reply = run(&mut self.control, &line);
        assert_eq!(reply, int(waits.into()), "{line}");
        let answer = if answer { err(UNBLOCKED) } else { nil() };
        self.leave_where(|seat| seat.client == client, answer);
    }

    // --- doing things ---

    pub(crate) fn note(&mut self, line: String) {
        self.done.push(line);
    }

    fn idle(&mut self) -> Option<usize> {
        let from = self.below(CLIENTS);
        (from..from + CLIENTS)
            .map(|n| n % CLIENTS)
            .find(|n| !self.clients[*n].waits)
    }

    fn command_of_control(&mut self, line: &str) {
        self.note(line.to_string());
        let reply = run(&mut self.control, line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }

    /// Plainly, in a transaction or in a script.
    fn run_somehow(&mut self, line: &str) -> Reply {
        let way = self.below(3);
        self.note(format!(
            "{line} {}",
            ["plainly", "in MULTI", "in a script"][way]
        ));
        let command = words(line);
        let control = &mut self.control;
        match way {
            0 => control.cmd(&command),
            1 => control.exec_multi(&[command]).remove(0),
            _ => {
                let mut rest = command.clone();
                let key = String::from_utf8(rest.remove(1)).expect("a name");
                control.eval(RUN, &[&key], &rest)
            }
        }
    }
}

pub(crate) fn client_of(server: &Server) -> Client {
    let mut conn = server.conn();
    let id = conn.client_id();
    Client {
        conn,
        id,
        waits: false,
    }
}
