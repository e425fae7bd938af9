//! LOCK.RELEASE key owner [TOKEN t] [KEEP ms]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, waiting};
use sluice_core::lock::Release;
use sluice_core::{parse, Error, Lock, Micros};

entry!(sluice_lock_release, "LOCK.RELEASE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let owner = args.owner()?;
    let (mut token, mut keep_ms) = (None, None);
    while let Some(word) = args.word() {
        if parse::is_word(word, "TOKEN") {
            parse::once(&mut token, args.value(|args| args.token("TOKEN"))?)?;
        } else if parse::is_word(word, "KEEP") {
            let range = 1..=settings::LOCK_MAX_LEASE_MS.get();
            parse::once(
                &mut keep_ms,
                args.value(|args| args.integer("KEEP", range))?,
            )?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let release = match key.value() {
        Some(lock) => lock.release(owner, token, keep_ms, now),
        None => Release::NotHeld,
    };
    match release {
        Release::NotHeld => {
            metrics::LOCK_NOT_OWNER.hit();
            return Ok(Reply::Integer(0));
        }
        Release::Freed => {
            hold_ended(&mut key, now);
            waiting::hand_over_or_remove(ctx, &mut key, name, now, c"lock.released");
        }
        Release::Kept(lock) => {
            hold_ended(&mut key, now);
            key.set(lock);
            key.publish(now);
            waiting::moved(ctx, &mut key, name);
            ctx.notify(c"lock.released", name);
            metrics::LOCK_KEPT.hit();
        }
    }
    metrics::LOCK_RELEASED.hit();
    Ok(Reply::Integer(1))
}

fn hold_ended(key: &mut Key<'_, Lock>, now: Micros) {
    if let Some(hold) = key.value().and_then(|lock| lock.hold()) {
        metrics::hold_ended(hold, now.floor_ms());
    }
}
