//! LOCK.RENEW key owner lease_ms [TOKEN t]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, settings, types, waiting};
use sluice_core::lock::Renew;
use sluice_core::{Error, Lock};

entry!(sluice_lock_renew, "LOCK.RENEW", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let owner = args.owner()?;
    let lease_ms = args.integer("lease_ms", 1..=settings::LOCK_MAX_LEASE_MS.get())?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let renewed = match key.value() {
        Some(lock) => lock.renew(owner, lease_ms, token, now),
        None => Renew::Lost,
    };
    match renewed {
        Renew::Lost => {
            metrics::LOCK_LOST.hit();
            Ok(Reply::Integer(0))
        }
        Renew::Left(left, change) => {
            waiting::confirmed(ctx, name, owner);
            match change {
                Some(change) => {
                    types::lock::publish(ctx, &mut key, name, &change, now);
                    waiting::moved(ctx, &mut key, name, now);
                }
                None => types::lock::mend_ttl(&mut key, owner, now),
            }
            metrics::LOCK_RENEWED.hit();
            Ok(Reply::Integer(left))
        }
    }
}
