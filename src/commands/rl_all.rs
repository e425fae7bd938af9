//! RL.ALL numkeys key [key …] <policy [COST n]> [<policy [COST n]> …]

use super::policy::{self, Call, Costs};
use super::rl_limit;
use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::limiter::Verdict;
use sluice_core::{Error, Limiter};

entry!(sluice_rl_all, "RL.ALL", run);

/// The most keys one call may name.
const MOST_KEYS: u64 = 64;

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    if args.reports_keys(ctx) {
        return Ok(Reply::Sent);
    }
    let names = args.keys(MOST_KEYS)?;
    let calls = names
        .iter()
        .map(|_| policy::named(&mut args, Costs::UpToLimit))
        .collect::<Result<Vec<Call>, Error>>()?;
    args.finish()?;
    let now = clock::now();

    let mut keys = names
        .iter()
        .map(|name| Key::<Limiter>::open_to_write(ctx, *name))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut verdicts = keys
        .iter_mut()
        .zip(&calls)
        .map(|(key, call)| Limiter::peek(key.value().as_deref(), &call.policy, call.cost, now))
        .collect::<Result<Vec<Verdict>, Error>>()?;

    let binding = Verdict::binding(&verdicts);
    for (i, (key, call)) in keys.iter_mut().zip(&calls).enumerate() {
        let change = match binding {
            Some(_) => Limiter::refuse(key.value(), &call.policy, now)?,
            None => {
                let decided = Limiter::decide(key.value(), &call.policy, call.cost, now)?;
                verdicts[i] = decided.0;
                decided.1
            }
        };
        limiters::commit(ctx, key, names[i], change, now);
        if binding.is_none() || !verdicts[i].allowed {
            metrics::calls(call.algorithm).decided(verdicts[i].allowed);
        }
    }

    ctx.reply_array(2 + verdicts.len());
    ctx.reply_integer(binding.is_none().into());
    match binding {
        Some(index) => ctx.reply_integer(index as u64),
        None => ctx.reply_none(),
    }
    for verdict in &verdicts {
        rl_limit::reply(ctx, verdict);
    }
    Ok(Reply::Sent)
}
