//! Random interleavings of everything that happens to a waited lock, on a real chain, against a
//! model that knows who must hold what and whom each reply is due to.
//!
//! `SLUICE_MODEL_SEED` runs one seed instead, `SLUICE_MODEL_ROUNDS` as many seeds from there on.
//! A failure prints the seed and what was done under it.

use crate::support::*;
use sluice_testbed::Chain;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

const KEYS: [&str; 3] = ["k0", "k1", "k2"];
const CLIENTS: usize = 8;
const STEPS: usize = 220;
const HOUR_MS: i64 = 3_600_000;
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// What the monotonic clock jumps by. Waits are no multiples of it, and real time adds seconds at
/// most, so that it is always clear which waits are over.
const JUMP_MS: i64 = 40_000;
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const WAITS_MS: [i64; 3] = [60_000, 100_000, 590_000];

#[test]
fn random_interleavings_do_what_the_model_says() {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect("a number"))
    };
    let first = number("SLUICE_MODEL_SEED");
    let rounds = number("SLUICE_MODEL_ROUNDS").unwrap_or(if first.is_some() { 1 } else { 4 });
    let first = first.unwrap_or(1);
    for seed in first..first + rounds {
        let chain = chain();
        Run::new(&chain, seed).run();
    }
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Where a key stands.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Free,
    Held {
        grant: usize,
        deadline: i64,
    },
    Kept {
        until: i64,
    },
    /// SET made it a string.
    Foreign,
}

/// One grant, over its whole life. Times are numbers of steps: they alone never go back.
#[derive(Debug)]
struct Grant {
    key: usize,
    owner: String,
    /// `None` until a reply shows it.
    token: Option<i64>,
    /// The highest token seen when it was made.
    above: i64,
    from: usize,
    to: Option<usize>,
}

#[derive(Clone, Debug)]
struct Seat {
    client: usize,
    lease: i64,
    until: i64,
}

struct Place {
    owner: String,
    seats: Vec<Seat>,
}

struct Key {
    state: State,
    queue: VecDeque<Place>,
    /// The server grants by a timer or by cron: it need not have done so yet.
    deferred: bool,
}

/// A reply that a client is due.
#[derive(Clone, Debug, PartialEq)]
enum Due {
    Grant(usize),
    Nil,
    Error(&'static str),
}

struct Client {
    conn: Conn,
    id: i64,
    /// The key it waits for; still set while a reply is due.
    waits: Option<usize>,
    due: Option<Due>,
}

struct Run<'a> {
    chain: &'a Chain,
    control: Conn,
    clients: Vec<Client>,
    keys: Vec<Key>,
    grants: Vec<Grant>,
    tokens: BTreeSet<i64>,
    random: Random,
    seed: u64,
    step: usize,
    jumped_ms: i64,
    owners: usize,
    races: usize,
    trace: Vec<String>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- SLUICE_MODEL_SEED={}", self.seed);
            for line in &self.trace {
                eprintln!("{line}");
            }
        }
    }
}

impl<'a> Run<'a> {
    fn new(chain: &'a Chain, seed: u64) -> Self {
        let connect = |_| {
            let mut conn = chain.primary.conn();
            let id = conn.client_id();
            Client {
                conn,
                id,
                waits: None,
                due: None,
            }
        };
        let free = |_| Key {
            state: State::Free,
            queue: VecDeque::new(),
            deferred: false,
        };
        Run {
            chain,
            control: chain.primary.conn(),
            clients: (0..CLIENTS).map(connect).collect(),
            keys: KEYS.iter().map(free).collect(),
            grants: Vec::new(),
            tokens: BTreeSet::new(),
            random: Random(seed),
            seed,
            step: 0,
            jumped_ms: 0,
            owners: 0,
            races: 0,
            trace: Vec::new(),
        }
    }

    fn run(mut self) {
        while self.step < STEPS {
            self.step += 1;
            self.one_step();
            if self.random.one_in(4) {
                self.settle();
            }
            if self.step.is_multiple_of(20) {
                self.check_all();
            }
        }
        self.check_all();
        self.touch_all();
        self.chain.assert_equal();
        self.drain();
        self.check_all();
        self.chain.assert_equal();
        self.check_history();
        for client in &mut self.clients {
            let stray = client.conn.recv_timeout(Duration::from_millis(1));
            assert_eq!(stray, None, "a reply too many");
            assert_eq!(cmd!(client.conn, "PING"), status("PONG"));
        }
        let log = self.chain.primary.log();
        assert!(!log.contains("panic"), "{log}");
    }

