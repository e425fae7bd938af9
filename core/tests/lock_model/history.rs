//! The model: everything that ever happened, as plain records. It answers each question by
//! reading all of them again.

use crate::steps::{received, Ask, Presented, Reply, Step};
use sluice_core::{Error, Token};

#[derive(Default)]
pub(crate) struct History {
    records: Vec<(usize, Record)>,
    received: Vec<u64>,
}

#[derive(Clone)]
enum Record {
    /// To whoever finds the lock free.
    Granted {
        hold: Holding,
        is_shared: bool,
    },
    Joined(Holding),
    /// The only reader, under a new token.
    Upgraded {
        reader: u64,
        token: u64,
    },
    Downgraded,
    /// To this deadline, if that is later, and MAXHOLD at the latest.
    Extended {
        token: u64,
        until_ms: u64,
    },
    Entered {
        token: u64,
    },
    Left {
        token: u64,
    },
    Gone {
        token: u64,
    },
    /// A write has met readers whose leases were over.
    Pruned {
        now_ms: u64,
    },
    Kept {
        token: u64,
        until_ms: u64,
    },
    Freed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) owner: usize,
    pub(crate) meta: usize,
    pub(crate) token: u64,
    pub(crate) at_ms: u64,
    pub(crate) until_ms: u64,
    pub(crate) max_ms: Option<u64>,
    pub(crate) holds: u32,
}

/// What is stored under a key, be it over or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    Exclusive(Holding),
    /// In the order of their tokens.
    Shared(Vec<Holding>),
    Kept {
        token: u64,
        until_ms: u64,
    },
}

impl Stored {
    fn after(self, record: &Record) -> Stored {
        match (record.clone(), self) {
            (
                Record::Granted {
                    hold,
                    is_shared: true,
                },
                _,
            ) => Stored::Shared(vec![hold]),
            (Record::Granted { hold, .. }, _) => Stored::Exclusive(hold),
            (Record::Joined(hold), Stored::Shared(mut readers)) => {
                readers.push(hold);
                Stored::Shared(readers)
            }
            (Record::Upgraded { reader, token }, Stored::Shared(readers)) => {
                let hold = readers.into_iter().find(|hold| hold.token == reader);
                Stored::Exclusive(Holding {
                    token,
                    ..hold.unwrap()
                })
            }
            (Record::Downgraded, Stored::Exclusive(hold)) => Stored::Shared(vec![hold]),
            (Record::Gone { token }, Stored::Shared(mut readers)) => {
                readers.retain(|hold| hold.token != token);
                Stored::Shared(readers)
            }
            (Record::Pruned { now_ms }, Stored::Shared(mut readers)) => {
                readers.retain(|hold| hold.until_ms >= now_ms);
                Stored::Shared(readers)
            }
            (Record::Pruned { .. }, other) => other,
            (Record::Kept { token, until_ms }, _) => Stored::Kept { token, until_ms },
            (Record::Freed, _) => Stored::Nothing,
            (Record::Extended { token, until_ms }, stored) => stored.with(token, |hold| {
                let most = hold.max_ms.unwrap_or(u64::MAX);
                hold.until_ms = hold.until_ms.max(until_ms.min(most));
            }),
            (Record::Entered { token }, stored) => stored.with(token, |hold| hold.holds += 1),
            (Record::Left { token }, stored) => stored.with(token, |hold| hold.holds -= 1),
            _ => panic!("nothing that happens"),
        }
    }

    fn with(mut self, token: u64, f: impl FnOnce(&mut Holding)) -> Stored {
        let hold = match &mut self {
            Stored::Exclusive(hold) => Some(hold),
            Stored::Shared(readers) => readers.iter_mut().find(|hold| hold.token == token),
            _ => None,
        };
        f(hold.filter(|hold| hold.token == token).unwrap());
        self
    }

    /// The same without what is over: a hold lives while now ≤ deadline, in milliseconds.
    pub(crate) fn live(self, now_us: u64) -> Stored {
        let lives = |until_ms: u64| now_us / 1000 <= until_ms;
        match self {
            Stored::Exclusive(hold) if lives(hold.until_ms) => Stored::Exclusive(hold),
            Stored::Kept { token, until_ms } if lives(until_ms) => Stored::Kept { token, until_ms },
            Stored::Shared(mut readers) => {
                readers.retain(|hold| lives(hold.until_ms));
                if readers.is_empty() {
                    Stored::Nothing
                } else {
                    Stored::Shared(readers)
                }
            }
            _ => Stored::Nothing,
        }
    }

