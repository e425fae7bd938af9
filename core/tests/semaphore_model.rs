//! The semaphore against a plain list of leases, and its bytes.
//!
//! The server here applies the core's decisions as `src/commands/sem_*.rs` do, and feeds two
//! replicas with nothing but effects: one of them gets each twice.

use proptest::prelude::*;
use sluice_core::semaphore::{Acquire, Hold, Release, Renew, Request, SemaphoreEffect};
use sluice_core::{Error, Malformed, Micros, Millis, Semaphore, State, Token};
use std::sync::LazyLock;

const START_US: u64 = 1_750_000_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;

/// The first few: with and without an allocation of their own, one a prefix of another.
const FEW: usize = 5;
/// More than are kept in a plain list.
const MANY: usize = 60;

static OWNERS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let first: [&[u8]; FEW] = [b"a", b"a\0", b"b", &[0xff; 100], &[b'o'; 512]];
    let others = (FEW..MANY).map(|n| format!("owner-{}", n * 7 % MANY).into_bytes());
    first.map(Vec::from).into_iter().chain(others).collect()
});

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        owner: usize,
        lease_ms: u64,
        limit: u32,
        permits: u32,
        others_wait: bool,
    },
    Release {
        owner: usize,
        token: Presented,
    },
    Renew {
        owner: usize,
        lease_ms: u64,
        token: Presented,
    },
    /// DEL, eviction, FLUSHALL.
    Lose,
    /// The server removes the key if its TTL is over; else it stays, as after PERSIST.
    Expire,
    /// In µs.
    Clock(i64),
}

#[derive(Clone, Copy, Debug)]
enum Presented {
    Nothing,
    Right,
    Wrong,
}

