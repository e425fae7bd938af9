//! Servers that are used by one test after the other.
//!
//! A start costs more than most tests. So a test borrows a server, and the next borrower gets it
//! reset to what a fresh one looks like, at a later instant.

use std::{
    ops::Deref,
    sync::{Mutex, Once, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    clock::Clock,
    options::Options,
    reset::{reset_follower, reset_primary, Baseline},
    server::Server,
    topology::Chain,
};

static SINGLES: Mutex<Vec<Single>> = Mutex::new(Vec::new());
static CHAINS: Mutex<Vec<PooledChain>> = Mutex::new(Vec::new());

/// A primary without persistence, its clock frozen at an instant that is three days after anything
/// it has shown before.
pub fn single() -> Lease<Single> {
    Lease::take()
}

/// A [`Chain`], linked and empty, its clock frozen as for [`single`].
pub fn chain() -> Lease<PooledChain> {
    Lease::take()
}

/// What can be pooled.
pub trait Pooled: Deref + Sized + Send + 'static {
    fn start() -> Self;
    /// Makes it look new. An error means it cannot be used again.
    fn reset(&self) -> Result<(), String>;
    fn idle() -> &'static Mutex<Vec<Self>>;
}

/// A borrowed server or chain. It goes back to the pool on drop; after a panic it is killed.
pub struct Lease<T: Pooled> {
    /// Only `None` while dropping.
    held: Option<T>,
}

impl<T: Pooled> Lease<T> {
    fn take() -> Self {
        clean_up_at_exit();
        loop {
            // In two statements: the lock must not be held during the reset.
            let idle = lock(T::idle()).pop();
            let candidate = match idle {
                Some(used) if used.reset().is_ok() => used,
                // A test may leave a server dead or beyond repair.
                Some(_) => continue,
                None => T::start(),
            };
            return Self {
                held: Some(candidate),
            };
        }
    }
}

impl<T: Pooled> Deref for Lease<T> {
    type Target = T::Target;

    fn deref(&self) -> &T::Target {
        self.held.as_ref().expect("held until dropped")
    }
}

impl<T: Pooled> Drop for Lease<T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take().filter(|_| !thread::panicking()) {
            lock(T::idle()).push(held);
        }
    }
}

/// A pooled server. Derefs to [`Server`].
pub struct Single {
    server: Server,
    baseline: Baseline,
}

impl Deref for Single {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Pooled for Single {
    fn start() -> Self {
        let clock = Clock::new();
        clock.freeze_at_fresh_instant();
        let server = Options::new().clock(&clock).start();
        let baseline = Baseline::of(&server);
        Self { server, baseline }
    }

    fn reset(&self) -> Result<(), String> {
        revive(&self.server)?;
        self.server.clock().freeze_at_fresh_instant();
        reset_primary(&self.server, &self.baseline)
    }

    fn idle() -> &'static Mutex<Vec<Self>> {
        &SINGLES
    }
}

/// A pooled chain. Derefs to [`Chain`].
pub struct PooledChain {
    chain: Chain,
    baselines: [Baseline; 3],
}

impl Deref for PooledChain {
    type Target = Chain;

    fn deref(&self) -> &Chain {
        &self.chain
    }
}

impl Pooled for PooledChain {
    fn start() -> Self {
        let chain = Chain::start();
        let baselines = chain.servers().map(Baseline::of);
        Self { chain, baselines }
    }

    fn reset(&self) -> Result<(), String> {
        let [primary, replica, sub] = self.chain.servers();
        for server in [primary, replica, sub] {
            revive(server)?;
        }
        self.chain.clock().freeze_at_fresh_instant();
        reset_follower(replica, primary, &self.baselines[1])?;
        reset_follower(sub, replica, &self.baselines[2])?;
        reset_primary(primary, &self.baselines[0])?;
        self.chain.try_sync(Duration::from_secs(3))
    }

    fn idle() -> &'static Mutex<Vec<Self>> {
        &CHAINS
    }
}

/// Wakes a suspended server and checks that it can be used again at all.
fn revive(server: &Server) -> Result<(), String> {
    if !server.is_alive() {
        return Err("the server is dead".to_string());
    }
    if !server.clock().is_reusable() {
        return Err("the clock went too far".to_string());
    }
    server.sigcont();
    Ok(())
}

/// Statics are never dropped, so without this the pooled servers' directories would stay behind.
fn clean_up_at_exit() {
    extern "C" fn drop_idle() {
        lock(&CHAINS).clear();
        lock(&SINGLES).clear();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that lives as long as the program.
        unsafe { libc::atexit(drop_idle) };
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