    pub(crate) fn holds(&self) -> &[Holding] {
        match self {
            Stored::Exclusive(hold) => std::slice::from_ref(hold),
            Stored::Shared(readers) => readers,
            _ => &[],
        }
    }
}

impl History {
    pub(crate) fn stored(&self, key: usize) -> Stored {
        self.records
            .iter()
            .filter(|(of, _)| *of == key)
            .fold(Stored::Nothing, |stored, (_, record)| stored.after(record))
    }

    pub(crate) fn live(&self, key: usize, now_us: u64) -> Stored {
        self.stored(key).live(now_us)
    }

    pub(crate) fn high_water(&self) -> u64 {
        let granted = self.grants().map(|(_, token)| token);
        granted
            .chain(self.received.iter().copied())
            .max()
            .unwrap_or(0)
    }

    /// The key and token of every grant.
    pub(crate) fn grants(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.records
            .iter()
            .filter_map(|(key, record)| match record {
                Record::Granted { hold, .. } | Record::Joined(hold) => Some((*key, hold.token)),
                Record::Upgraded { token, .. } => Some((*key, *token)),
                _ => None,
            })
    }

    pub(crate) fn presented(&self, of: usize, owner: usize, token: &Presented) -> Option<Token> {
        let mut grants = self.grants().filter(|(key, _)| *key == of);
        let last = grants.next_back().map_or(1, |(_, token)| token);
        let value = match token {
            Presented::None => return None,
            Presented::Held => {
                let stored = self.stored(of);
                let mut holds = stored.holds().iter();
                holds
                    .find(|hold| hold.owner == owner)
                    .map_or(last, |hold| hold.token)
            }
            Presented::Last { off } => last.saturating_add_signed(*off),
            Presented::First => grants.next().map_or(last, |(_, token)| token),
        };
        Some(Token::new(value.clamp(1, Token::MAX)).unwrap())
    }

    pub(crate) fn apply(&mut self, step: &Step, now_us: u64) -> Reply {
        let now_ms = now_us / 1000;
        match *step {
            Step::Acquire(ref ask) => self.acquire(ask, now_us),
            Step::Release {
                key,
                owner,
                ref token,
                keep_ms,
            } => match self.held_by(key, owner, self.presented(key, owner, token), now_us) {
                None => Reply::Integer(0),
                Some(hold) if hold.holds > 1 => {
                    self.push(key, Record::Left { token: hold.token });
                    self.push(key, Record::Pruned { now_ms });
                    Reply::Released(None)
                }
                Some(hold) => self.end(key, &hold, keep_ms, now_us),
            },
            Step::Revoke {
                key,
                owner,
                ref token,
            } => match self.held_by(key, owner, Some(self.revoked(key, owner, token)), now_us) {
                None => Reply::Integer(0),
                Some(hold) => self.end(key, &hold, None, now_us),
            },
            Step::Renew {
                key,
                owner,
                lease_ms,
                ref token,
            } => match self.held_by(key, owner, self.presented(key, owner, token), now_us) {
                None => Reply::Integer(0),
                Some(hold) => {
                    self.again(key, hold.token, lease_ms, false, now_ms);
                    let hold = self.held_by(key, owner, None, now_us).unwrap();
                    Reply::Integer(hold.until_ms - now_ms)
                }
            },
            Step::Downgrade {
                key,
                owner,
                ref token,
            } => match self.held_by(key, owner, self.presented(key, owner, token), now_us) {
                None => Reply::Integer(0),
                Some(_) if matches!(self.stored(key), Stored::Shared(_)) => Reply::Already,
                Some(_) => {
                    self.push(key, Record::Downgraded);
                    Reply::Integer(1)
                }
            },
            Step::ForceRelease { key, ref token } => {
                let live = self.live(key, now_us);
                let found = match self.presented(key, 0, token) {
                    None => live != Stored::Nothing,
                    Some(token) => live.holds().iter().any(|hold| hold.token == token.get()),
                };
                if found {
                    self.push(key, Record::Freed);
                }
                Reply::Integer(found.into())
            }
            Step::Lose { key } => {
                self.push(key, Record::Freed);
                Reply::Nil
            }
            Step::Expire { key } => {
                if self.live(key, now_us) == Stored::Nothing {
                    self.push(key, Record::Freed);
                }
                Reply::Nil
            }
            Step::Receive { ahead_us } => {
                self.received.push(received(now_us, ahead_us));
                Reply::Nil
            }
            Step::Clock(_) => Reply::Nil,
        }
    }

