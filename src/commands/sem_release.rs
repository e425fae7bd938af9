//! SEM.RELEASE key holder [TOKEN t]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, waiting};
use sluice_core::{Error, Semaphore};

entry!(sluice_sem_release, "SEM.RELEASE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let holder = args.holder()?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut key = Key::<Semaphore>::open_to_write(ctx, name)?;
    let given_back = waiting::give_back(ctx, &mut key, name, holder, token, now);
    match given_back {
        Some(_) => metrics::SEM_RELEASED.hit(),
        None => metrics::SEM_NOT_HOLDER.hit(),
    }
    Ok(Reply::Integer(given_back.map_or(0, u64::from)))
}
