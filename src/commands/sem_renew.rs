//! SEM.RENEW key holder lease_ms [TOKEN t]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, types, waiting};
use sluice_core::semaphore::Renew;
use sluice_core::{Error, Semaphore};

entry!(sluice_sem_renew, "SEM.RENEW", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let holder = args.holder()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut key = Key::<Semaphore>::open_to_write(ctx, name)?;
    let renewed = match key.value() {
        Some(semaphore) => semaphore.renew(holder, lease_ms, token, now),
        None => Renew::Lost,
    };
    match renewed {
        Renew::Lost => {
            metrics::SEM_LOST.hit();
            Ok(Reply::Integer(0))
        }
        Renew::Left(left, token, change) => {
            waiting::confirmed(ctx, name, holder);
            match change {
                Some(change) => {
                    types::semaphore::publish(ctx, &mut key, name, &change, now);
                    waiting::moved(ctx, &mut key, name, now);
                }
                None => types::semaphore::mend_ttl(&mut key, token),
            }
            metrics::SEM_RENEWED.hit();
            Ok(Reply::Integer(left))
        }
    }
}
