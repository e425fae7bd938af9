//! What the files about semaphores share.

use std::collections::BTreeMap;

pub(crate) use crate::kinds_support::{all_answer, number, run};
use crate::support::*;
use crate::waiting_support::Waiter;

/// Who holds permits of `key`, and how many each, in the order of the grants.
#[track_caller]
pub(crate) fn held(c: &mut Conn, key: &str) -> Vec<(String, i64)> {
    let info = cmd!(c, "SEM.INFO", key);
    let Some(holders) = info.map_get("holders") else {
        return Vec::new();
    };
    let holders = holders.items().iter();
    holders
        .map(|h| (h.field("holder").as_text(), h.field("permits").as_int()))
        .collect()
}

#[track_caller]
pub(crate) fn holds(c: &mut Conn, key: &str, expected: &[(&str, i64)]) {
    let expected: Vec<_> = expected.iter().map(|(h, n)| (h.to_string(), *n)).collect();
    assert_eq!(held(c, key), expected);
}

/// What SEM.INFO shows of one holder.
#[track_caller]
pub(crate) fn of_holder(c: &mut Conn, key: &str, holder: &str, field: &str) -> i64 {
    let info = cmd!(c, "SEM.INFO", key);
    let holders = info.field("holders").items();
    let found = holders.iter().find(|h| h.field("holder") == &bulk(holder));
    let found = found.unwrap_or_else(|| panic!("no {holder} in {info:?}"));
    found.field(field).as_int()
}

/// Counters of a server that other tests have used before.
pub(crate) struct Since<'a> {
    server: &'a Server,
    before: BTreeMap<String, String>,
}

impl Since<'_> {
    pub(crate) fn now(server: &Server) -> Since<'_> {
        let before = server.info("sluice").into_iter().collect();
        Since { server, before }
    }

    pub(crate) fn counted(&self, name: &str) -> i64 {
        let before: i64 = self.before[&format!("sluice_{name}")].parse().unwrap();
        counter(self.server, name) - before
    }

    #[track_caller]
    pub(crate) fn all_counted(&self, expected: &[(&str, i64)]) {
        for (name, times) in expected {
            assert_eq!(self.counted(name), *times, "{name}");
        }
    }
}

/// SEM.ACQUIRE with these arguments, which must be granted.
#[track_caller]
pub(crate) fn acquire(c: &mut Conn, line: &str) -> i64 {
    number(c, &format!("SEM.ACQUIRE {line}"))
}

/// A client that waits in SEM.ACQUIRE with these arguments, at most a minute.
#[track_caller]
pub(crate) fn wait_for(server: &Server, line: &str) -> Waiter {
    Waiter::send(server, &format!("SEM.ACQUIRE {line} BLOCK 60000"))
}

pub(crate) fn permits_changed(before: u32) -> Reply {
    let s = if before == 1 { "" } else { "s" };
    err(&format!(
        "ERR this holder asked for {before} permit{s} before: PERMITS cannot change"
    ))
}

// --- stored states and effects as bytes, written down from the format alone ---

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) granted_ms: u64,
    pub(crate) permits: u32,
    pub(crate) holder: Vec<u8>,
    pub(crate) meta: Vec<u8>,
}

impl Hold {
    pub(crate) fn at(now_us: i64, lease_ms: u64, permits: u32, holder: impl AsRef<[u8]>) -> Hold {
        let (token, granted_ms) = (now_us as u64, now_us as u64 / 1000);
        Hold {
            token,
            deadline_ms: granted_ms + lease_ms,
            granted_ms,
            permits,
            holder: holder.as_ref().to_vec(),
            meta: Vec::new(),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.token.to_le_bytes());
        out.extend(self.deadline_ms.to_le_bytes());
        out.extend(self.granted_ms.to_le_bytes());
        out.extend(self.permits.to_le_bytes());
        out.extend((self.holder.len() as u16).to_le_bytes());
        out.extend((self.meta.len() as u16).to_le_bytes());
        out.extend(&self.holder);
        out.extend(&self.meta);
        out
    }

    /// The effect that adds or replaces this holder.
    pub(crate) fn effect(&self, now_us: i64) -> Vec<u8> {
        effect(now_us, &[&[1], &self.bytes()[..]].concat())
    }

    /// The effect that removes it.
    pub(crate) fn gone(&self, now_us: i64) -> Vec<u8> {
        effect(now_us, &[&[2], &self.token.to_le_bytes()[..]].concat())
    }
}

/// All holders, as one stored value without its version byte.
pub(crate) fn body(holds: &[Hold]) -> Vec<u8> {
    let mut out = (holds.len() as u32).to_le_bytes().to_vec();
    out.extend(holds.iter().flat_map(Hold::bytes));
    out
}

pub(crate) fn stored(holds: &[Hold]) -> Vec<u8> {
    [&[1], &body(holds)[..]].concat()
}

pub(crate) fn whole_effect(now_us: i64, holds: &[Hold]) -> Vec<u8> {
    effect(now_us, &[&[0], &body(holds)[..]].concat())
}

pub(crate) fn sem_dump(holds: &[Hold]) -> Vec<u8> {
    dump("sluice-sm", 1, &stored(holds))
}

/// The highest token the server knows of.
#[track_caller]
pub(crate) fn high_water(server: &Server) -> i64 {
    counter(server, "token_high_water")
}
