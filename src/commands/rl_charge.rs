//! RL.CHARGE key <policy> [COST n]
//! RL.REFUND key <policy> [COST n]

use super::policy::{self, Costs};
use super::rl_limit;
use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::{Error, Limiter};

entry!(sluice_rl_charge, "RL.CHARGE", charge);
entry!(sluice_rl_refund, "RL.REFUND", refund);

fn charge(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let call = policy::named(&mut args, Costs::Any)?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    let (verdict, change) = Limiter::charge(key.value(), &call.policy, call.cost, now)?;
    limiters::commit(ctx, &mut key, name, change, now);
    metrics::calls(call.algorithm).charged.hit();
    Ok(rl_limit::reply(ctx, &verdict))
}

fn refund(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let call = policy::named(&mut args, Costs::Any)?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    let (verdict, change) = Limiter::refund(key.value(), &call.policy, call.cost, now)?;
    limiters::commit(ctx, &mut key, name, change, now);
    metrics::calls(call.algorithm).refunded.hit();
    Ok(rl_limit::reply(ctx, &verdict))
}