    fn note(&mut self, what: impl Into<String>) {
        let line = format!(
            "{:>4} +{} ms {}",
            self.step,
            self.now_ms() % 1_000_000_000,
            what.into()
        );
        self.trace.push(line);
    }

    fn now_ms(&self) -> i64 {
        self.chain.clock().now_ms()
    }

    fn one_step(&mut self) {
        let k = self.random.below(KEYS.len());
        match self.random.below(100) {
            0..=9 => self.acquire(k, false),
            10..=39 => self.acquire(k, true),
            40..=44 => self.renew(k),
            45..=58 => self.release(k),
            59..=60 => self.force_release(k),
            61..=64 => self.leave(k),
            65..=68 => self.unblock(k),
            69..=72 => self.delete(k),
            73 => self.flush(),
            74..=75 => self.overwrite(k),
            76..=78 => self.acquire_in_transaction(k),
            79..=81 => self.delete_and_acquire(k),
            82..=91 => self.let_time_pass(),
            92 => self.step_clock(HOUR_MS),
            93 => self.step_clock(-HOUR_MS),
            94..=96 => self.jump(),
            97 => self.leave_as_it_is_granted(k),
            _ => self.check(k),
        }
    }

    // --- what the model knows ---

    fn high(&self) -> i64 {
        self.tokens.last().copied().unwrap_or(0)
    }

    fn holder(&self, k: usize) -> Option<&str> {
        match self.keys[k].state {
            State::Held { grant, .. } => Some(&self.grants[grant].owner),
            _ => None,
        }
    }

    /// Grants a free key to the head of its queue. `at_once`: in the command that is running.
    fn hand_over(&mut self, k: usize, at_once: bool) {
        if self.keys[k].state != State::Free {
            return;
        }
        let Some(place) = self.keys[k].queue.pop_front() else {
            return;
        };
        let lease = place.seats.iter().map(|seat| seat.lease).max();
        let grant = self.grant(k, &place.owner, lease.expect("a place has seats"));
        let to: Vec<usize> = place.seats.iter().map(|seat| seat.client).collect();
        self.note(format!("{} is due to {} at {to:?}", KEYS[k], place.owner));
        for client in to {
            self.clients[client].due = Some(Due::Grant(grant));
        }
        self.keys[k].deferred = !at_once;
    }

    fn grant(&mut self, k: usize, owner: &str, lease: i64) -> usize {
        self.grants.push(Grant {
            key: k,
            owner: owner.to_string(),
            token: None,
            above: self.high(),
            from: self.step,
            to: None,
        });
        let grant = self.grants.len() - 1;
        let deadline = self.now_ms() + lease;
        self.keys[k].state = State::Held { grant, deadline };
        grant
    }

    /// Whatever held the key is over.
    fn free(&mut self, k: usize) {
        if let State::Held { grant, .. } = self.keys[k].state {
            self.grants[grant].to = Some(self.step);
        }
        self.keys[k].state = State::Free;
    }

    fn saw_token(&mut self, grant: usize, reply: &Reply) {
        let token = match reply {
            Reply::Int(token) => *token,
            other => panic!("{other:?} instead of a token for {:?}", self.grants[grant]),
        };
        let known = &mut self.grants[grant];
        match known.token {
            Some(known) => assert_eq!(token, known, "two tokens for one grant"),
            None => {
                known.token = Some(token);
                let above = known.above;
                assert!(token > above, "token {token} is not above {above}");
                assert!(self.tokens.insert(token), "token {token} came twice");
            }
        }
    }

    /// Waits whose time is up leave their queues.
    fn end_waits(&mut self) {
        for k in 0..KEYS.len() {
            let jumped = self.jumped_ms;
            let ended = |seat: &Seat| seat.until <= jumped;
            self.take_seats(k, ended, Due::Nil);
        }
    }

    fn take_seats(&mut self, k: usize, which: impl Fn(&Seat) -> bool, due: Due) {
        for place in &mut self.keys[k].queue {
            place.seats.retain(|seat| {
                if which(seat) {
                    self.clients[seat.client].due = Some(due.clone());
                }
                !which(seat)
            });
        }
        self.keys[k].queue.retain(|place| !place.seats.is_empty());
    }

