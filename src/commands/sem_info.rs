//! SEM.INFO key

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{sessions, waiting};
use sluice_core::semaphore::Hold;
use sluice_core::{Error, Millis, Semaphore};

entry!(sluice_sem_info, "SEM.INFO", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    args.finish()?;
    let now = clock::now().floor_ms();

    let mut key = Key::<Semaphore>::open_to_read(ctx, name)?;
    // A foreign EXPIRE can end it before the deadline inside, never after it.
    let ttl = key.deadline();
    let Some(semaphore) = key.value().filter(|semaphore| !semaphore.is_over(now)) else {
        return Ok(Reply::Nil);
    };
    let ends = |deadline: Millis| ttl.map_or(deadline, |ttl| ttl.min(deadline)).since(now);
    let (holders, permits) = semaphore
        .live_holds(now)
        .fold((0, 0), |(holders, permits), hold| {
            (holders + 1, permits + u64::from(hold.permits))
        });

    let db = ctx.db();
    ctx.reply_map(4);
    ctx.reply_integer_field("permits", permits);
    ctx.reply_integer_field("ttl_ms", ends(semaphore.deadline()));
    ctx.reply_bytes(b"holders");
    ctx.reply_array(holders);
    for hold in semaphore.live_holds(now) {
        let is_session = sessions::is_bound(db, name.bytes(), hold.token);
        reply_hold(ctx, hold, is_session, ends(hold.deadline), now);
    }
    ctx.reply_integer_field("waiters", waiting::len_of(ctx, name) as u64);
    Ok(Reply::Sent)
}

fn reply_hold(ctx: Context, hold: &Hold, is_session: bool, ttl_ms: u64, now: Millis) {
    ctx.reply_map(7);
    ctx.reply_text_field("holder", hold.holder.owner());
    ctx.reply_integer_field("token", hold.token.get());
    ctx.reply_integer_field("permits", u64::from(hold.permits));
    ctx.reply_integer_field("ttl_ms", ttl_ms);
    ctx.reply_integer_field("held_ms", now.since(hold.granted));
    ctx.reply_integer_field("session", is_session.into());
    ctx.reply_text_field("meta", hold.holder.meta());
}
