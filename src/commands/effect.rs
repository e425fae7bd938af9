//! The commands that carry effects, from a primary to its replicas and from the append-only
//! file back into memory. Nobody else may send them.

use crate::boundary::args::Args;
use crate::boundary::context::{Context, Reply};
use crate::boundary::datatype::{self, DataType};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, tokens};
use sluice_core::{Error, Guard, Limiter, Lock, Malformed, State};
use std::ffi::CStr;

entry!(sluice_effect_lock, "sluice.lk", apply::<Lock>);
entry!(sluice_effect_guard, "sluice.fn", apply::<Guard>);
entry!(sluice_effect_limiter, "sluice.rl", apply::<Limiter>);
entry!(sluice_effect_token, "sluice.hw", raise_mark);

/// Sets the whole state of a key, whatever it held before.
fn apply<T: DataType>(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let state: T = receive(ctx, args, T::EFFECT)?;
    state.received();
    Key::open_to_overwrite(ctx, name).apply(state);
    Ok(Reply::Ok)
}

fn raise_mark(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    tokens::raise(receive(ctx, args, tokens::EFFECT)?);
    ctx.replicate_verbatim();
    Ok(Reply::Ok)
}

/// Checks where an effect comes from and decodes it.
fn receive<S: State>(ctx: Context, mut args: Args<'_>, effect: &CStr) -> Result<S, Error> {
    let refused = |error| {
        metrics::EFFECTS_REFUSED.hit();
        error
    };
    if !ctx.is_from_primary_or_file() {
        return Err(refused(Error::EffectOrigin));
    }
    let blob = args.bytes()?;
    args.finish()?;
    let (state, _primary_clock) = S::from_effect(blob).map_err(|why| {
        datatype::refuse(effect, S::VERSION, why);
        refused(match why {
            Malformed::Version(_) => Error::EffectVersion,
            Malformed::Corrupt => Error::EffectMalformed,
        })
    })?;
    Ok(state)
}
