//! RL.RESET key [key …]

use crate::boundary::args::Args;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::log;
use crate::boundary::trampoline::entry;
use crate::metrics;
use sluice_core::{Error, Limiter};

entry!(sluice_rl_reset, "RL.RESET", run);

fn run(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    // All are looked at before one is touched: a key of another type resets nothing.
    for name in args.clone().texts() {
        Key::<Limiter>::open_to_read(ctx, name)?;
    }
    let (mut reset, mut first) = (0, None);
    for name in args.texts() {
        let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
        if key.value().is_some() {
            key.remove();
            reset += 1;
            first = first.or(Some(name));
        }
    }
    if let Some(first) = first {
        log::notice(&format!(
            "RL.RESET {reset} keys, the first {} by {}",
            log::quoted(first.bytes()),
            ctx.describe_client()
        ));
    }
    metrics::RL_RESET.add(reset);
    Ok(Reply::Integer(reset))
}
