//! The arguments `<policy> [COST n]`, as every command of the limiters reads them.

use crate::boundary::args::Args;
use crate::settings;
use sluice_core::limiter::{Algorithm, Policy};
use sluice_core::{parse, Error};

/// A policy, and what a call under it costs.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) algorithm: Algorithm,
    pub(super) policy: Policy,
    pub(super) cost: u64,
}

/// How much a call may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Costs {
    /// What can be admitted: the limit.
    UpToLimit,
    /// What is counted without asking.
    Any,
}

/// `<algorithm> numbers… [COST n]`, up to whatever else follows.
pub(super) fn named(args: &mut Args<'_>, costs: Costs) -> Result<Call, Error> {
    let algorithm = Algorithm::named(args.bytes()?)?;
    of(algorithm, args, costs)
}

/// The same behind a command whose name says the algorithm.
#[inline]
pub(super) fn of(algorithm: Algorithm, args: &mut Args<'_>, costs: Costs) -> Result<Call, Error> {
    let mut numbers = [&b""[..]; Algorithm::MOST_PARAMETERS];
    let numbers = &mut numbers[..algorithm.parameters().len()];
    for number in numbers.iter_mut() {
        *number = args.bytes()?;
    }
    let most_entries = settings::RL_MAX_LOG_ENTRIES.get() as u32;
    let mut policy = algorithm.policy(numbers, most_entries)?;
    let (mut cost, mut align) = (None, None);
    while let Some(word) = args.next_word() {
        if parse::is_word(word, "COST") {
            args.text()?;
            let value = args.value(|args| match costs {
                Costs::UpToLimit => policy.cost(args.bytes()?),
                Costs::Any => Policy::amount(args.bytes()?),
            })?;
            parse::once(&mut cost, value)?;
        } else if parse::is_word(word, "ALIGN") {
            args.text()?;
            policy = args.value(|args| policy.aligned(args.bytes()?))?;
            parse::once(&mut align, ())?;
        } else {
            break;
        }
    }
    Ok(Call {
        algorithm,
        policy,
        cost: cost.unwrap_or(1),
    })
}
