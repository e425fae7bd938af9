//! RL.PEEK key <policy> [COST n]

use super::policy::{self, Costs};
use super::rl_limit;
use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::metrics;
use sluice_core::{Error, Limiter};

entry!(sluice_rl_peek, "RL.PEEK", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let call = policy::named(&mut args, Costs::UpToLimit)?;
    args.finish()?;
    let now = clock::now();

    let mut key = Key::<Limiter>::open_to_read(ctx, name)?;
    let verdict = Limiter::peek(key.value().as_deref(), &call.policy, call.cost, now)?;
    metrics::calls(call.algorithm).peeked.hit();
    Ok(rl_limit::reply(ctx, &verdict))
}
