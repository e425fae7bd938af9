//! The integration suite, one file per concern.

mod acl;
mod acquire;
mod cases;
mod config;
mod effects;
mod expiry;
mod faults;
mod force_release;
mod guard;
mod info;
mod keyspace;
mod memory;
mod metadata;
mod persistence;
mod release;
mod renew;
mod replication;
mod restore;
mod scripts_and_transactions;
mod support;
mod tokens;
mod watch_and_tracking;
