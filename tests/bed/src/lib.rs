//! The test bed: real servers with the module, on a clock that the test sets.
//!
//! ```ignore
//! let server = sluice_testbed::single();          // pooled, clean, clock frozen
//! let mut conn = server.conn();
//! assert_eq!(cmd!(conn, "LOCK.ACQUIRE", "k", "me", 1000), int(1));
//! server.clock().advance_ms(1001);
//! ```
//!
//! [`single`] and [`chain`] are the quick way; [`Options`] starts a server of your own.

#[cfg(not(target_os = "linux"))]
compile_error!("the test bed uses LD_PRELOAD, /proc and PR_SET_PDEATHSIG: Linux only");

mod aof;
mod clock;
mod conn;
mod flavour;
mod options;
mod pool;
mod port;
mod reply;
mod reset;
mod server;
mod spawn;
mod topology;
mod wait;

pub use clock::Clock;
pub use conn::{Conn, ToArg};
pub use flavour::{flavour, module_path, Flavour, Kind};
pub use options::{Aof, Options, StartError};
pub use pool::{chain, single, Lease, Pooled, PooledChain, Single};
pub use reply::{array, bulk, err, int, nil, ok, status, Reply};
pub use server::Server;
pub use topology::Chain;
pub use wait::eventually;
