//! RL.GCRA and its like: RL.<algorithm> key <the policy's numbers> [COST n]

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::limiter::{Algorithm, Change, Policy, Verdict};
use sluice_core::{parse, Error, Limiter};

entry!(sluice_rl_gcra, "RL.GCRA", gcra);
entry!(sluice_rl_tokenbucket, "RL.TOKENBUCKET", token_bucket);

fn gcra(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::Gcra)
}

fn token_bucket(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    limit(ctx, args, Algorithm::TokenBucket)
}

#[inline]
fn limit(ctx: Context, mut args: Args<'_>, algorithm: Algorithm) -> Result<Reply, Error> {
    let name = args.text()?;
    let (policy, cost) = policy_and_cost(args, algorithm)?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    let (verdict, change) = Limiter::decide(key.value().as_deref(), &policy, cost, now);
    match change {
        Change::None { until } => key.outlive(until),
        Change::Rebased { state, until } => {
            key.set(state);
            limiters::publish(ctx, &mut key, name, true, now);
            key.outlive(until);
        }
        Change::Charged(state) => {
            // Another policy is never kept back: a replica would go on reading the debt
            // under the old one.
            let policy_changed = key.value().is_none_or(|stored| stored.policy() != policy);
            key.set(state);
            limiters::publish(ctx, &mut key, name, policy_changed, now);
        }
    }
    metrics::verdict(algorithm, verdict.allowed).hit();
    Ok(reply(ctx, &verdict))
}

/// Reads a policy's numbers and the options behind it, to the end.
pub(super) fn policy_and_cost(
    mut args: Args<'_>,
    algorithm: Algorithm,
) -> Result<(Policy, u64), Error> {
    let policy = algorithm.policy([args.bytes()?, args.bytes()?, args.bytes()?])?;
    let mut cost = None;
    while let Some(word) = args.word() {
        if parse::is_word(word, "COST") {
            let value = args.value(|args| policy.cost(args.bytes()?))?;
            parse::once(&mut cost, value)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((policy, cost.unwrap_or(1)))
}

/// The five integers.
pub(super) fn reply(ctx: Context, verdict: &Verdict) -> Reply {
    let five = verdict.reply();
    ctx.reply_array(five.len());
    for integer in five {
        ctx.reply_integer(integer);
    }
    Reply::Sent
}
