//! The limiters on real servers beside the pure core in this process, over the same random calls.

use std::collections::BTreeMap;

use sluice_core::limiter::{Algorithm, Change, Policy, Verdict};
use sluice_core::{Error, Limiter, Micros, State};

use crate::limiter_support::*;
use crate::support::*;

/// Ordinary rates, extreme ones, and pairs that differ in one number; of each algorithm apart.
const POLICIES: [&[&str]; 4] = [
    &[
        "GCRA 5 10 1000",
        "GCRA 5 10 60000",
        "GCRA 9 10 1000",
        "TOKENBUCKET 5 10 1000",
        "TOKENBUCKET 5 11 1000",
        "LEAKYBUCKET 5 10 1000",
        "LEAKYBUCKET 4 10 1000",
        "GCRA 1 1 1",
        "GCRA 1 1000000000 1",
        "GCRA 3 7 1000",
        "TOKENBUCKET 100 97 60011",
        "TOKENBUCKET 1000000000 1000000000 31536000000",
        "LEAKYBUCKET 1000000000 1000000000 1",
        "GCRA 100 1 31536000000",
        "TOKENBUCKET 7 3000000 1000",
        "LEAKYBUCKET 2 1 3600000",
        "TOKENBUCKET 1 999999937 31536000000",
        "GCRA 64 64 64",
    ],
    &[
        "FIXEDWINDOW 5 1000",
        "FIXEDWINDOW 5 60000",
        "FIXEDWINDOW 9 1000",
        "FIXEDWINDOW 1 1",
        "FIXEDWINDOW 5 1000 ALIGN 250",
        "FIXEDWINDOW 5 1000 ALIGN 5250",
        "FIXEDWINDOW 7 3600000 ALIGN 0",
        "FIXEDWINDOW 1000000000 31536000000 ALIGN 31536000000",
        "FIXEDWINDOW 100 60011",
    ],
    &[
        "SLIDINGWINDOW 5 1000",
        "SLIDINGWINDOW 5 60000",
        "SLIDINGWINDOW 9 1000",
        "SLIDINGWINDOW 1 1",
        "SLIDINGWINDOW 7 3600000",
        "SLIDINGWINDOW 1000000000 31536000000",
        "SLIDINGWINDOW 100 60011",
    ],
    &[
        "SLIDINGLOG 5 1000",
        "SLIDINGLOG 5 60000",
        "SLIDINGLOG 9 1000",
        "SLIDINGLOG 1 1",
        "SLIDINGLOG 7 3600000",
        "SLIDINGLOG 100000 31536000000",
        "SLIDINGLOG 100 60011",
    ],
];

/// A key's place here is its algorithm's in [`POLICIES`], mostly.
const KEYS: [&str; 4] = ["a", "b", "{c}", "\u{fffd}"];

const MOST_LOG_ENTRIES: u32 = 100_000;

fn policy_of(line: &str) -> Policy {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let algorithm = Algorithm::named(words[0]).expect("an algorithm");
    let (numbers, rest) = words[1..].split_at(algorithm.parameters().len());
    let policy = algorithm
        .policy(numbers, MOST_LOG_ENTRIES)
        .expect("in range");
    match rest {
        [] => policy,
        [_, offset] => policy.aligned(offset).expect("in range"),
        _ => panic!("{line}"),
    }
}

/// A policy, its text, and a cost.
struct Asked {
    line: &'static str,
    policy: Policy,
    cost: u64,
}

impl Asked {
    fn of(key: usize, random: &mut Random) -> Asked {
        // Now and then another algorithm's than what the key holds.
        let family = match random.below(12) {
            0 => random.below(4) as usize,
            _ => key,
        };
        let line = *random.one_of(POLICIES[family]);
        let policy = policy_of(line);
        let cost = match random.below(4) {
            0 => policy.limit(),
            1 => 1 + random.below(policy.limit()),
            _ => 1,
        };
        Asked { line, policy, cost }
    }

    /// A cost that may be above the limit, and out of what a bucket can owe.
    fn any_cost(self, random: &mut Random) -> Asked {
        let cost = match random.below(10) {
            0 => MAX_TOKENS as u64,
            1 => self.policy.limit() + 1,
            _ => self.cost,
        };
        let cost = cost.min(MAX_TOKENS as u64);
        Asked { cost, ..self }
    }
}

/// A key as the server should have it.
struct Key {
    limiter: Limiter,
    /// The last millisecond in which it exists.
    until_ms: i64,
}

/// The keyspace, with TTLs as the design has them.
#[derive(Default)]
struct Model {
    keys: BTreeMap<&'static str, Key>,
}

type Decided = Result<(Verdict, Change), Error>;