    /// Leases that are over now.
    fn end_leases(&mut self) {
        let now = self.now_ms();
        for k in 0..KEYS.len() {
            let over = match self.keys[k].state {
                State::Held { deadline, .. } => now > deadline,
                State::Kept { until } => now > until,
                _ => false,
            };
            if over {
                self.free(k);
                self.hand_over(k, false);
            }
        }
    }

    // --- replies ---

    /// Receives every reply that is due.
    fn settle(&mut self) {
        for i in 0..self.clients.len() {
            let Some(due) = self.clients[i].due.take() else {
                continue;
            };
            let k = self.clients[i].waits.take().expect("it waits");
            let Ok(reply) = self.clients[i].conn.try_recv(REPLY_TIMEOUT) else {
                let server = cmd!(self.control, "LOCK.INFO", KEYS[k]);
                panic!("client {i} is not told {due:?} on {}: {server:?}", KEYS[k]);
            };
            match due {
                Due::Grant(grant) => self.saw_token(grant, &reply),
                Due::Nil => assert_eq!(reply, nil()),
                Due::Error(text) => assert_eq!(reply, err(text)),
            }
        }
        for key in &mut self.keys {
            key.deferred = false;
        }
    }

    fn settle_if_deferred(&mut self, k: usize) {
        if self.keys[k].deferred {
            self.settle();
        }
    }

    fn ask(&mut self, line: &str) -> Reply {
        self.note(line);
        self.control.cmd(&words(line))
    }

    fn ask_all(&mut self, lines: &[String]) -> Vec<Reply> {
        self.note(lines.join(" | "));
        let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
        self.control.pipeline(&commands)
    }

    // --- the steps ---

    fn new_owner(&mut self) -> String {
        self.owners += 1;
        format!("o{}", self.owners)
    }

    /// Mostly a new one; now and then the holder, one that waits, or one that held it once.
    fn some_owner(&mut self, k: usize) -> String {
        match self.random.below(10) {
            0 => match self.holder(k).map(str::to_string) {
                Some(owner) => owner,
                None => self.new_owner(),
            },
            1..=2 if !self.keys[k].queue.is_empty() => {
                let at = self.random.below(self.keys[k].queue.len());
                self.keys[k].queue[at].owner.clone()
            }
            3 if !self.grants.is_empty() => {
                let at = self.random.below(self.grants.len());
                self.grants[at].owner.clone()
            }
            _ => self.new_owner(),
        }
    }

    fn some_lease(&mut self) -> i64 {
        match self.random.below(8) {
            0 => HOUR_MS + 500_000,
            1 => 1,
            _ => 500 + self.random.below(3000) as i64,
        }
    }

    fn acquire(&mut self, k: usize, block: bool) {
        let idle: Vec<usize> = (0..CLIENTS)
            .filter(|&i| self.clients[i].waits.is_none())
            .collect();
        if idle.is_empty() {
            return self.settle();
        }
        let client = *self.random.pick(&idle);
        let (owner, lease) = (self.some_owner(k), self.some_lease());
        let wait = *self.random.pick(&WAITS_MS);
        let mut line = format!("LOCK.ACQUIRE {} {owner} {lease}", KEYS[k]);
        if block {
            line += &format!(" BLOCK {wait}");
        }
        self.note(format!("[{client}] {line}"));
        self.clients[client].conn.send(&words(&line));
        self.expect_acquire(k, client, &owner, lease, block.then_some(wait));
    }

