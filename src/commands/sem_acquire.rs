//! SEM.ACQUIRE key holder lease_ms limit [PERMITS n] [BLOCK wait_ms] [SESSION] [META text]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::sessions::ClientId;
use crate::waiting::Kind;
use crate::{metrics, settings, tokens, types, waiting};
use sluice_core::semaphore::{Acquire, Request};
use sluice_core::{parse, Error, Identity, Semaphore};

entry!(sluice_sem_acquire, "SEM.ACQUIRE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let Options {
        request,
        wait_ms,
        is_session,
    } = options(args)?;
    if is_session && ctx.is_script() {
        return Err(Error::SessionInScript);
    }
    let now = clock::now();
    let session = is_session.then(|| ClientId(ctx.client_id()));

    let mut key = Key::<Semaphore>::open_to_write(ctx, name)?;
    let others_wait = waiting::queue_goes_first(ctx, &mut key, name, now)?;
    let high_water = tokens::high_water();
    let token = match Semaphore::acquire(key.value(), &request, others_wait, now, high_water)? {
        Acquire::Granted(semaphore, token) => {
            waiting::replaced(ctx, &mut key, name, now);
            tokens::raise(token);
            key.set(semaphore);
            key.publish(now);
            metrics::SEM_GRANTED.hit();
            ctx.notify(c"sem.granted", name);
            token
        }
        Acquire::Joined(token, change) => {
            tokens::raise(token);
            types::semaphore::publish(ctx, &mut key, name, &change, now);
            metrics::SEM_GRANTED.hit();
            ctx.notify(c"sem.granted", name);
            token
        }
        Acquire::Retried(token, change) => {
            waiting::confirmed(ctx, name, request.owner);
            match change {
                Some(change) => {
                    types::semaphore::publish(ctx, &mut key, name, &change, now);
                    waiting::moved(ctx, &mut key, name, now);
                }
                None => types::semaphore::mend_ttl(&mut key, token),
            }
            metrics::SEM_RETRIED.hit();
            token
        }
        Acquire::Busy => {
            waiting::check_place(ctx, name, &request)?;
            metrics::SEM_BUSY.hit();
            return match wait_ms {
                Some(wait_ms) if ctx.may_block() => {
                    let end = waiting::free_after(&mut key, now).unwrap_or(now.floor_ms());
                    waiting::join(ctx, name, &request, session, wait_ms, end)?;
                    Ok(Reply::Sent)
                }
                _ => Ok(Reply::Nil),
            };
        }
    };
    if let Some(client) = session {
        waiting::bind(ctx, Kind::Semaphore, name, request.owner, token, client);
    }
    Ok(Reply::Integer(token.get()))
}

struct Options<'a> {
    request: Request<'a>,
    /// BLOCK.
    wait_ms: Option<u64>,
    /// SESSION.
    is_session: bool,
}

/// What follows the key. An option is a word and its own branch.
fn options(mut args: Args<'_>) -> Result<Options<'_>, Error> {
    const PERMITS: std::ops::RangeInclusive<u64> = 1..=Semaphore::MAX_PERMITS as u64;
    let owner = args.holder()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let limit = args.integer("limit", PERMITS)?;
    let (mut permits, mut wait_ms, mut meta, mut session) = (None, None, None, None);
    while let Some(word) = args.word() {
        if parse::is_word(word, "PERMITS") {
            args.integer_option("PERMITS", PERMITS, &mut permits)?;
        } else if parse::is_word(word, "BLOCK") {
            let range = 1..=settings::LOCK_MAX_WAIT_MS.get();
            args.integer_option("BLOCK", range, &mut wait_ms)?;
        } else if parse::is_word(word, "META") {
            parse::once(&mut meta, args.value(Args::bytes)?)?;
        } else if parse::is_word(word, "SESSION") {
            parse::once(&mut session, ())?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let meta = meta.unwrap_or_default();
    let request = Request {
        owner,
        lease_ms,
        meta: parse::bytes("META", meta, 0..=Identity::MAX_META)?,
        permits: permits.unwrap_or(1) as u32,
        limit: limit as u32,
    };
    request.check()?;
    Ok(Options {
        request,
        wait_ms,
        is_session: session.is_some(),
    })
}
