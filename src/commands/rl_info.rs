//! RL.INFO key

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use sluice_core::limiter::Policy;
use sluice_core::{Error, Limiter};

entry!(sluice_rl_info, "RL.INFO", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_read(ctx, name)?;
    let Some(limiter) = key.value().filter(|limiter| !limiter.is_drained(now)) else {
        return Ok(Reply::Nil);
    };
    let policy = limiter.policy();
    let [_, limit, remaining, _, reset_ms] = Limiter::peek(Some(limiter), &policy, 1, now).reply();
    let Policy::Bucket(bucket) = policy;

    ctx.reply_map(6);
    ctx.reply_bytes(b"algorithm");
    ctx.reply_bytes(b"bucket");
    ctx.reply_bytes(b"limit");
    ctx.reply_integer(limit);
    ctx.reply_bytes(b"count");
    ctx.reply_integer(u64::from(bucket.count()));
    ctx.reply_bytes(b"period_ms");
    ctx.reply_integer(bucket.period_ms());
    ctx.reply_bytes(b"remaining");
    ctx.reply_integer(remaining);
    ctx.reply_bytes(b"reset_ms");
    ctx.reply_integer(reset_ms);
    Ok(Reply::Sent)
}