    /// What the acquire that was just sent gets: a reply, which is received, or a place.
    fn expect_acquire(
        &mut self,
        k: usize,
        client: usize,
        owner: &str,
        lease: i64,
        wait: Option<i64>,
    ) {
        // The command serves the queue first.
        self.keys[k].deferred = false;
        let now = self.now_ms();
        match self.keys[k].state.clone() {
            State::Foreign => {
                assert_eq!(self.clients[client].conn.recv(), err(WRONG_TYPE));
            }
            State::Free => {
                assert!(self.keys[k].queue.is_empty(), "the model would have served");
                let grant = self.grant(k, owner, lease);
                let reply = self.clients[client].conn.recv();
                self.saw_token(grant, &reply);
            }
            State::Held { grant, deadline } if self.grants[grant].owner == owner => {
                let deadline = deadline.max(now + lease);
                self.keys[k].state = State::Held { grant, deadline };
                let reply = self.clients[client].conn.recv();
                self.saw_token(grant, &reply);
            }
            _ => match wait {
                None => assert_eq!(self.clients[client].conn.recv(), nil()),
                Some(wait) => {
                    let seat = Seat {
                        client,
                        lease,
                        until: self.jumped_ms + wait,
                    };
                    self.clients[client].waits = Some(k);
                    let queue = &mut self.keys[k].queue;
                    match queue.iter_mut().find(|place| place.owner == owner) {
                        Some(place) => place.seats.push(seat),
                        None => queue.push_back(Place {
                            owner: owner.to_string(),
                            seats: vec![seat],
                        }),
                    }
                    self.wait_for_waiters();
                }
            },
        }
    }

    /// Commands of other connections must not overtake the one that was just sent.
    fn wait_for_waiters(&mut self) {
        let expected = self.waiters();
        let server = &self.chain.primary;
        eventually("the client waits", || {
            counter(server, "waiters") == expected as i64
        });
    }

    /// Those in queues; grants on their way to their clients do not count.
    fn waiters(&self) -> usize {
        let places = self.keys.iter().flat_map(|key| &key.queue);
        places.map(|place| place.seats.len()).sum()
    }

    fn renew(&mut self, k: usize) {
        let owner = match self.random.below(4) {
            0 => self.some_owner(k),
            _ => self.holder(k).unwrap_or("nobody").to_string(),
        };
        self.settle_if_deferred(k);
        let lease = self.some_lease();
        let reply = self.ask(&format!("LOCK.RENEW {} {owner} {lease}", KEYS[k]));
        let now = self.now_ms();
        match self.keys[k].state.clone() {
            State::Foreign => assert_eq!(reply, err(WRONG_TYPE)),
            State::Held { grant, deadline } if self.grants[grant].owner == owner => {
                let deadline = deadline.max(now + lease);
                self.keys[k].state = State::Held { grant, deadline };
                assert_eq!(reply, int(deadline - now));
            }
            _ => assert_eq!(reply, int(0)),
        }
    }

    fn release(&mut self, k: usize) {
        let owner = match self.random.below(6) {
            0 => self.some_owner(k),
            _ => self.holder(k).unwrap_or("nobody").to_string(),
        };
        self.settle_if_deferred(k);
        let mut line = format!("LOCK.RELEASE {} {owner}", KEYS[k]);
        let keep = (self.random.one_in(6)).then(|| self.some_lease());
        if let Some(keep) = keep {
            line += &format!(" KEEP {keep}");
        }
        if self.random.one_in(5) {
            self.settle();
            if let State::Held { grant, .. } = self.keys[k].state {
                let token = self.grants[grant].token.expect("settled");
                line += &format!(" TOKEN {token}");
            }
        }
        let reply = self.ask(&line);
        match self.keys[k].state.clone() {
            State::Foreign => assert_eq!(reply, err(WRONG_TYPE)),
            State::Held { grant, .. } if self.grants[grant].owner == owner => {
                assert_eq!(reply, int(1));
                self.free(k);
                match keep {
                    Some(keep) => {
                        let until = self.now_ms() + keep;
                        self.keys[k].state = State::Kept { until };
                    }
                    None => self.hand_over(k, true),
                }
            }
            _ => assert_eq!(reply, int(0)),
        }
    }

    fn force_release(&mut self, k: usize) {
        self.settle_if_deferred(k);
        let reply = self.ask(&format!("LOCK.FORCERELEASE {}", KEYS[k]));
        match self.keys[k].state {
            State::Foreign => assert_eq!(reply, err(WRONG_TYPE)),
            State::Free => assert_eq!(reply, int(0)),
            _ => {
                assert_eq!(reply, int(1));
                self.free(k);
                self.hand_over(k, true);
            }
        }
    }

    /// A client that waits for the key, after everything due is received.
    fn some_waiter(&mut self, k: usize) -> Option<usize> {
        self.settle();
        let waiters: Vec<usize> = (0..CLIENTS)
            .filter(|&i| self.clients[i].waits == Some(k))
            .collect();
        (!waiters.is_empty()).then(|| *self.random.pick(&waiters))
    }

