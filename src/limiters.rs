//! Effects of limiters, which `sluice.rl-replication-interval-ms` can make rarer.
//!
//! With an interval a hot key sends one effect for many admissions. What was admitted since
//! is sent when the interval is over, also if no call comes any more: a failover forgets the
//! last interval, and no more.

use crate::boundary::args::{OwnedText, Text};
use crate::boundary::context::Context;
use crate::boundary::key::Key;
use crate::boundary::{clock, timer};
use crate::settings;
use sluice_core::limiter::{Change, Send};
use sluice_core::waiting::{KeyName, Mono};
use sluice_core::{Limiter, Micros};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

thread_local! {
    // The server's main thread only.
    static BEHIND: RefCell<Behind> = RefCell::default();
}

/// Keys with something held back, and when it is due. A key is listed once, however often it
/// goes and comes back meanwhile.
#[derive(Default)]
struct Behind {
    due: BTreeSet<(Mono, KeyName)>,
    keys: HashMap<KeyName, Mono>,
}

impl Behind {
    fn list(&mut self, key: KeyName, due: Mono) {
        match self.keys.get(&key) {
            // Looked at then, it is listed again if that is too early.
            Some(listed) if *listed <= due => return,
            Some(listed) => {
                self.due.remove(&(*listed, key.clone()));
            }
            None => {}
        }
        self.due.insert((due, key.clone()));
        self.keys.insert(key, due);
    }

    fn first_due(&self) -> Option<Mono> {
        self.due.first().map(|(due, _)| *due)
    }

    fn take_first(&mut self) -> Option<KeyName> {
        let (_, key) = self.due.pop_first()?;
        self.keys.remove(&key);
        Some(key)
    }
}

/// Makes what a call does to a key happen, and known.
#[inline(always)]
pub(crate) fn commit(
    ctx: Context,
    key: &mut Key<'_, Limiter>,
    name: Text<'_>,
    change: Change,
    now: Micros,
) {
    match change {
        Change::None { until } => key.outlive(until),
        Change::Changed { must_send, until } => {
            publish(ctx, key, name, must_send, now);
            key.outlive(until);
        }
        Change::New(limiter) => {
            key.set(limiter);
            publish(ctx, key, name, true, now);
        }
        Change::Gone => key.remove(),
    }
}

/// Publishes a changed limiter: its TTL at once, its effect when the interval allows, or at
/// once if it `must_send`.
#[inline]
fn publish(ctx: Context, key: &mut Key<'_, Limiter>, name: Text<'_>, must_send: bool, now: Micros) {
    let interval_ms = settings::RL_REPLICATION_INTERVAL_MS.get();
    let mut send = Send::Now;
    key.publish_when(now, |limiter, ttl_moved| {
        send = limiter.send(must_send || ttl_moved, now, interval_ms);
        send == Send::Now
    });
    if let Send::Within(ms) = send {
        let (db, name) = (ctx.db(), name.bytes().into());
        send_within(ms, KeyName { db, name });
    }
}

fn send_within(ms: u64, key: KeyName) {
    let due = Mono(clock::mono().0 + ms * 1000);
    BEHIND.with_borrow_mut(|behind| behind.list(key, due));
    timer::arm(ms);
}

/// From the timer and from cron: sends what is due, if the server allows that now.
pub(crate) fn catch_up(ctx: Context) {
    if BEHIND.with_borrow(|behind| behind.due.is_empty()) {
        return;
    }
    if !ctx.is_primary() {
        BEHIND.take();
        return;
    }
    let now = clock::mono();
    while let Some(due) = BEHIND.with_borrow(Behind::first_due) {
        if due > now || ctx.must_not_propagate() {
            // Cron comes back to a pause.
            timer::arm(due.0.saturating_sub(now.0).div_ceil(1000).max(10));
            return;
        }
        if let Some(key) = BEHIND.with_borrow_mut(Behind::take_first) {
            send(ctx, key);
        }
    }
}

fn send(ctx: Context, behind: KeyName) {
    let name = OwnedText::new(&behind.name);
    ctx.select_db(behind.db);
    let Ok(mut key) = Key::<Limiter>::open_to_write(ctx, name.text()) else {
        return;
    };
    let now = clock::now();
    let interval_ms = settings::RL_REPLICATION_INTERVAL_MS.get();
    match key
        .value()
        .map(|limiter| limiter.catch_up(now, interval_ms))
    {
        Some(Send::Now) => {
            key.propagate(now);
            // The effect lets a replica set the TTL that the state asks for; here somebody
            // has set another since the admission.
            key.propagate_foreign_ttl();
        }
        // The wall clock, by which intervals count, is behind the one that woke us.
        Some(Send::Within(ms)) => send_within(ms, behind),
        Some(Send::Nothing) | None => {}
    }
}
