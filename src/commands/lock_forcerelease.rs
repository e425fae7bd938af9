//! LOCK.FORCERELEASE key [TOKEN t]

use crate::boundary::args::Args;
use crate::boundary::context::{Context, Reply};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::boundary::{clock, log};
use crate::{metrics, waiting};
use sluice_core::{Error, Lock, Token};

entry!(sluice_lock_forcerelease, "LOCK.FORCERELEASE", run);

fn run(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let token = args.token_option()?;
    let now = clock::now();

    let mut key = Key::<Lock>::open_to_write(ctx, name)?;
    let Some(lock) = key.value() else {
        return Ok(Reply::Integer(0));
    };
    if !lock.can_force_release(token, now) {
        return Ok(Reply::Integer(0));
    }
    // One line, of what could be thousands of readers: the first, and how many more.
    let mut holds = lock.live_holds(now.floor_ms());
    let (whose, token) = match (holds.next(), holds.count()) {
        (None, _) => ("kept".to_string(), lock.token()),
        (Some(hold), more) => {
            let owner = log::quoted(hold.holder.owner());
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            (format!("owner={owner}{more}"), Some(hold.token))
        }
    };
    for hold in lock.live_holds(now.floor_ms()) {
        metrics::LOCKS.held(now.floor_ms().since(hold.granted));
    }
    let line = format!(
        "LOCK.FORCERELEASE key={} {whose} token={} by {}",
        log::quoted(name.bytes()),
        token.map_or(0, Token::get),
        ctx.describe_client()
    );
    log::notice(&line);
    waiting::hand_over_or_remove(ctx, &mut key, name, now, c"lock.forced");
    metrics::LOCK_FORCED.hit();
    Ok(Reply::Integer(1))
}
