//! The boundary with the server: the only room with `unsafe` in it, together with the data
//! type callbacks.
//!
//! Everything the server calls comes in through [`trampoline`]. Arguments and keys are
//! borrowed, replies are integers or written in place, and nothing here allocates on the
//! path of a command that succeeds.

pub(crate) mod api;
pub(crate) mod args;
pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod datatype;
pub(crate) mod events;
pub(crate) mod fault;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod log;
pub(crate) mod settings;
pub(crate) mod timer;
pub(crate) mod trampoline;
