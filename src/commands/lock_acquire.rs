//! LOCK.ACQUIRE key owner lease_ms [META text]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, tokens};
use sluice_core::lock::{Acquire, Request};
use sluice_core::{parse, Error, Identity, Lock};

entry!(sluice_lock_acquire, "LOCK.ACQUIRE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let request = request(args)?;
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    match Lock::acquire(key.value(), &request, now, tokens::high_water())? {
        Acquire::Granted(lock, token) => {
            tokens::raise(token);
            // Granted over a stored hold: its lease ran out before its key did.
            if key.value().is_some_and(|lock| lock.hold().is_some()) {
                metrics::LOCK_EXPIRED.hit();
            }
            key.set(lock);
            key.publish(now);
            metrics::LOCK_GRANTED.hit();
            Ok(Reply::Integer(token.get()))
        }
        Acquire::Retried { token, extended } => {
            if extended {
                key.publish(now);
            } else {
                key.publish_if_ttl_strayed(now);
            }
            metrics::LOCK_RETRIED.hit();
            Ok(Reply::Integer(token.get()))
        }
        Acquire::Busy => {
            metrics::LOCK_BUSY.hit();
            Ok(Reply::Nil)
        }
    }
}

/// What follows the key. An option is a word and its own `if`.
fn request(mut args: Args<'_>) -> Result<Request<'_>, Error> {
    let owner = args.owner()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let mut meta = None;
    while let Some(word) = args.word() {
        if parse::is_word(word, "META") {
            parse::once(&mut meta, args.value(Args::bytes)?)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(Request {
        owner,
        lease_ms,
        meta: parse::bytes("META", meta.unwrap_or_default(), 0..=Identity::MAX_META)?,
    })
}
