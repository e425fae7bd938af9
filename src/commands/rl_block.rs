//! RL.BLOCK key ms

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::log;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::limiter::policy::MAX_PERIOD_MS;
use sluice_core::{Error, Limiter};

entry!(sluice_rl_block, "RL.BLOCK", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let ms = args.integer("ms", 1..=MAX_PERIOD_MS)?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    let (penalty, change) = Limiter::block(key.value(), ms, now);
    let left_ms = penalty.left_us.div_ceil(1000);
    // A shorter one than stands changes nothing.
    if penalty.is_longer {
        log::notice(&format!(
            "RL.BLOCK {} for {left_ms} ms by {}",
            log::quoted(name.bytes()),
            ctx.describe_client()
        ));
    }
    limiters::commit(ctx, &mut key, name, change, now);
    metrics::RL_BLOCKS.hit();
    Ok(Reply::Integer(left_ms))
}
