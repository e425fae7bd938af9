//! RL.GCRA and its like: RL.<algorithm> key <the policy's numbers> [COST n]

use super::policy::{self, Costs};
use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::limiter::{Algorithm, Verdict};
use sluice_core::{Error, Limiter};

entry!(sluice_rl_gcra, "RL.GCRA", gcra);
entry!(sluice_rl_tokenbucket, "RL.TOKENBUCKET", token_bucket);
entry!(sluice_rl_leakybucket, "RL.LEAKYBUCKET", leaky_bucket);
entry!(sluice_rl_fixedwindow, "RL.FIXEDWINDOW", fixed_window);
entry!(sluice_rl_slidingwindow, "RL.SLIDINGWINDOW", sliding_window);
entry!(sluice_rl_slidinglog, "RL.SLIDINGLOG", sliding_log);

fn gcra(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::Gcra)
}

fn token_bucket(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::TokenBucket)
}

fn leaky_bucket(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::LeakyBucket)
}

fn fixed_window(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::FixedWindow)
}

fn sliding_window(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::SlidingWindow)
}

fn sliding_log(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::SlidingLog)
}

#[inline]
fn limit(ctx: Context, mut args: Args<'_>, algorithm: Algorithm) -> Result<Reply, Error> {
    let name = args.text()?;
    let call = policy::of(algorithm, &mut args, Costs::UpToLimit)?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    let (verdict, change) = Limiter::decide(key.value(), &call.policy, call.cost, now)?;
    limiters::commit(ctx, &mut key, name, change, now);
    metrics::calls(algorithm).decided(verdict.allowed);
    Ok(reply(ctx, &verdict))
}

/// The five integers.
#[inline]
pub(super) fn reply(ctx: Context, verdict: &Verdict) -> Reply {
    let five = verdict.reply();
    ctx.reply_array(five.len());
    for integer in five {
        ctx.reply_integer(integer);
    }
    Reply::Sent
}