    /// A waiter disconnects or is killed.
    fn leave(&mut self, k: usize) {
        let Some(client) = self.some_waiter(k) else {
            return;
        };
        self.forget_seat(k, client);
        if self.random.one_in(2) {
            let id = self.clients[client].id;
            let reply = self.ask(&format!("CLIENT KILL ID {id}"));
            assert_eq!(reply, int(1));
        } else {
            self.note(format!("[{client}] disconnects"));
        }
        self.reconnect(client);
        self.wait_for_waiters();
    }

    fn forget_seat(&mut self, k: usize, client: usize) {
        for place in &mut self.keys[k].queue {
            place.seats.retain(|seat| seat.client != client);
        }
        self.keys[k].queue.retain(|place| !place.seats.is_empty());
    }

    fn reconnect(&mut self, client: usize) {
        let mut conn = self.chain.primary.conn();
        let id = conn.client_id();
        self.clients[client] = Client {
            conn,
            id,
            waits: None,
            due: None,
        };
    }

    /// CLIENT UNBLOCK in both modes, twice in a row, before a release that would have granted it.
    fn unblock(&mut self, k: usize) {
        let Some(client) = self.some_waiter(k) else {
            return;
        };
        let id = self.clients[client].id;
        let (mode, due) = match self.random.below(3) {
            0 => ("", Due::Nil),
            1 => (" TIMEOUT", Due::Nil),
            _ => (" ERROR", Due::Error(UNBLOCKED)),
        };
        let unblock = format!("CLIENT UNBLOCK {id}{mode}");
        let mut lines = vec![unblock.clone()];
        let mut expected = vec![int(1)];
        self.take_seats(k, |seat| seat.client == client, due);
        let holder = self.holder(k).map(str::to_string);
        match (self.random.below(3), holder) {
            (0, Some(holder)) => {
                lines.push(format!("LOCK.RELEASE {} {holder}", KEYS[k]));
                expected.push(int(1));
                self.free(k);
                self.hand_over(k, true);
            }
            (1, _) => {
                lines.push(unblock);
                expected.push(int(0));
            }
            _ => {}
        }
        assert_eq!(self.ask_all(&lines), expected);
    }

    fn exists(&self, k: usize) -> bool {
        self.keys[k].state != State::Free
    }

    fn delete(&mut self, k: usize) {
        self.settle();
        let how = *self.random.pick(&["DEL", "UNLINK"]);
        let existed = self.exists(k);
        let reply = self.ask(&format!("{how} {}", KEYS[k]));
        assert_eq!(reply, int(existed.into()));
        self.free(k);
        self.hand_over(k, false);
    }

    fn flush(&mut self) {
        self.settle();
        let how = *self.random.pick(&["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB"]);
        assert_eq!(self.ask(how), ok());
        for k in 0..KEYS.len() {
            self.free(k);
            self.hand_over(k, false);
        }
    }

    /// SET; at once deleted again in every second case, and then nobody is to notice.
    fn overwrite(&mut self, k: usize) {
        self.settle();
        let mut lines = vec![format!("SET {} v", KEYS[k])];
        let stays = self.random.one_in(2);
        if !stays {
            lines.push(format!("DEL {}", KEYS[k]));
        }
        let replies = self.ask_all(&lines);
        assert_eq!(replies[0], ok());
        self.free(k);
        if stays {
            self.keys[k].state = State::Foreign;
            self.take_seats(k, |_| true, Due::Error(WRONG_TYPE));
            self.keys[k].deferred = true;
        } else {
            assert_eq!(replies[1], int(1));
            self.hand_over(k, false);
        }
    }

