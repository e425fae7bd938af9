//! LOCK.RELEASE key owner [TOKEN t] [KEEP ms]

use crate::boundary::args::{Args, Text};
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, sessions, settings, types, waiting};
use sluice_core::lock::Release;
use sluice_core::{parse, Error, Lock, Micros, Token};

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
            args.integer_option("KEEP", range, &mut keep_ms)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let released = release(ctx, &mut key, name, owner, token, keep_ms, now);
    if !released {
        metrics::LOCK_NOT_OWNER.hit();
    }
    Ok(Reply::Integer(released.into()))
}

/// Releases one hold of `owner`, and says whether there was one.
#[inline]
pub(super) fn release(
    ctx: Context,
    key: &mut Key<'_, Lock>,
    name: Text<'_>,
    owner: &[u8],
    token: Option<Token>,
    keep_ms: Option<u64>,
    now: Micros,
) -> bool {
    let release = match key.value() {
        Some(lock) => lock.release(owner, token, keep_ms, now),
        None => Release::NotHeld,
    };
    let held = |granted| metrics::LOCKS.held(now.floor_ms().since(granted));
    match release {
        Release::NotHeld => return false,
        Release::Freed { granted } => {
            held(granted);
            waiting::hand_over_or_remove(ctx, key, name, now, c"lock.released");
        }
        Release::Kept { lock, granted } => {
            held(granted);
            sessions::forget(ctx.db(), name.bytes(), |_| false);
            key.set(lock);
            key.publish(now);
            waiting::moved(ctx, key, name, now);
            metrics::LOCK_KEPT.hit();
            ctx.notify(c"lock.released", name);
        }
        Release::Held { change, ended } => {
            types::lock::publish(ctx, key, name, &change, now);
            if let Some(granted) = ended {
                held(granted);
                let lock = key.value();
                sessions::forget(ctx.db(), name.bytes(), |token| {
                    lock.as_ref().is_some_and(|lock| lock.has(token))
                });
            }
            waiting::moved(ctx, key, name, now);
            waiting::hand_on(ctx, key, name, now, Some(c"lock.released"));
        }
    }
    metrics::LOCK_RELEASED.hit();
    true
}