    fn acquire(&mut self, ask: &Ask, now_us: u64) -> Reply {
        let &Ask { key, owner, .. } = ask;
        let now_ms = now_us / 1000;
        let live = self.live(key, now_us);
        let own = live.holds().iter().find(|hold| hold.owner == owner);
        let token = now_us.max(self.high_water() + 1);
        let is_exhausted = token >= 1 << 53;
        let most = ask.maxhold_ms.map_or(u64::MAX, |ms| now_ms + ms);
        let new = Holding {
            owner,
            meta: ask.meta,
            token,
            at_ms: now_ms,
            until_ms: (now_ms + ask.lease_ms).min(most),
            max_ms: ask.maxhold_ms.map(|ms| now_ms + ms),
            holds: 1,
        };
        match (&live, own) {
            // Whoever holds it as it asks, or better, gets its token again.
            (Stored::Exclusive(_), Some(hold)) => self.answer_again(hold.token, ask, now_ms),
            (Stored::Shared(_), Some(hold)) if ask.is_shared => {
                self.answer_again(hold.token, ask, now_ms)
            }
            // The only reader stands before the queue.
            (Stored::Shared(readers), Some(_)) if readers.len() > 1 => Reply::UpgradeBusy,
            (Stored::Shared(_), Some(_)) if is_exhausted => Reply::Error(Error::TokensExhausted),
            (Stored::Shared(_), Some(hold)) => {
                let reader = hold.token;
                self.push(key, Record::Upgraded { reader, token });
                self.answer_again(token, ask, now_ms)
            }
            // Everybody else comes after those who wait.
            _ if ask.others_wait => Reply::Nil,
            (Stored::Nothing, _) if is_exhausted => Reply::Error(Error::TokensExhausted),
            (Stored::Nothing, _) => {
                let is_shared = ask.is_shared;
                self.push(
                    key,
                    Record::Granted {
                        hold: new,
                        is_shared,
                    },
                );
                Reply::Integer(token)
            }
            (Stored::Shared(_), None) if ask.is_shared && is_exhausted => {
                Reply::Error(Error::TokensExhausted)
            }
            (Stored::Shared(_), None) if ask.is_shared => {
                self.push(key, Record::Pruned { now_ms });
                self.push(key, Record::Joined(new));
                Reply::Integer(token)
            }
            _ => Reply::Nil,
        }
    }

    fn answer_again(&mut self, token: u64, ask: &Ask, now_ms: u64) -> Reply {
        self.again(ask.key, token, ask.lease_ms, ask.is_reentrant, now_ms);
        Reply::Integer(token)
    }

    /// A hold goes on. Only if that changes anything is it a write, which prunes.
    fn again(&mut self, key: usize, token: u64, lease_ms: u64, enters: bool, now_ms: u64) {
        let before = self.stored(key);
        let until_ms = now_ms + lease_ms;
        self.push(key, Record::Extended { token, until_ms });
        if enters {
            self.push(key, Record::Entered { token });
        }
        if self.stored(key) != before {
            self.push(key, Record::Pruned { now_ms });
        }
    }

    /// A hold ends, and with the last one the lock is free, or kept.
    fn end(&mut self, key: usize, hold: &Holding, keep_ms: Option<u64>, now_us: u64) -> Reply {
        let now_ms = now_us / 1000;
        let token = hold.token;
        if self.live(key, now_us).holds().len() > 1 {
            self.push(key, Record::Gone { token });
            self.push(key, Record::Pruned { now_ms });
        } else if let Some(ms) = keep_ms {
            let until_ms = now_ms + ms;
            self.push(key, Record::Kept { token, until_ms });
        } else {
            self.push(key, Record::Freed);
        }
        Reply::Released(Some(hold.at_ms))
    }

    /// The live hold that `owner` has, if `token` does not contradict it.
    pub(crate) fn held_by(
        &self,
        key: usize,
        owner: usize,
        token: Option<Token>,
        now_us: u64,
    ) -> Option<Holding> {
        let live = self.live(key, now_us);
        let hold = live.holds().iter().find(|hold| hold.owner == owner)?;
        let is_it = token.is_none_or(|token| token.get() == hold.token);
        is_it.then(|| hold.clone())
    }

    /// A binding always has a token.
    pub(crate) fn revoked(&self, key: usize, owner: usize, token: &Presented) -> Token {
        self.presented(key, owner, token)
            .or_else(|| self.presented(key, owner, &Presented::Held))
            .unwrap()
    }

    fn push(&mut self, key: usize, record: Record) {
        self.records.push((key, record));
    }
}
