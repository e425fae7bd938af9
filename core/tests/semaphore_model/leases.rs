//! The model: a plain list of leases.

use crate::steps::{Presented, Reply, Step};
use sluice_core::Error;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lease {
    pub(crate) owner: usize,
    pub(crate) token: u64,
    pub(crate) permits: u32,
    pub(crate) granted_ms: u64,
    pub(crate) deadline_ms: u64,
}

/// All leases that were granted and neither given back nor lost with their key.
#[derive(Default)]
pub(crate) struct Model {
    leases: Vec<Lease>,
    high_water: u64,
}

impl Model {
    pub(crate) fn live(&self, now_us: u64) -> Vec<Lease> {
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

    pub(crate) fn apply(&mut self, step: &Step, now_us: u64) -> Reply {
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
