//! CL.THROTTLE key max_burst count period_s [quantity]: the command of redis-cell, for
//! clients that know no other.

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{limiters, metrics};
use sluice_core::limiter::policy::{MAX_PERIOD_MS, MAX_TOKENS};
use sluice_core::limiter::{Algorithm, BucketPolicy, Policy, Verdict};
use sluice_core::{parse, Error, Limiter};

entry!(sluice_cl_throttle, "CL.THROTTLE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let burst = 1 + args.integer("max_burst", 0..=MAX_TOKENS - 1)? as u32;
    let count = args.integer("count", 1..=MAX_TOKENS)? as u32;
    let period_ms = 1000 * args.integer("period", 1..=MAX_PERIOD_MS / 1000)?;
    let quantity = match args.text() {
        Ok(text) => parse::signed("quantity", text.bytes(), MAX_TOKENS)?,
        Err(_) => 1,
    };
    args.finish()?;
    let policy = Policy::Bucket(BucketPolicy::new(burst, count, period_ms)?);
    let now = clock::now();

    let cost = quantity.unsigned_abs();
    let calls = metrics::calls(Algorithm::Gcra);
    if quantity == 0 {
        let mut key = Key::<Limiter>::open_to_read(ctx, name)?;
        let mut verdict = Limiter::peek(key.value().as_deref(), &policy, 0, now)?;
        // Nothing is asked for, which an overdraft denies as little as an empty bucket.
        verdict.allowed = key
            .value()
            .is_none_or(|limiter| limiter.blocked_us(now) == 0);
        calls.peeked.hit();
        return Ok(reply(ctx, &verdict, true));
    }
    let mut key = Key::<Limiter>::open_to_write(ctx, name)?;
    // More than the limit is never admitted: there is nothing to wait for.
    let is_possible = quantity < 0 || cost <= policy.limit();
    let (verdict, change) = if quantity < 0 {
        Limiter::refund(key.value(), &policy, cost, now)?
    } else if is_possible {
        Limiter::decide(key.value(), &policy, cost, now)?
    } else {
        let verdict = Limiter::peek(key.value().as_deref(), &policy, cost, now)?;
        (verdict, Limiter::refuse(key.value(), &policy, now)?)
    };
    if quantity < 0 {
        calls.refunded.hit();
    } else {
        calls.decided(verdict.allowed);
    }
    limiters::commit(ctx, &mut key, name, change, now);
    Ok(reply(ctx, &verdict, is_possible))
}

/// Limited, limit, remaining, retry_after_s (−1: none), reset_after_s.
fn reply(ctx: Context, verdict: &Verdict, retries: bool) -> Reply {
    let [retry_s, reset_s] = verdict.seconds();
    ctx.reply_array(5);
    ctx.reply_integer((!verdict.allowed).into());
    ctx.reply_integer(verdict.limit);
    ctx.reply_integer(verdict.remaining);
    if verdict.allowed || !retries {
        ctx.reply_none();
    } else {
        ctx.reply_integer(retry_s);
    }
    ctx.reply_integer(reset_s);
    Reply::Sent
}