impl Model {
    /// The key, unless its TTL is over, which is noticed by whoever looks.
    fn look(&mut self, key: &'static str, now: Micros) -> Option<&mut Limiter> {
        let now_ms = (now.0 / 1000) as i64;
        if self.keys.get(key).is_some_and(|key| now_ms > key.until_ms) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key).map(|key| &mut key.limiter)
    }

    fn commit(&mut self, key: &'static str, change: Change) {
        let until = match change {
            Change::None { until } => until,
            Change::Changed { until, .. } => {
                self.refresh_ttl(key);
                until
            }
            Change::New(limiter) => {
                // With no TTL yet.
                let until_ms = -1;
                match self.keys.get_mut(key) {
                    Some(key) => key.limiter = limiter,
                    None => drop(self.keys.insert(key, Key { limiter, until_ms })),
                }
                self.refresh_ttl(key);
                None
            }
            Change::Gone => {
                self.keys.remove(key).expect("what goes was there");
                None
            }
        };
        if let Some(until) = until.map(|until| until.0 as i64) {
            let key = self.keys.get_mut(key).expect("a new key denies nothing");
            if key.until_ms < until {
                key.until_ms = until + SLACK_MS;
            }
        }
    }

    fn refresh_ttl(&mut self, key: &'static str) {
        let key = self.keys.get_mut(key).expect("it has just been changed");
        let needed = key.limiter.matters_until().0 as i64;
        if !(needed..=needed + SLACK_MS).contains(&key.until_ms) {
            key.until_ms = needed + SLACK_MS;
        }
    }

    /// A call, a charge or a refund.
    fn run(
        &mut self,
        key: &'static str,
        asked: &Asked,
        now: Micros,
        decide: fn(Option<&mut Limiter>, &Policy, u64, Micros) -> Decided,
    ) -> Reply {
        match decide(self.look(key, now), &asked.policy, asked.cost, now) {
            Ok((verdict, change)) => {
                self.commit(key, change);
                reply_of(&verdict)
            }
            Err(error) => err(&error.to_string()),
        }
    }

    fn peek(&mut self, key: &'static str, asked: &Asked, now: Micros) -> Result<Verdict, Error> {
        let limiter = self.look(key, now).map(|limiter| &*limiter);
        Limiter::peek(limiter, &asked.policy, asked.cost, now)
    }

    fn block(&mut self, key: &'static str, ms: u64, now: Micros) -> Reply {
        let (penalty, change) = Limiter::block(self.look(key, now), ms, now);
        self.commit(key, change);
        int(penalty.left_us.div_ceil(1000) as i64)
    }

    fn reset(&mut self, key: &'static str, now: Micros) -> Reply {
        let was_there = self.look(key, now).is_some();
        self.keys.remove(key);
        int(was_there.into())
    }

    fn all(&mut self, calls: &[(&'static str, Asked)], now: Micros) -> Reply {
        let peeks: Result<Vec<Verdict>, Error> = calls
            .iter()
            .map(|(key, asked)| self.peek(key, asked, now))
            .collect();
        let mut verdicts = match peeks {
            Ok(verdicts) => verdicts,
            Err(error) => return err(&error.to_string()),
        };
        // In µs, as the clock is.
        let mut binding: Option<usize> = None;
        for (i, verdict) in verdicts.iter().enumerate().filter(|(_, v)| !v.allowed) {
            if binding.is_none_or(|longest| verdict.wait_us > verdicts[longest].wait_us) {
                binding = Some(i);
            }
        }
        for (i, (key, asked)) in calls.iter().enumerate() {
            let (policy, stored) = (&asked.policy, self.look(key, now));
            let change = match binding {
                Some(_) => Limiter::refuse(stored, policy, now).expect("as the peek"),
                None => {
                    let decided = Limiter::decide(stored, policy, asked.cost, now);
                    let (verdict, change) = decided.expect("as the peek");
                    assert!(verdict.allowed, "as the peek");
                    verdicts[i] = verdict;
                    change
                }
            };
            self.commit(key, change);
        }
        let head = [
            int(binding.is_none().into()),
            int(binding.map_or(-1, |index| index as i64)),
        ];
        array(head.into_iter().chain(verdicts.iter().map(reply_of)))
    }
}

fn reply_of(verdict: &Verdict) -> Reply {
    five(verdict.reply().map(|integer| integer as i64))
}

/// How far the clock goes before the next call, in µs.
fn gap_us(random: &mut Random) -> i64 {
    let any = random.below(1_000_000) as i64;
    match random.below(20) {
        0..8 => 0,
        8..10 => 1,
        10..13 => any,
        13 => 1000,
        // One interval of 10 per second, and one µs less and more.
        14 => 100_000 - 1 + any % 3,
        // A window's end, or twice that.
        15 => 60_000_000 * (1 + any % 2) - any % 3,
        16 => any * 100,
        17 => any * 40_000,
        18 => -any,
        _ => -any * 3600,
    }
}

/// One random call on the key in this place: its line, and what the model makes of it.
fn step(model: &mut Model, at: usize, random: &mut Random, now: Micros) -> (String, Reply) {
    let key = KEYS[at];
    let asked = Asked::of(at, random);
    match random.below(20) {
        0..9 => {
            let (algorithm, numbers) = asked.line.split_once(' ').expect("numbers");
            let line = format!("RL.{algorithm} {key} {numbers} COST {}", asked.cost);
            (line, model.run(key, &asked, now, Limiter::decide))
        }
        9..12 => {
            let line = format!("RL.PEEK {key} {} COST {}", asked.line, asked.cost);
            let reply = match model.peek(key, &asked, now) {
                Ok(verdict) => reply_of(&verdict),
                Err(error) => err(&error.to_string()),
            };
            (line, reply)
        }
        12..14 => {
            let asked = asked.any_cost(random);
            let line = format!("RL.CHARGE {key} {} COST {}", asked.line, asked.cost);
            (line, model.run(key, &asked, now, Limiter::charge))
        }
        14..16 => {
            let asked = asked.any_cost(random);
            let line = format!("RL.REFUND {key} {} COST {}", asked.line, asked.cost);
            (line, model.run(key, &asked, now, Limiter::refund))
        }
        16 => {
            let most = *random.one_of(&[1, 500, 90_000]);
            let ms = 1 + random.below(most);
            (format!("RL.BLOCK {key} {ms}"), model.block(key, ms, now))
        }
        17 if random.below(3) == 0 => (format!("RL.RESET {key}"), model.reset(key, now)),
        _ => {
            // Two to four keys from here on.
            let count = 2 + random.below(3) as usize;
            let calls: Vec<(&str, Asked)> = (at..at + count)
                .map(|i| i % KEYS.len())
                .map(|i| (KEYS[i], Asked::of(i, random)))
                .collect();
            let names: Vec<_> = calls.iter().map(|(key, _)| *key).collect();
            let policies: Vec<_> = calls
                .iter()
                .map(|(_, asked)| format!("{} COST {}", asked.line, asked.cost))
                .collect();
            let line = format!("RL.ALL {count} {} {}", names.join(" "), policies.join(" "));
            (line, model.all(&calls, now))
        }
    }
}

#[test]
fn the_servers_answer_what_the_core_decides() {
    let chain = chain();
    for server in chain.servers() {
        // A key that is over stays until somebody looks: the model knows when that is.
        cmd!(server.conn(), "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    }
    let mut c = chain.primary.conn();
    // Of each command: replies that say yes, that say no, and errors.
    let mut seen: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for seed in 1..=4 {
        cmd!(c, "FLUSHALL");
        let mut random = Random(seed);
        let mut model = Model::default();
        for n in 0..1500 {
            chain.clock().advance_us(gap_us(&mut random));
            let now = Micros(chain.clock().now_us() as u64);
            let at = random.below(4) as usize;
            let (line, expected) = step(&mut model, at, &mut random, now);
            let reply = c.cmd(&words(&line));
            assert_eq!(
                reply, expected,
                "seed {seed}, call {n} at {}: {line}",
                now.0
            );
            let command = line.split(' ').next().expect("a name").to_string();
            let kind = match &reply {
                Reply::Array(items) => 1 - items[0].as_int() as usize,
                Reply::Error(_) => 2,
                _ => 0,
            };
            seen.entry(command).or_default()[kind] += 1;
            for key in KEYS {
                let ttl = cmd!(c, "PEXPIRETIME", key).as_int();
                model.look(key, now);
                let until_ms = model.keys.get(key).map_or(-2, |key| key.until_ms);
                assert_eq!(
                    ttl, until_ms,
                    "seed {seed}, call {n}: the TTL of {key} after {line}"
                );
            }
        }
        assert_same(&chain);
        // A key that is over still stands there.
        let now_ms = chain.clock().now_ms();
        model.keys.retain(|_, key| now_ms <= key.until_ms);
        for (key, modelled) in &model.keys {
            let payload = dump("sluice-rl", 1, modelled.limiter.to_stored().as_bytes());
            // The digest has that there is a TTL.
            let restored = cmd!(c, "RESTORE", "modelled", 9999, payload, "REPLACE");
            assert_eq!(restored, ok());
            let found = digest_of(&mut c, key);
            assert_eq!(found, digest_of(&mut c, "modelled"), "seed {seed}: {key}");
        }
    }
    for (command, [yes, no, errors]) in &seen {
        assert!(*yes >= 40, "{command}: {yes}");
        match &command[..] {
            "RL.BLOCK" | "RL.RESET" => assert_eq!([*no, *errors], [0, 0], "{command}"),
            _ => assert!(*no >= 20 && *errors >= 10, "{command}: {no}, {errors}"),
        }
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
}
