//! LOCK.ACQUIRE key owner lease_ms [BLOCK wait_ms] [META text]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, tokens, waiting};
use sluice_core::lock::{Acquire, Request};
use sluice_core::{parse, Error, Identity, Lock};

entry!(sluice_lock_acquire, "LOCK.ACQUIRE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let (request, wait_ms) = request(args)?;
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    if !waiting::queue_goes_first(ctx, &mut key, name, now) {
        metrics::LOCK_BUSY.hit();
        return Ok(Reply::Nil);
    }
    match Lock::acquire(key.value(), &request, now, tokens::high_water())? {
        Acquire::Granted(lock, token) => {
            tokens::raise(token);
            // Granted over a stored hold: its lease ran out before its key did.
            if let Some(lapsed) = key.value().filter(|lock| lock.hold().is_some()) {
                metrics::lease_expired(lapsed);
            }
            key.set(lock);
            key.publish(now);
            ctx.notify(c"lock.granted", name);
            metrics::LOCK_GRANTED.hit();
            Ok(Reply::Integer(token.get()))
        }
        Acquire::Retried { token, extended } => {
            if extended {
                key.publish(now);
                waiting::moved(ctx, &mut key, name);
            } else {
                key.publish_if_ttl_strayed(now);
            }
            metrics::LOCK_RETRIED.hit();
            Ok(Reply::Integer(token.get()))
        }
        Acquire::Busy => {
            metrics::LOCK_BUSY.hit();
            match wait_ms {
                Some(wait_ms) if ctx.may_block() => {
                    let lease = waiting::free_after(&mut key).unwrap_or(now.floor_ms());
                    waiting::join(ctx, name, &request, wait_ms, lease)?;
                    Ok(Reply::Sent)
                }
                _ => Ok(Reply::Nil),
            }
        }
    }
}

/// What follows the key. An option is a word and its own `if`.
fn request(mut args: Args<'_>) -> Result<(Request<'_>, Option<u64>), Error> {
    let owner = args.owner()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let (mut meta, mut wait_ms) = (None, None);
    while let Some(word) = args.word() {
        if parse::is_word(word, "BLOCK") {
            let range = 1..=settings::LOCK_MAX_WAIT_MS.get();
            parse::once(
                &mut wait_ms,
                args.value(|args| args.integer("BLOCK", range))?,
            )?;
        } else if parse::is_word(word, "META") {
            parse::once(&mut meta, args.value(Args::bytes)?)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let request = Request {
        owner,
        lease_ms,
        meta: parse::bytes("META", meta.unwrap_or_default(), 0..=Identity::MAX_META)?,
    };
    Ok((request, wait_ms))
}