    /// In MULTI or a script nobody waits, and nobody barges in.
    fn acquire_in_transaction(&mut self, k: usize) {
        self.settle();
        let (owner, lease) = (self.new_owner(), self.some_lease());
        let acquire = format!("LOCK.ACQUIRE {} {owner} {lease} BLOCK 60000", KEYS[k]);
        let first = match (self.random.below(4), self.holder(k)) {
            (0, _) => Some(format!("DEL {}", KEYS[k])),
            (1, Some(holder)) => Some(format!("LOCK.RELEASE {} {holder}", KEYS[k])),
            _ => None,
        };
        let is_release = first.as_ref().is_some_and(|line| line.contains("RELEASE"));
        let was_waited = !self.keys[k].queue.is_empty();
        self.note(format!("MULTI {first:?} {acquire}"));
        let commands: Vec<_> = first.iter().chain([&acquire]).map(|l| words(l)).collect();
        let reply = if self.random.one_in(2) {
            let replies = self.control.exec_multi(&commands);
            replies.last().expect("an acquire").clone()
        } else {
            let script = "local r for i = 1, #ARGV do local w = {} \
                for word in string.gmatch(ARGV[i], '%S+') do w[#w + 1] = word end \
                r = redis.pcall(unpack(w)) end return r";
            let lines: Vec<_> = commands.iter().map(|words| words.join(&b' ')).collect();
            self.control.eval(script, &[KEYS[k]], &lines)
        };
        if first.is_some() {
            self.free(k);
        }
        match self.keys[k].state {
            State::Foreign => {
                let text = reply.as_text();
                assert!(text.starts_with("WRONGTYPE"), "{text}");
            }
            State::Free if !was_waited => {
                let grant = self.grant(k, &owner, lease);
                self.saw_token(grant, &reply);
            }
            _ => assert_eq!(reply, nil()),
        }
        self.hand_over(k, is_release);
    }

    /// From the same pipeline, in the window before the queue is served.
    fn delete_and_acquire(&mut self, k: usize) {
        self.settle();
        let idle = (0..CLIENTS).find(|&i| self.clients[i].waits.is_none());
        let Some(client) = idle else { return };
        let (owner, lease) = (self.new_owner(), self.some_lease());
        let existed = self.exists(k);
        let delete = format!("DEL {}", KEYS[k]);
        let acquire = format!("LOCK.ACQUIRE {} {owner} {lease} BLOCK 100000", KEYS[k]);
        self.note(format!("[{client}] {delete} | {acquire}"));
        let wire = [resp(&words(&delete)), resp(&words(&acquire))].concat();
        self.clients[client].conn.send_raw(&wire);
        assert_eq!(self.clients[client].conn.recv(), int(existed.into()));
        self.free(k);
        self.hand_over(k, true);
        self.expect_acquire(k, client, &owner, lease, Some(100_000));
    }

    fn let_time_pass(&mut self) {
        let ms = 1 + self.random.below(1500) as i64;
        self.step_clock(ms);
    }

    fn step_clock(&mut self, ms: i64) {
        self.settle();
        if ms < 0 {
            // What is over but not yet deleted would come back.
            self.touch_all();
        }
        let deadlines = self.keys.iter().filter_map(|key| match key.state {
            State::Held { deadline, .. } => Some(deadline),
            State::Kept { until } => Some(until),
            _ => None,
        });
        // Not onto a deadline: active expiry of Redis 8 deletes a key one millisecond early.
        let mut to = self.now_ms() + ms;
        let deadlines: Vec<i64> = deadlines.collect();
        while deadlines.contains(&to) {
            to += 1;
        }
        let ms = to - self.now_ms();
        self.note(format!("clock {ms:+} ms"));
        self.chain.clock().advance_ms(ms);
        self.end_leases();
    }

    fn touch_all(&mut self) {
        for key in KEYS {
            cmd!(self.control, "EXISTS", key);
        }
    }

    fn jump(&mut self) {
        self.settle();
        self.note("monotonic clock jumps");
        self.jumped_ms += JUMP_MS;
        self.chain.clock().advance_mono_ms(JUMP_MS);
        self.end_waits();
    }

