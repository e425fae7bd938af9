//! The commands that carry effects, from a primary to its replicas and from the append-only
//! file back into memory. Nobody else may send them.

use crate::boundary::args::Args;
use crate::boundary::context::{Context, Reply};
use crate::boundary::datatype::{self, DataType};
use crate::boundary::key::Key;
use crate::boundary::trampoline::entry;
use crate::{metrics, tokens};
use sluice_core::{Error, Guard, Limiter, Lock, Malformed, Micros, Semaphore, State, Token};
use std::ffi::CStr;

entry!(sluice_effect_lock, "sluice.lk", apply::<Lock>);
entry!(sluice_effect_semaphore, "sluice.sm", apply::<Semaphore>);
entry!(sluice_effect_guard, "sluice.fn", apply::<Guard>);
entry!(sluice_effect_limiter, "sluice.rl", apply::<Limiter>);
entry!(sluice_effect_token, "sluice.hw", raise_mark);

/// Applies an effect to a key, whatever that held before.
fn apply<T: DataType>(ctx: Context, mut args: Args<'_>) -> Result<Reply, Error> {
    let name = args.text()?;
    let (effect, now) = receive(ctx, args, T::EFFECT, T::VERSION, T::decode_effect)?;
    Key::<T>::open_to_overwrite(ctx, name).apply(effect, now);
    Ok(Reply::Ok)
}

fn raise_mark(ctx: Context, args: Args<'_>) -> Result<Reply, Error> {
    let decode = Token::from_effect;
    let (mark, _) = receive(ctx, args, tokens::EFFECT, Token::VERSION, decode)?;
    tokens::raise(mark);
    ctx.replicate_verbatim();
    Ok(Reply::Ok)
}

/// Checks where an effect comes from and decodes it.
fn receive<E>(
    ctx: Context,
    mut args: Args<'_>,
    name: &CStr,
    newest: u8,
    decode: impl FnOnce(&[u8]) -> Result<(E, Micros), Malformed>,
) -> Result<(E, Micros), Error> {
    let refused = |error| {
        metrics::EFFECTS_REFUSED.hit();
        error
    };
    if !ctx.is_from_primary_or_file() {
        return Err(refused(Error::EffectOrigin));
    }
    let blob = args.bytes()?;
    args.finish()?;
    decode(blob).map_err(|why| {
        datatype::refuse(name, newest, why);
        refused(match why {
            Malformed::Version(_) => Error::EffectVersion,
            Malformed::Corrupt => Error::EffectMalformed,
        })
    })
}
