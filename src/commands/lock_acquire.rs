//! LOCK.ACQUIRE key owner lease_ms [SHARED] [REENTRANT] [BLOCK wait_ms] [MAXHOLD ms]
//! [SESSION] [META text]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::sessions::ClientId;
use crate::waiting::Kind;
use crate::{metrics, settings, tokens, types, waiting};
use sluice_core::lock::{Acquire, Request};
use sluice_core::{parse, Error, Identity, Lock};

entry!(sluice_lock_acquire, "LOCK.ACQUIRE", run);

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
    let mut session = is_session.then(|| ClientId(ctx.client_id()));

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let others_wait = waiting::queue_goes_first(ctx, &mut key, name, now)?;
    let high_water = tokens::high_water();
    let token = match Lock::acquire(key.value(), &request, others_wait, now, high_water)? {
        Acquire::Granted(lock, token) => {
            let owner = request.owner;
            session = session.or(waiting::upgraded_connection(
                ctx, &mut key, name, owner, now,
            ));
            waiting::replaced(ctx, &mut key, name, now);
            tokens::raise(token);
            key.set(lock);
            key.publish(now);
            waiting::moved(ctx, &mut key, name, now);
            metrics::LOCK_GRANTED.hit();
            ctx.notify(c"lock.granted", name);
            token
        }
        Acquire::Joined(token, change) => {
            tokens::raise(token);
            types::lock::publish(ctx, &mut key, name, &change, now);
            metrics::LOCK_GRANTED.hit();
            ctx.notify(c"lock.granted", name);
            token
        }
        Acquire::Retried(token, change) => {
            waiting::confirmed(ctx, name, request.owner);
            match change {
                Some(change) => {
                    types::lock::publish(ctx, &mut key, name, &change, now);
                    waiting::moved(ctx, &mut key, name, now);
                }
                None => types::lock::mend_ttl(&mut key, request.owner, now),
            }
            if request.is_reentrant {
                metrics::LOCK_REENTERED.hit();
            } else {
                metrics::LOCK_RETRIED.hit();
            }
            token
        }
        Acquire::Busy { is_upgrade } => {
            metrics::LOCK_BUSY.hit();
            return match wait_ms {
                Some(wait_ms) if !is_upgrade && ctx.may_block() => {
                    let end = waiting::free_after(&mut key, now).unwrap_or(now.floor_ms());
                    waiting::join(ctx, name, &request, session, wait_ms, end)?;
                    Ok(Reply::Sent)
                }
                _ => Ok(Reply::Nil),
            };
        }
    };
    if let Some(client) = session {
        waiting::bind(ctx, Kind::Lock, name, request.owner, token, client);
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
#[inline]
fn options(mut args: Args<'_>) -> Result<Options<'_>, Error> {
    let owner = args.owner()?;
    let longest = settings::LOCK_MAX_LEASE_MS.get();
    let lease_ms = args.integer("lease_ms", 1..=longest)?;
    let (mut meta, mut wait_ms, mut maxhold_ms) = (None, None, None);
    let (mut shared, mut reentrant, mut session) = (None, None, None);
    while let Some(word) = args.word() {
        if parse::is_word(word, "BLOCK") {
            let range = 1..=settings::LOCK_MAX_WAIT_MS.get();
            args.integer_option("BLOCK", range, &mut wait_ms)?;
        } else if parse::is_word(word, "META") {
            parse::once(&mut meta, args.value(Args::bytes)?)?;
        } else if parse::is_word(word, "SHARED") {
            parse::once(&mut shared, ())?;
        } else if parse::is_word(word, "REENTRANT") {
            parse::once(&mut reentrant, ())?;
        } else if parse::is_word(word, "SESSION") {
            parse::once(&mut session, ())?;
        } else if parse::is_word(word, "MAXHOLD") {
            let range = 1..=longest;
            args.integer_option("MAXHOLD", range, &mut maxhold_ms)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let meta = meta.unwrap_or_default();
    Ok(Options {
        request: Request {
            owner,
            lease_ms,
            meta: parse::bytes("META", meta, 0..=Identity::MAX_META)?,
            is_shared: shared.is_some(),
            is_reentrant: reentrant.is_some(),
            maxhold_ms,
        },
        wait_ms,
        is_session: session.is_some(),
    })
}
