//! The pure core of Sluice: integers in, a decision out.
//!
//! Nothing here knows a server. There is no FFI, no clock and no global: the caller passes
//! the instant and the token high-water mark in, and stores, propagates and replies what it
//! is told. That is what makes every rule here checkable against a slow, obvious model (see
//! `tests/`).

pub mod codec;
pub mod error;
pub mod guard;
pub mod holders;
pub mod identity;
pub mod limiter;
pub mod lock;
pub mod parse;
pub mod semaphore;
pub mod state;
pub mod time;
pub mod token;
pub mod waiting;

pub use codec::{Blob, Malformed};
pub use error::Error;
pub use guard::Guard;
pub use identity::Identity;
pub use limiter::Limiter;
pub use lock::Lock;
pub use semaphore::Semaphore;
pub use state::State;
pub use time::{Micros, Millis};
pub use token::Token;