/// With more owners limits and leases grow, and rarely are all lost at once, so that most of
/// them can hold.
fn step(owners: usize) -> impl Strategy<Value = Step> {
    let owner = move || 0..owners;
    let often = (owners / FEW).pow(2) as u32;
    let longest = 4 * u64::from(often) * owners as u64;
    let lease_ms = move || prop_oneof![4 => 1..longest, 1 => 1..=YEAR_MS];
    let presented = || {
        prop_oneof![
            Just(Presented::Nothing),
            Just(Presented::Right),
            Just(Presented::Wrong)
        ]
    };
    let limit = prop_oneof![6 => 1..2 * often * owners as u32, 1 => 1..=Semaphore::MAX_PERMITS];
    let acquire = (
        owner(),
        lease_ms(),
        limit,
        1u32..6,
        prop::bool::weighted(0.1),
    );
    let clock = prop_oneof![
        6 * often => 0..5_000i64,
        2 * often => 5_000..30_000i64,
        often => -30_000..0i64,
        1 => Just(3_600_000_000),
    ];
    prop_oneof![
        8 * often => acquire.prop_map(|(owner, lease_ms, limit, permits, others_wait)| Step::Acquire {
            owner, lease_ms, limit, permits, others_wait
        }),
        2 * often => (owner(), presented()).prop_map(|(owner, token)| Step::Release { owner, token }),
        3 * often => (owner(), lease_ms(), presented()).prop_map(|(owner, lease_ms, token)| Step::Renew {
            owner, lease_ms, token
        }),
        1 => Just(Step::Lose),
        2 * often => Just(Step::Expire),
        5 * often => clock.prop_map(Step::Clock),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Token(u64),
    Nil,
    Number(u64),
    Error(Error),
}

// The model ---------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq)]
struct Lease {
    owner: usize,
    token: u64,
    permits: u32,
    granted_ms: u64,
    deadline_ms: u64,
}

/// All leases that were granted and neither given back nor lost with their key.
#[derive(Default)]
struct Model {
    leases: Vec<Lease>,
    high_water: u64,
}

impl Model {
    fn live(&self, now_us: u64) -> Vec<Lease> {
        let lives = |lease: &&Lease| lease.deadline_ms >= now_us / 1000;
        self.leases.iter().filter(lives).cloned().collect()
    }

    fn live_of(&mut self, owner: usize, now_us: u64) -> Option<&mut Lease> {
        self.leases
            .iter_mut()
            .find(|lease| lease.owner == owner && lease.deadline_ms >= now_us / 1000)
    }

    /// A write meets leases that are over: were the clock to step back, they would not live
    /// again.
    fn prune(&mut self, now_ms: u64) {
        self.leases.retain(|lease| lease.deadline_ms >= now_ms);
    }

    fn extend(&mut self, token: u64, asked_ms: u64, now_ms: u64) -> u64 {
        let lease = self.leases.iter_mut().find(|lease| lease.token == token);
        let lease = lease.expect("it lives");
        if lease.deadline_ms < asked_ms {
            lease.deadline_ms = asked_ms;
            self.prune(now_ms);
            return asked_ms;
        }
        lease.deadline_ms
    }

    fn apply(&mut self, step: &Step, now_us: u64) -> Reply {
        let now_ms = now_us / 1000;
        let taken: u32 = self.live(now_us).iter().map(|lease| lease.permits).sum();
        match *step {
            Step::Acquire {
                owner,
                lease_ms,
                limit,
                permits,
                others_wait,
            } => {
                if permits > limit {
                    return Reply::Error(Error::PermitsAboveLimit { permits, limit });
                }
                if let Some(lease) = self.live_of(owner, now_us) {
                    if lease.permits != permits {
                        let permits = lease.permits;
                        return Reply::Error(Error::PermitsChanged { permits });
                    }
                    let token = lease.token;
                    self.extend(token, now_ms + lease_ms, now_ms);
                    return Reply::Token(token);
                }
                if others_wait || taken + permits > limit {
                    return Reply::Nil;
                }
                let token = now_us.max(self.high_water + 1);
                self.high_water = token;
                self.prune(now_ms);
                self.leases.push(Lease {
                    owner,
                    token,
                    permits,
                    granted_ms: now_ms,
                    deadline_ms: now_ms + lease_ms,
                });
                Reply::Token(token)
            }
            Step::Release { owner, token } => match self.live_of(owner, now_us).cloned() {
                Some(lease) if !matches!(token, Presented::Wrong) => {
                    self.leases.retain(|other| other.token != lease.token);
                    self.prune(now_ms);
                    Reply::Number(lease.permits.into())
                }
                _ => Reply::Number(0),
            },
            Step::Renew {
                owner,
                lease_ms,
                token,
            } => match self.live_of(owner, now_us) {
                Some(lease) if !matches!(token, Presented::Wrong) => {
                    let token = lease.token;
                    Reply::Number(self.extend(token, now_ms + lease_ms, now_ms) - now_ms)
                }
                _ => Reply::Number(0),
            },
            Step::Lose => {
                self.leases.clear();
                Reply::Nil
            }
            Step::Expire => {
                if self.live(now_us).is_empty() {
                    self.leases.clear();
                }
                Reply::Nil
            }
            Step::Clock(_) => Reply::Nil,
        }
    }
}

// The server --------------------------------------------------------------------------------------

#[derive(Clone, Default)]
struct Server {
    key: Option<Semaphore>,
    replicas: [Option<Semaphore>; 2],
    high_water: u64,
}

impl Server {
    /// As a server would be that has just loaded what this one stores.
    fn reloaded(&self) -> Server {
        let key = self.key.as_ref().map(|key| {
            let bytes = key.to_stored();
            Semaphore::from_stored(bytes.as_bytes()).expect("what was stored is read")
        });
        Server {
            key,
            ..self.clone()
        }
    }

    fn propagate(&mut self, effect: &[u8]) {
        for (replica, times) in self.replicas.iter_mut().zip([1, 2]) {
            for _ in 0..times {
                let (effect, now) = SemaphoreEffect::decode(effect).expect("an effect is read");
                if let Some(whole) = Semaphore::apply(replica.as_mut(), effect, now) {
                    *replica = Some(whole);
                }
            }
        }
    }

    fn remove(&mut self) {
        self.key = None;
        self.replicas = [None, None];
    }

    fn publish(&mut self, change: &sluice_core::semaphore::Change, now: Micros) {
        let key = self.key.as_ref().expect("it was changed");
        let effect = key.effect(change, now);
        self.propagate(effect.as_bytes());
    }

    fn present(&self, owner: usize, token: Presented) -> Option<Token> {
        let stored = self.key.iter().flat_map(Semaphore::holds);
        let right = stored
            .filter(|hold| hold.holder.owner() == OWNERS[owner])
            .map(|hold| hold.token)
            .last();
        match token {
            Presented::Nothing => None,
            Presented::Right => right,
            Presented::Wrong => Token::new(7),
        }
    }

    fn apply(&mut self, step: &Step, now: Micros) -> Reply {
        match *step {
            Step::Acquire {
                owner,
                lease_ms,
                limit,
                permits,
                others_wait,
            } => {
                let request = Request {
                    owner: &OWNERS[owner],
                    lease_ms,
                    meta: b"m",
                    permits,
                    limit,
                };
                let stored = self.key.as_mut();
                match Semaphore::acquire(stored, &request, others_wait, now, self.high_water) {
                    Err(error) => Reply::Error(error),
                    Ok(Acquire::Busy) => Reply::Nil,
                    Ok(Acquire::Granted(semaphore, token)) => {
                        self.high_water = token.get();
                        self.propagate(semaphore.to_effect(now).as_bytes());
                        self.key = Some(semaphore);
                        Reply::Token(token.get())
                    }
                    Ok(Acquire::Joined(token, change)) => {
                        self.high_water = token.get();
                        self.publish(&change, now);
                        Reply::Token(token.get())
                    }
                    Ok(Acquire::Retried(token, change)) => {
                        if let Some(change) = change {
                            self.publish(&change, now);
                        }
                        Reply::Token(token.get())
                    }
                }
            }
            Step::Release { owner, token } => {
                let token = self.present(owner, token);
                let Some(key) = self.key.as_mut() else {
                    return Reply::Number(0);
                };
                match key.release(&OWNERS[owner], token, now) {
                    Release::NotHeld => Reply::Number(0),
                    Release::Freed { permits, .. } => {
                        self.remove();
                        Reply::Number(permits.into())
                    }
                    Release::Returned {
                        permits, change, ..
                    } => {
                        self.publish(&change, now);
                        Reply::Number(permits.into())
                    }
                }
            }
            Step::Renew {
                owner,
                lease_ms,
                token,
            } => {
                let token = self.present(owner, token);
                let Some(key) = self.key.as_mut() else {
                    return Reply::Number(0);
                };
                match key.renew(&OWNERS[owner], lease_ms, token, now) {
                    Renew::Lost => Reply::Number(0),
                    Renew::Left(left, _, change) => {
                        if let Some(change) = change {
                            self.publish(&change, now);
                        }
                        Reply::Number(left)
                    }
                }
            }
            Step::Lose => {
                self.remove();
                Reply::Nil
            }
            Step::Expire => {
                if self
                    .key
                    .as_ref()
                    .is_some_and(|key| key.is_over(now.floor_ms()))
                {
                    self.remove();
                }
                Reply::Nil
            }
            Step::Clock(_) => Reply::Nil,
        }
    }
}

fn bytes(key: &Option<Semaphore>) -> Option<Vec<u8>> {
    key.as_ref().map(|key| key.to_stored().as_bytes().to_vec())
}

fn lease(hold: &Hold) -> Lease {
    Lease {
        owner: OWNERS
            .iter()
            .position(|owner| owner == hold.holder.owner())
            .expect("one of the owners"),
        token: hold.token.get(),
        permits: hold.permits,
        granted_ms: hold.granted.0,
        deadline_ms: hold.deadline.0,
    }
}

/// Everything that the semaphore says about itself.
fn check_answers(key: &mut Semaphore, live: &[Lease], now: Millis) {
    let stored: Vec<Lease> = key.holds().map(lease).collect();
    let held: Vec<Lease> = key.live_holds(now).map(lease).collect();
    assert_eq!(held, live);
    assert_eq!(key.len(), stored.len());
    assert!(!key.is_empty());
    let sum = |leases: &[Lease]| leases.iter().map(|l| u64::from(l.permits)).sum::<u64>();
    assert_eq!(key.permits(), sum(&stored));
    assert_eq!(key.live_permits(now), sum(live));
    assert_eq!(key.is_over(now), live.is_empty());
    let latest = stored.iter().map(|l| l.deadline_ms).max();
    assert_eq!(Some(key.deadline().0), latest);
    let next = live.iter().map(|l| l.deadline_ms).min();
    assert_eq!(key.next_deadline(now).map(|at| at.0), next);
    assert_eq!(
        key.last_token().map(Token::get),
        stored.last().map(|l| l.token)
    );
}

/// An append-only file that is written anew makes the same of nothing.
fn check_rebuild(key: &Semaphore) {
    let mut made = None;
    for blob in key.rebuild() {
        let (effect, now) = SemaphoreEffect::decode(blob.as_bytes()).unwrap();
        if let Some(whole) = Semaphore::apply(made.as_mut(), effect, now) {
            made = Some(whole);
        }
    }
    assert_eq!(made.as_ref(), Some(key));
}

fn run(steps: &[Step]) {
    let (mut model, mut server, mut now) = (Model::default(), Server::default(), START_US);
    for step in steps {
        if let Step::Clock(us) = step {
            now = now.saturating_add_signed(*us);
        }
        let (before, mark) = (bytes(&server.key), server.high_water);
        let mut reloaded = server.reloaded();
        let reply = server.apply(step, Micros(now));
        assert_eq!(reply, model.apply(step, now), "{step:?} at {now}");
        assert_eq!(
            reloaded.apply(step, Micros(now)),
            reply,
            "{step:?} at {now}"
        );
        assert_eq!(bytes(&reloaded.key), bytes(&server.key));

        let is_negative = matches!(reply, Reply::Nil | Reply::Error(_) | Reply::Number(0));
        if is_negative && !matches!(step, Step::Lose | Step::Expire) {
            assert_eq!(bytes(&server.key), before, "{step:?} changed something");
        }
        let live = model.live(now);
        if let (Step::Acquire { limit, .. }, true) = (step, server.high_water > mark) {
            let taken: u32 = live.iter().map(|lease| lease.permits).sum();
            assert!(taken <= *limit, "{step:?} was granted beside {live:?}");
        }
        for replica in &server.replicas {
            assert_eq!(bytes(replica), bytes(&server.key), "{step:?}");
        }
        match server.key.as_mut() {
            None => assert!(live.is_empty()),
            Some(key) => {
                check_answers(key, &live, Millis(now / 1000));
                check_rebuild(key);
                let (whole, at) = Semaphore::from_effect(key.to_effect(Micros(now)).as_bytes())
                    .expect("an effect is read");
                assert_eq!((&whole, at), (&*key, Micros(now)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn agrees_with_a_list_of_many_leases(steps in prop::collection::vec(step(MANY), 200..400)) {
        run(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn agrees_with_a_list_of_leases(steps in prop::collection::vec(step(FEW), 1..60)) {
        run(&steps);
    }

    /// Whatever is read was written so, and nothing makes it panic.
    #[test]
    fn corrupt_bytes_are_refused(
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        for good in [three().to_stored(), three().to_effect(NOW), three().rebuild().remove(1)] {
            let mut bytes = good.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            check_reading(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            check_reading(&bytes);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_reading(&bytes);
        check_reading(&[&[1], &bytes[..]].concat());
    }
}

fn check_reading(bytes: &[u8]) {
    if let Ok(semaphore) = Semaphore::from_stored(bytes) {
        assert_eq!(semaphore.to_stored().as_bytes(), bytes);
    }
    if let Ok((effect, now)) = SemaphoreEffect::decode(bytes) {
        Semaphore::apply(Some(&mut three()), effect.clone(), now);
        Semaphore::apply(None, effect, now);
    }
}

// Cases -------------------------------------------------------------------------------------------

const NOW: Micros = Micros(START_US);

fn ask(owner: &[u8], permits: u32, limit: u32) -> Request<'_> {
    Request {
        owner,
        lease_ms: 1000,
        meta: b"",
        permits,
        limit,
    }
}

#[track_caller]
fn grant(stored: Option<Semaphore>, request: &Request<'_>, now: Micros, mark: u64) -> Semaphore {
    let mut stored = stored;
    match Semaphore::acquire(stored.as_mut(), request, false, now, mark) {
        Ok(Acquire::Granted(semaphore, _)) => semaphore,
        Ok(Acquire::Joined(..)) => stored.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// a (2 permits, until +1000), b (1, until +1000), c (4, until +1000).
fn three() -> Semaphore {
    let one = grant(None, &ask(b"a", 2, 9), NOW, 0);
    let two = grant(Some(one), &ask(b"b", 1, 9), NOW, NOW.0);
    grant(Some(two), &ask(b"c", 4, 9), NOW, NOW.0 + 1)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Token, deadline, granted, permits, lengths, owner, META.
const HOLD: &str = "1716151413121f00 2726252423221e00 3736353433321d00 01020300 0200 0100 6f70 6d";

#[test]
fn the_format_of_a_stored_semaphore() {
    let bytes = unhex(&format!(
        "01 02000000 {HOLD} 1816151413121f00 2726252423221e00 3736353433321d00 40420f00 0100 0000 71"
    ));
    let semaphore = Semaphore::from_stored(&bytes).unwrap();
    let holds: Vec<&Hold> = semaphore.holds().collect();
    assert_eq!(holds.len(), 2);
    assert_eq!(holds[0].token.get(), 0x001f_1213_1415_1617);
    assert_eq!(holds[0].deadline.0, 0x001e_2223_2425_2627);
    assert_eq!(holds[0].granted.0, 0x001d_3233_3435_3637);
    assert_eq!(holds[0].permits, 0x0003_0201);
    assert_eq!(holds[0].holder.owner(), b"op");
    assert_eq!(holds[0].holder.meta(), b"m");
    assert_eq!(holds[1].permits, 1_000_000);
    assert_eq!(semaphore.permits(), 0x0003_0201 + 1_000_000);
    assert_eq!(semaphore.to_stored().as_bytes(), bytes);
}

#[test]
fn the_format_of_effects() {
    let stored = unhex(&format!("01 01000000 {HOLD}"));
    let semaphore = Semaphore::from_stored(&stored).unwrap();
    let clock = Micros(0x0011_5253_5455_5657);
    let whole = unhex(&format!("01 5756555453521100 00 01000000 {HOLD}"));
    assert_eq!(semaphore.to_effect(clock).as_bytes(), whole);
    // That of a rewritten file prunes nobody.
    let hold = unhex(&format!("01 0000000000000000 01 {HOLD}"));
    let rebuilt: Vec<_> = semaphore.rebuild();
    assert_eq!(rebuilt.len(), 1);
    assert_eq!(rebuilt[0].as_bytes(), hold);
    let token = semaphore.last_token().unwrap();
    assert_eq!(semaphore.restate(token).unwrap().as_bytes(), hold);

    let mut three = three();
    let at = Micros(NOW.0 + 1000);
    let Release::Returned { change, token, .. } = three.release(b"b", None, at) else {
        panic!("others hold permits");
    };
    let mut gone = vec![1];
    gone.extend(at.0.to_le_bytes());
    gone.push(2);
    gone.extend(token.get().to_le_bytes());
    assert_eq!(three.effect(&change, at).as_bytes(), gone);
    let read = SemaphoreEffect::decode(&gone).unwrap();
    assert_eq!(read, (SemaphoreEffect::Gone(token), at));
}

#[test]
fn what_no_primary_writes_is_corrupt() {
    let stored = |hold: &str| Semaphore::from_stored(&unhex(&format!("01 01000000 {hold}")));
    assert!(stored(HOLD).is_ok());
    for (what, from, to) in [
        ("no token", "1716151413121f00", "0000000000000000"),
        ("a token of 2^53", "1716151413121f00", "0000000000002000"),
        (
            "it ended before it began",
            "3736353433321d00",
            "2826252423221e00",
        ),
        ("no permits", "01020300", "00000000"),
        ("too many permits", "01020300", "41420f00"),
        ("no owner", "0200 0100 6f70", "0000 0300 6f70"),
    ] {
        let hold = HOLD.replace(from, to);
        assert_ne!(hold, HOLD, "{what}");
        assert_eq!(stored(&hold), Err(Malformed::Corrupt), "{what}");
    }
    for (what, bytes) in [
        ("nobody", "01 00000000".to_string()),
        ("one too many", format!("01 02000000 {HOLD}")),
        ("one too few", format!("01 01000000 {HOLD} {HOLD}")),
        ("one twice", format!("01 02000000 {HOLD} {HOLD}")),
        ("many", format!("01 ffffffff {HOLD}")),
    ] {
        let read = Semaphore::from_stored(&unhex(&bytes));
        assert_eq!(read, Err(Malformed::Corrupt), "{what}");
    }
    let newer = unhex(&format!("02 01000000 {HOLD}"));
    assert_eq!(Semaphore::from_stored(&newer), Err(Malformed::Version(2)));
}

/// As many holders as may be, and one more.
#[test]
fn holders_are_limited_and_the_limit_is_read_back() {
    let most = Semaphore::MAX_HOLDERS as u32;
    let owner = |n: u32| n.to_le_bytes();
    let mut semaphore = grant(None, &ask(&owner(0), 1, 1), NOW, 0);
    let mut mark = NOW.0;
    for n in 1..most {
        let owner = owner(n);
        let request = ask(&owner, 1, Semaphore::MAX_PERMITS);
        match Semaphore::acquire(Some(&mut semaphore), &request, false, NOW, mark) {
            Ok(Acquire::Joined(token, _)) => mark = token.get(),
            other => panic!("{n}: {other:?}"),
        }
    }
    let owner = owner(most);
    let request = ask(&owner, 1, Semaphore::MAX_PERMITS);
    let refused = Semaphore::acquire(Some(&mut semaphore), &request, false, NOW, mark);
    assert_eq!(refused, Err(Error::TooManyHolders));
    let stored = semaphore.to_stored();
    let read = Semaphore::from_stored(stored.as_bytes()).unwrap();
    assert_eq!(read, semaphore);
    // The lapsed do not count.
    let later = Micros(NOW.0 + 1_001_000);
    semaphore.renew(&0u32.to_le_bytes(), 5000, None, NOW);
    match Semaphore::acquire(Some(&mut semaphore), &request, false, later, mark) {
        Ok(Acquire::Joined(_, change)) => assert_eq!(change.lapsed.holds.len(), most as usize - 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(semaphore.len(), 2);
}

#[test]
fn a_lapsed_holder_is_hidden_from_reads_and_pruned_by_writes() {
    let mut semaphore = three();
    semaphore.renew(b"b", 5000, None, NOW);
    let before = semaphore.to_stored().as_bytes().to_vec();
    let later = Micros(NOW.0 + 1_001_000);
    assert_eq!(semaphore.live_permits(later.floor_ms()), 1);
    assert_eq!(semaphore.release(b"a", None, later), Release::NotHeld);
    let busy = Semaphore::acquire(Some(&mut semaphore), &ask(b"d", 9, 9), false, later, 0);
    assert_eq!(busy, Ok(Acquire::Busy));
    assert_eq!(semaphore.to_stored().as_bytes(), before);
    // The clock steps back: they live again.
    assert_eq!(semaphore.live_permits(NOW.floor_ms()), 7);
    let joined = Semaphore::acquire(Some(&mut semaphore), &ask(b"d", 8, 9), false, later, 0);
    assert!(matches!(joined, Ok(Acquire::Joined(_, change)) if change.lapsed.holds.len() == 2));
    assert_eq!(semaphore.len(), 2);
}
