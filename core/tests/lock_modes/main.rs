//! Readers, upgrades, re-entry, MAXHOLD and revocation: their edges, and faults reported
//! against other lock libraries, one scenario each.

mod maxhold;
mod readers;
mod reentry;
mod revocation;
mod upgrade;

use sluice_core::lock::{Acquire, Downgrade, Hold, Release, Renew, Request};
use sluice_core::{Error, Lock, Micros, State, Token};

/// In the middle of a millisecond.
const NOW: Micros = Micros(1_750_000_000_000_300);
const NOW_MS: u64 = 1_750_000_000_000;

/// So many ms after the millisecond of `NOW`.
fn at(ms: u64) -> Micros {
    Micros((NOW_MS + ms) * 1000)
}

fn writer(owner: &[u8], lease_ms: u64) -> Request<'_> {
    Request::exclusive(owner, lease_ms)
}

fn reader(owner: &[u8], lease_ms: u64) -> Request<'_> {
    Request {
        is_shared: true,
        ..writer(owner, lease_ms)
    }
}

fn reentrant(request: Request<'_>) -> Request<'_> {
    Request {
        is_reentrant: true,
        ..request
    }
}

fn limited(request: Request<'_>, maxhold_ms: u64) -> Request<'_> {
    Request {
        maxhold_ms: Some(maxhold_ms),
        ..request
    }
}

fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

const BUSY: Result<Acquire, Error> = Ok(Acquire::Busy { is_upgrade: false });
const UPGRADE_BUSY: Result<Acquire, Error> = Ok(Acquire::Busy { is_upgrade: true });

/// A lock key and the counter of tokens, and how commands use the two.
struct Key {
    lock: Option<Lock>,
    high_water: u64,
    others_wait: bool,
}

impl Key {
    fn new() -> Key {
        Key {
            lock: None,
            high_water: 0,
            others_wait: false,
        }
    }

    /// Held shared since `NOW`, by each of these for so many ms, under tokens that count up
    /// from the clock.
    fn read_by(readers: &[(&[u8], u64)]) -> Key {
        let mut key = Key::new();
        for (i, (owner, lease_ms)) in readers.iter().enumerate() {
            let got = key.acquire(&reader(owner, *lease_ms), NOW);
            assert_eq!(got, Some(NOW.0 + i as u64));
        }
        key
    }

    fn written_by(owner: &[u8], lease_ms: u64) -> Key {
        let mut key = Key::new();
        assert_eq!(key.acquire(&writer(owner, lease_ms), NOW), Some(NOW.0));
        key
    }

    fn decide(&mut self, request: &Request<'_>, now: Micros) -> Result<Acquire, Error> {
        let stored = self.lock.as_mut();
        Lock::acquire(stored, request, self.others_wait, now, self.high_water)
    }

    /// The token, or `None` when busy.
    fn acquire(&mut self, request: &Request<'_>, now: Micros) -> Option<u64> {
        let token = match self.decide(request, now).unwrap() {
            Acquire::Granted(lock, token) => {
                self.lock = Some(lock);
                token
            }
            Acquire::Joined(token, _) | Acquire::Retried(token, _) => token,
            Acquire::Busy { .. } => return None,
        };
        self.high_water = self.high_water.max(token.get());
        Some(token.get())
    }

    fn release(&mut self, owner: &[u8], now: Micros) -> Release {
        self.lock().release(owner, None, None, now)
    }

    /// The lease left, 0 when it is lost.
    fn renew(&mut self, owner: &[u8], lease_ms: u64, now: Micros) -> u64 {
        match self.lock().renew(owner, lease_ms, None, now) {
            Renew::Lost => 0,
            Renew::Left(left, _) => left,
        }
    }

    fn downgrade(&mut self, owner: &[u8], now: Micros) {
        match self.lock().downgrade(owner, None, now) {
            Downgrade::Shared(lock) => self.lock = Some(lock),
            other => panic!("{other:?}"),
        }
    }

    fn lock(&mut self) -> &mut Lock {
        self.lock.as_mut().unwrap()
    }

    fn hold(&self, owner: &[u8]) -> Hold {
        let lock = self.lock.as_ref().unwrap();
        let mut holds = lock.holds().filter(|hold| hold.holder.owner() == owner);
        let hold = holds.next().unwrap().clone();
        assert_eq!(holds.next(), None);
        hold
    }

    fn owners(&self) -> Vec<&[u8]> {
        let holds = self.lock.as_ref().unwrap().holds();
        holds.map(|hold| hold.holder.owner()).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        self.lock.as_ref().unwrap().to_stored().as_bytes().to_vec()
    }
}
