//! LOCK.GUARD key token [PX ms]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::metrics;
use sluice_core::guard::Verdict;
use sluice_core::{parse, Error, Guard};

entry!(sluice_lock_guard, "LOCK.GUARD", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let token = args.token("token")?;
    let mut px = None;
    while let Some(word) = args.word() {
        if parse::is_word(word, "PX") {
            args.integer_option("PX", 1..=Guard::MAX_PX, &mut px)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let now = clock::now();

    let mut key = Key::<Guard>::open_to_write(ctx, name)?;
    let stored = key.value().copied();
    match Guard::check(stored.as_ref(), token, px.unwrap_or(Guard::DEFAULT_PX), now) {
        Verdict::Stale => {
            metrics::GUARD_STALE.hit();
            Ok(Reply::Integer(0))
        }
        Verdict::Accepted(guard) => {
            if stored != Some(guard) || key.has_strayed() {
                key.set(guard);
                key.publish(now);
            }
            metrics::GUARD_ACCEPTED.hit();
            Ok(Reply::Integer(1))
        }
    }
}
