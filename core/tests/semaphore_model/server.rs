//! What the module does with the core's decisions (`src/commands/sem_*.rs`), and two replicas
//! that hear nothing but its effects.

use crate::steps::{Presented, Reply, Step, OWNERS};
use sluice_core::semaphore::{Acquire, Release, Renew, Request, SemaphoreEffect};
use sluice_core::{Micros, Semaphore, State, Token};

#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) key: Option<Semaphore>,
    pub(crate) replicas: [Option<Semaphore>; 2],
    pub(crate) high_water: u64,
}

impl Server {
    /// As a server would be that has just loaded what this one stores.
    pub(crate) fn reloaded(&self) -> Server {
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

    pub(crate) fn apply(&mut self, step: &Step, now: Micros) -> Reply {
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

pub(crate) fn bytes(key: &Option<Semaphore>) -> Option<Vec<u8>> {
    key.as_ref().map(|key| key.to_stored().as_bytes().to_vec())
}
