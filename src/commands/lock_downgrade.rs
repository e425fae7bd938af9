//! LOCK.DOWNGRADE key owner [TOKEN t]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, waiting};
use sluice_core::lock::Downgrade;
use sluice_core::{Error, Lock};

entry!(sluice_lock_downgrade, "LOCK.DOWNGRADE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let owner = args.owner()?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let downgrade = match key.value() {
        Some(lock) => lock.downgrade(owner, token, now),
        None => Downgrade::NotHeld,
    };
    if downgrade != Downgrade::NotHeld {
        waiting::confirmed(ctx, name, owner);
    }
    match downgrade {
        Downgrade::NotHeld => Ok(Reply::Integer(0)),
        Downgrade::Already => Ok(Reply::Integer(1)),
        Downgrade::Shared(lock) => {
            key.set(lock);
            key.publish(now);
            metrics::LOCK_DOWNGRADED.hit();
            waiting::hand_on(ctx, &mut key, name, now, None);
            Ok(Reply::Integer(1))
        }
    }
}
