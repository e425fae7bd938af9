//! RL.INFO key

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
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
    let mut fields = Vec::new();
    let is_used = limiter.is_used(now);
    if let Some(policy) = limiter.policy().filter(|_| is_used) {
        let verdict = Limiter::peek(Some(limiter), &policy, 1, now)?;
        let [_, limit, remaining, _, reset_ms] = verdict.reply();
        fields.push(("limit", limit));
        fields.extend(limiter.facts(now));
        fields.extend([("remaining", remaining), ("reset_ms", reset_ms)]);
    }
    fields.push(("blocked_ms", limiter.blocked_us(now).div_ceil(1000)));

    ctx.reply_map(1 + fields.len());
    ctx.reply_bytes(b"algorithm");
    let algorithm = if is_used { limiter.algorithm() } else { "none" };
    ctx.reply_bytes(algorithm.as_bytes());
    for (name, value) in fields {
        ctx.reply_integer_field(name, value);
    }
    Ok(Reply::Sent)
}
