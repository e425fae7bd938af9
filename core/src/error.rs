//! Every error a command can answer, and its exact text on the wire.

use crate::Semaphore;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An unknown, repeated or contradictory option, or one without its value.
    Syntax,
    WrongArity,
    WrongType,
    /// `name` is not a decimal integer in `min..=max`.
    Range {
        name: &'static str,
        min: u64,
        max: u64,
    },
    /// `name` is not a decimal integer in `-most..=most`.
    SignedRange {
        name: &'static str,
        most: u64,
    },
    /// `name` has too few or too many bytes.
    Length {
        name: &'static str,
        min: usize,
        max: usize,
    },
    /// A cost that no waiting would ever admit.
    CostAboveLimit {
        cost: u64,
        limit: u64,
    },
    /// A bucket policy beyond what its arithmetic is exact for.
    DrainTooLong,
    /// A SLIDINGLOG longer than the operator allows.
    LogLimit {
        max: u32,
    },
    /// A debt beyond what the arithmetic is exact for.
    ChargeTooLarge,
    /// The key is in use with another algorithm.
    OtherAlgorithm {
        holds: &'static str,
        wanted: &'static str,
    },
    /// As many clients wait for the key as may.
    QueueFull,
    /// More permits than the limit, which no waiting would ever grant.
    PermitsAboveLimit {
        permits: u32,
        limit: u32,
    },
    /// The holder holds, or waits for, another number of permits than it asks for now.
    PermitsChanged {
        permits: u32,
    },
    /// As many hold permits of the key as may.
    TooManyHolders,
    /// The key's slot left this node while a client waited.
    SlotMoved,
    /// SESSION in a script, which has no connection of its own.
    SessionInScript,
    /// More keys named than there are arguments.
    TooFewKeys,
    /// One key twice in a command that takes several.
    SameKeyTwice,
    /// The counter stands at 2^53 − 1: the clock is past the year 2255, or a primary or
    /// RDB file brought a token that high.
    TokensExhausted,
    /// An ordinary client sent one of the commands by which state is replicated.
    EffectOrigin,
    /// An effect of a newer module version; upgrade replicas before their primary.
    EffectVersion,
    EffectMalformed,
    /// A bug: a callback panicked. The server's log has the message.
    Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Syntax => f.write_str("ERR syntax error"),
            Error::WrongArity => f.write_str("ERR wrong number of arguments"),
            Error::WrongType => {
                f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Error::Range { name, min, max } => {
                write!(f, "ERR {name} must be an integer between {min} and {max}")
            }
            Error::SignedRange { name, most } => {
                write!(
                    f,
                    "ERR {name} must be an integer between -{most} and {most}"
                )
            }
            Error::Length { name, min, max } => {
                write!(f, "ERR {name} must be between {min} and {max} bytes long")
            }
            Error::CostAboveLimit { cost, limit } => write!(
                f,
                "ERR COST {cost} is above the limit of {limit}: it can never be admitted"
            ),
            Error::DrainTooLong => {
                f.write_str("ERR a full bucket must drain within 100 years: check the policy")
            }
            Error::LogLimit { max } => write!(
                f,
                "ERR limit must be an integer between 1 and {max} (sluice.rl-max-log-entries)"
            ),
            Error::ChargeTooLarge => {
                f.write_str("ERR the charge would take more than 100 years to drain")
            }
            Error::OtherAlgorithm { holds, wanted } => {
                write!(f, "ERR key holds a {holds} limiter, not {wanted}")
            }
            Error::QueueFull => f.write_str("QUEUEFULL too many clients wait for this key"),
            Error::PermitsAboveLimit { permits, limit } => write!(
                f,
                "ERR PERMITS {permits} is above the limit of {limit}: it can never be granted"
            ),
            Error::PermitsChanged { permits } => {
                let s = if *permits == 1 { "" } else { "s" };
                write!(
                    f,
                    "ERR this holder asked for {permits} permit{s} before: PERMITS cannot change"
                )
            }
            Error::TooManyHolders => {
                let most = Semaphore::MAX_HOLDERS;
                write!(f, "ERR a semaphore has at most {most} holders")
            }
            Error::SlotMoved => {
                f.write_str("TRYAGAIN the key's slot is moving: ask again where it is served")
            }
            Error::SessionInScript => f.write_str(
                "ERR SESSION is not possible in a script: it has no connection to bind to",
            ),
            Error::TooFewKeys => f.write_str("ERR numkeys is more than the keys that follow"),
            Error::SameKeyTwice => f.write_str("ERR the same key is given twice"),
            Error::TokensExhausted => {
                f.write_str("ERR no fencing token is left below 2^53: check the server's clock")
            }
            Error::EffectOrigin => f.write_str(
                "ERR internal command: accepted only from the primary or the append-only file",
            ),
            Error::EffectVersion => {
                f.write_str("ERR effect of a newer sluice version: upgrade replicas first")
            }
            Error::EffectMalformed => f.write_str("ERR malformed effect"),
            Error::Internal => f.write_str("ERR internal error in sluice: see the server log"),
        }
    }
}

impl std::error::Error for Error {}
