//! LOCK.MACQUIRE numkeys key [key …] owner lease_ms
//! LOCK.MRENEW numkeys key [key …] owner lease_ms [TOKEN t]
//! LOCK.MRELEASE numkeys key [key …] owner [TOKEN t]
//!
//! Several keys of one slot, all or nothing, under one token. They never wait.

use super::lock_release::release;
use crate::boundary::args::{Args, Text};
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, tokens, types, waiting};
use sluice_core::lock::{Renew, Request};
use sluice_core::{Error, Lock, Micros, Token};

entry!(sluice_lock_macquire, "LOCK.MACQUIRE", acquire);
entry!(sluice_lock_mrenew, "LOCK.MRENEW", renew);
entry!(sluice_lock_mrelease, "LOCK.MRELEASE", release_all);

/// The most keys one call may name.
const MOST_KEYS: u64 = 1024;

fn acquire(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    if args.reports_keys(ctx) {
        return Ok(Reply::Sent);
    }
    let names = args.keys(MOST_KEYS)?;
    let owner = args.owner()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    args.finish()?;
    let now = clock::now();

    let mut keys = open(ctx, &names)?;
    if let Some(token) = held_by_one_call(&mut keys, owner, now) {
        for (key, name) in keys.iter_mut().zip(&names) {
            extend(ctx, key, *name, owner, lease_ms, None, now);
        }
        metrics::LOCK_RETRIED.hit();
        return Ok(Reply::Integer(token.get()));
    }
    let is_free =
        |key: &mut Key<'_, Lock>| key.value().is_none_or(|lock| lock.is_over(now.floor_ms()));
    let nobody_waits = names.iter().all(|name| !waiting::is_waited_for(ctx, *name));
    if !nobody_waits || !keys.iter_mut().all(is_free) {
        metrics::LOCK_BUSY.hit();
        return Ok(Reply::Nil);
    }
    let token = Token::next(tokens::high_water(), now)?;
    tokens::raise(token);
    let request = Request::exclusive(owner, lease_ms);
    for (key, name) in keys.iter_mut().zip(&names) {
        waiting::replaced(ctx, key, *name, now);
        key.set(Lock::held(&request, token, now));
        key.publish(now);
    }
    metrics::LOCK_GRANTED.hit();
    drop(keys);
    for name in names {
        ctx.notify(c"lock.granted", name);
    }
    Ok(Reply::Integer(token.get()))
}

fn renew(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    if args.reports_keys(ctx) {
        return Ok(Reply::Sent);
    }
    let names = args.keys(MOST_KEYS)?;
    let owner = args.owner()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut keys = open(ctx, &names)?;
    let is_held = |key: &mut Key<'_, Lock>| {
        key.value()
            .is_some_and(|lock| lock.can_renew(owner, token, now))
    };
    if !keys.iter_mut().all(is_held) {
        metrics::LOCK_LOST.hit();
        return Ok(Reply::Integer(0));
    }
    let shortest = keys
        .iter_mut()
        .zip(&names)
        .map(|(key, name)| extend(ctx, key, *name, owner, lease_ms, token, now))
        .min();
    metrics::LOCK_RENEWED.hit();
    Ok(Reply::Integer(shortest.unwrap_or(0)))
}

fn release_all(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    if args.reports_keys(ctx) {
        return Ok(Reply::Sent);
    }
    let names = args.keys(MOST_KEYS)?;
    let owner = args.owner()?;
    let token = args.token_option()?;
    let now = clock::now();

    drop(open(ctx, &names)?);
    let mut released = 0;
    for name in names {
        // One at a time: a release tells subscribers, who may change the other keys.
        let mut key = Key::<Lock>::open_to_write(ctx, name)?;
        if release(ctx, &mut key, name, owner, token, None, now) {
            released += 1;
        } else {
            metrics::LOCK_NOT_OWNER.hit();
        }
    }
    Ok(Reply::Integer(released))
}

/// Opens all keys. One of another type is an error before any is changed.
fn open<'a>(ctx: Context, names: &[Text<'a>]) -> Result<Vec<Key<'a, Lock>>, Error> {
    names
        .iter()
        .map(|name| Key::open_to_write(ctx, *name))
        .collect()
}

/// The token under which `owner` holds all keys, if that is one and the same: no two grants
/// have the same.
fn held_by_one_call(keys: &mut [Key<'_, Lock>], owner: &[u8], now: Micros) -> Option<Token> {
    let mut tokens = keys
        .iter_mut()
        .map(|key| key.value()?.exclusive_token_of(owner, now));
    let first = tokens.next()??;
    tokens.all(|token| token == Some(first)).then_some(first)
}

/// Extends one hold, and gives the lease that is left.
fn extend(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    owner: &[u8],
    lease_ms: u64,
    token: Option<Token>,
    now: Micros,
) -> u64 {
    let renewed = match key.value() {
        Some(lock) => lock.renew(owner, lease_ms, token, now),
        None => Renew::Lost,
    };
    match renewed {
        Renew::Lost => 0,
        Renew::Left(left, Some(change)) => {
            waiting::confirmed(ctx, name, owner);
            types::lock::publish(ctx, key, name, &change, now);
            waiting::moved(ctx, key, name, now);
            left
        }
        Renew::Left(left, None) => {
            waiting::confirmed(ctx, name, owner);
            types::lock::mend_ttl(key, owner, now);
            left
        }
    }
}
