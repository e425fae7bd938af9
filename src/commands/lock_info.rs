//! LOCK.INFO key

use crate::boundary::args::Args;
use crate::boundary::clock;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{sessions, waiting};
use sluice_core::lock::Hold;
use sluice_core::{Error, Lock, Millis, Token};

entry!(sluice_lock_info, "LOCK.INFO", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    args.finish()?;
    let now = clock::now().floor_ms();

    let mut key = Key::<Lock>::open_to_read(ctx, name)?;
    // A foreign EXPIRE can end a lock before the deadline inside, never after it.
    let ttl = key.deadline();
    let Some(lock) = key.value().filter(|lock| !lock.is_over(now)) else {
        return Ok(Reply::Nil);
    };
    let ends = |deadline: Millis| ttl.map_or(deadline, |ttl| ttl.min(deadline)).since(now);

    let db = ctx.db();
    ctx.reply_map(5);
    ctx.reply_text_field("mode", lock.mode().as_bytes());
    ctx.reply_integer_field("token", lock.live_token(now).map_or(0, Token::get));
    ctx.reply_integer_field("ttl_ms", ends(lock.deadline()));
    ctx.reply_bytes(b"holders");
    ctx.reply_array(lock.live_holds(now).count());
    for hold in lock.live_holds(now) {
        let is_session = sessions::is_bound(db, name.bytes(), hold.token);
        reply_hold(ctx, hold, is_session, ends(hold.deadline), now);
    }
    ctx.reply_integer_field("waiters", waiting::len_of(ctx, name) as u64);
    Ok(Reply::Sent)
}

fn reply_hold(ctx: Context, hold: &Hold, is_session: bool, ttl_ms: u64, now: Millis) {
    ctx.reply_map(7);
    ctx.reply_text_field("owner", hold.holder.owner());
    ctx.reply_integer_field("token", hold.token.get());
    ctx.reply_integer_field("holds", u64::from(hold.holds));
    ctx.reply_integer_field("ttl_ms", ttl_ms);
    ctx.reply_integer_field("held_ms", now.since(hold.granted));
    ctx.reply_integer_field("session", is_session.into());
    ctx.reply_text_field("meta", hold.holder.meta());
}
