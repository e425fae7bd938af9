//! Servers that replicate from each other.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    args,
    clock::Clock,
    cmd,
    conn::Conn,
    options::{Aof, Options},
    server::Server,
    wait::poll,
};

/// Primary → replica → sub-replica on one clock. The sub-replica keeps a pure AOF, so a test sees
/// in one place what was propagated through both links and what a replay makes of it.
pub struct Chain {
    // The order matters on drop: followers first, else they log about a lost primary.
    pub sub: Server,
    pub replica: Server,
    pub primary: Server,
}

impl Chain {
    /// Starts a chain whose clock is frozen at a fresh instant, as in the pool.
    pub fn start() -> Self {
        Self::start_with(|options| options)
    }

    /// Like [`Chain::start`], with the options of all three changed.
    pub fn start_with(change: impl Fn(Options) -> Options) -> Self {
        let clock = Clock::new();
        clock.freeze_at_fresh_instant();
        let options = || change(Options::new().clock(&clock));
        let primary = options().start();
        let replica = options().replica_of(&primary).start();
        // A replica without its own data refuses followers, who then wait a second.
        replica.wait_synced_with(&primary);
        let sub = options().aof(Aof::Pure).replica_of(&replica).start();
        let chain = Self {
            sub,
            replica,
            primary,
        };
        chain.sync();
        chain.wait_for_aof();
        chain
    }

    pub fn clock(&self) -> &Clock {
        self.primary.clock()
    }

    /// Primary, replica, sub-replica.
    pub fn servers(&self) -> [&Server; 3] {
        [&self.primary, &self.replica, &self.sub]
    }

    /// Waits until both links are up and both followers have all that the primary wrote.
    #[track_caller]
    pub fn sync(&self) {
        if let Err(why) = self.try_sync(Duration::from_secs(10)) {
            panic!("{why}");
        }
    }

    pub(crate) fn try_sync(&self, timeout: Duration) -> Result<(), String> {
        self.replica.try_sync_with(&self.primary, timeout)?;
        self.sub.try_sync_with(&self.replica, timeout)
    }

    /// `DEBUG DIGEST` of the three, after a sync.
    #[track_caller]
    pub fn digests(&self) -> [String; 3] {
        self.sync();
        self.servers()
            .map(|server| cmd!(server.conn(), "DEBUG", "DIGEST").as_text())
    }

    /// Panics unless all three hold the same data, and says which keys of database 0 differ.
    #[track_caller]
    pub fn assert_equal(&self) {
        // A timer of the module may write between the sync and the digests: then look again.
        let equal = (0..3).any(|_| {
            let [primary, replica, sub] = self.digests();
            primary == replica && replica == sub
        });
        assert!(equal, "the servers differ:\n{}", self.differences());
    }

    fn differences(&self) -> String {
        let mut conns = self.servers().map(Server::conn);
        let keys: BTreeSet<Vec<u8>> = conns
            .iter_mut()
            .flat_map(|conn| cmd!(conn, "KEYS", "*").items().to_vec())
            .map(|key| key.as_bytes().to_vec())
            .collect();
        let mut report = String::new();
        for key in keys {
            let values = conns.each_mut().map(|conn| describe(conn, &key));
            if values[0] != values[1] || values[1] != values[2] {
                report += &format!("{}: {values:?}\n", key.escape_ascii());
            }
        }
        report
    }

    /// A follower starts its AOF with a rewrite after the first sync; only then is the file whole.
    fn wait_for_aof(&self) {
        let done = poll(Duration::from_secs(10), || {
            let info = self.sub.info("persistence");
            (info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0")
                .then_some(())
        });
        assert!(done.is_some(), "the sub-replica does not finish its AOF");
    }
}

/// Enough of a value to see why two servers differ: digest and absolute expiry.
fn describe(conn: &mut Conn, key: &[u8]) -> String {
    let replies = conn.pipeline(&[
        args!["DEBUG", "DIGEST-VALUE", key],
        args!["PEXPIRETIME", key],
    ]);
    format!("{replies:?}")
}