    /// The head of the queue disconnects at the moment of its grant. Either the server gave it the
    /// lock before it noticed, or the next waiter gets it; what it is, the server knows.
    fn leave_as_it_is_granted(&mut self, k: usize) {
        self.settle();
        if self.races == 2 || self.keys[k].queue.is_empty() {
            return;
        }
        let Some(holder) = self.holder(k).map(str::to_string) else {
            return;
        };
        if self.keys[k].queue[0].seats.len() != 1 {
            return;
        }
        self.races += 1;
        let client = self.keys[k].queue[0].seats[0].client;
        let head = self.keys[k].queue[0].owner.clone();
        let id = self.clients[client].id;
        self.note(format!("[{client}] disconnects as it is granted"));
        let release = words(&format!("LOCK.RELEASE {} {holder}", KEYS[k]));
        if self.random.one_in(2) {
            self.control.send(&release);
            self.reconnect(client);
        } else {
            self.reconnect(client);
            self.control.send(&release);
        }
        assert_eq!(self.control.recv(), int(1));
        let control = &mut self.control;
        eventually("the client has gone", || {
            cmd!(control, "CLIENT", "LIST", "ID", id)
                .as_text()
                .is_empty()
        });
        // Longer than cron takes, should the grant be taken back.
        std::thread::sleep(Duration::from_millis(150));
        self.free(k);
        self.hand_over(k, true);
        // The client's successor is due nothing.
        self.clients[client].due = None;
        let found = Seen::of(&mut self.control, KEYS[k]);
        if found.as_ref().and_then(|seen| seen.owner.as_deref()) == Some(&head) {
            self.note("it was granted");
            let State::Held { grant, .. } = self.keys[k].state else {
                unreachable!("handed over above");
            };
            let token = found.expect("just looked at").token;
            self.saw_token(grant, &int(token));
        } else {
            self.note("it was too late");
            let Some(lost) = self.grants.pop() else {
                unreachable!("made above");
            };
            assert_eq!(lost.owner, head);
            self.keys[k].state = State::Free;
            self.hand_over(k, true);
        }
        self.check(k);
    }

    // --- checks ---

    /// The key is what the model says, for anyone who looks.
    fn check(&mut self, k: usize) {
        self.settle();
        let seen = Seen::of(&mut self.control, KEYS[k]);
        let waiters = self.keys[k].queue.iter().map(|p| p.seats.len() as i64);
        let waiters = waiters.sum::<i64>();
        let now = self.now_ms();
        let expected = match self.keys[k].state {
            State::Foreign => return,
            State::Free => {
                assert_eq!(waiters, 0, "somebody waits for a free lock");
                None
            }
            State::Kept { until } => Some((None, until - now)),
            State::Held { grant, deadline } => {
                Some((Some(self.grants[grant].owner.clone()), deadline - now))
            }
        };
        let found = seen.as_ref().map(|seen| (seen.owner.clone(), seen.ttl));
        assert_eq!(found, expected, "{}", KEYS[k]);
        if let Some(seen) = seen {
            assert_eq!(seen.waiters, waiters, "waiters for {}", KEYS[k]);
        }
    }

    fn check_all(&mut self) {
        for k in 0..KEYS.len() {
            self.check(k);
        }
        let server = &self.chain.primary;
        let waiters = self.waiters() as i64;
        assert_eq!(counter(server, "waiters"), waiters);
        assert_eq!(
            server.info("clients")["blocked_clients"],
            waiters.to_string()
        );
    }

    /// Lets everybody have it, one after the other.
    fn drain(&mut self) {
        for k in 0..KEYS.len() {
            while !self.keys[k].queue.is_empty() {
                self.force_release(k);
                self.settle();
            }
        }
    }

    /// By the tokens alone: on each key one holder after the other, in the order of the model.
    fn check_history(&self) {
        for k in 0..KEYS.len() {
            let mut by_token: Vec<&Grant> = self.grants.iter().filter(|g| g.key == k).collect();
            by_token.sort_by_key(|grant| grant.token.expect("every grant was seen"));
            for pair in by_token.windows(2) {
                let end = pair[0].to.expect("it ended before the next began");
                assert!(
                    pair[0].from <= end && end <= pair[1].from,
                    "two holders: {pair:?}"
                );
            }
        }
        assert!(self.grants.len() > STEPS / 10, "hardly any grants");
    }
}

/// What LOCK.INFO shows.
struct Seen {
    owner: Option<String>,
    token: i64,
    ttl: i64,
    waiters: i64,
}

impl Seen {
    fn of(conn: &mut Conn, key: &str) -> Option<Seen> {
        let info = cmd!(conn, "LOCK.INFO", key);
        if info.is_nil() || info.is_error() {
            return None;
        }
        let holders = info.field("holders").items();
        Some(Seen {
            owner: holders.first().map(|h| h.field("owner").as_text()),
            token: info.field("token").as_int(),
            ttl: info.field("ttl_ms").as_int(),
            waiters: info.field("waiters").as_int(),
        })
    }
}
