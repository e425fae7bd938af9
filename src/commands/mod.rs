//! The commands: one table that declares them all, one small file for each.
//!
//! A body parses its arguments, asks the core for a decision, stores it, publishes its
//! effect and says what to reply, in that order: whatever can fail does so before anything
//! is changed.

mod cl_throttle;
mod effect;
mod lock_acquire;
mod lock_downgrade;
mod lock_forcerelease;
mod lock_guard;
mod lock_info;
mod lock_multi;
mod lock_release;
mod lock_renew;
mod policy;
mod rl_all;
mod rl_block;
mod rl_charge;
mod rl_info;
mod rl_limit;
mod rl_peek;
mod rl_reset;
mod sem_acquire;
mod sem_info;
mod sem_release;
mod sem_renew;
mod table;

pub(crate) use table::COMMANDS;
