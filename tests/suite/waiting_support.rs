//! What the files about waiting share.

use std::time::Duration;

use crate::support::*;

/// Long enough for cron to have run twice, which does whatever is due.
pub(crate) const TWO_CRONS: Duration = Duration::from_millis(250);

pub(crate) const QUEUE_FULL: &str = "QUEUEFULL too many clients wait for this key";
pub(crate) const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// A client in LOCK.ACQUIRE … BLOCK.
pub(crate) struct Waiter {
    pub(crate) conn: Conn,
    pub(crate) id: i64,
}

impl Waiter {
    /// Sends the command on a new connection, and returns when the server lets it wait.
    #[track_caller]
    pub(crate) fn send(server: &Server, line: &str) -> Waiter {
        Waiter::send_on(server, server.conn(), line)
    }

    /// The same on a connection the test has prepared.
    #[track_caller]
    pub(crate) fn send_on(server: &Server, mut conn: Conn, line: &str) -> Waiter {
        let id = conn.client_id();
        conn.send(&words(line));
        let mut other = server.conn();
        eventually(&format!("{line} waits"), || is_blocked(&mut other, id));
        Waiter { conn, id }
    }

    /// Waits for `key` as `owner`: a minute, for a lease of a minute.
    #[track_caller]
    pub(crate) fn queue(server: &Server, key: &str, owner: &str) -> Waiter {
        Waiter::send(
            server,
            &format!("LOCK.ACQUIRE {key} {owner} 60000 BLOCK 60000"),
        )
    }

    /// The token it was granted, or will be within seconds.
    #[track_caller]
    pub(crate) fn token(&mut self) -> i64 {
        match self.conn.recv() {
            Reply::Int(token) => token,
            other => panic!("{other:?} instead of a token"),
        }
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> Reply {
        self.conn.recv()
    }

    /// Nothing comes although cron ran.
    #[track_caller]
    pub(crate) fn still_waits(&mut self) {
        let came = self.conn.recv_timeout(TWO_CRONS);
        assert_eq!(came, None, "it was to go on waiting");
    }
}

/// Whether CLIENT LIST shows the client as blocked.
pub(crate) fn is_blocked(conn: &mut Conn, id: i64) -> bool {
    let line = cmd!(conn, "CLIENT", "LIST", "ID", id).as_text();
    let flags = line
        .split(' ')
        .find_map(|word| word.strip_prefix("flags="))
        .unwrap_or_default();
    flags.contains('b')
}

/// Several waiters for one key, who came in this order.
#[track_caller]
pub(crate) fn queue<const N: usize>(server: &Server, key: &str, owners: [&str; N]) -> [Waiter; N] {
    owners.map(|owner| Waiter::queue(server, key, owner))
}

/// `h` takes `key` for a minute.
#[track_caller]
pub(crate) fn hold(conn: &mut Conn, key: &str) -> i64 {
    cmd!(conn, "LOCK.ACQUIRE", key, "h", 60_000).as_int()
}

/// Who holds `key`, under which token; `None` when it is free or kept.
#[track_caller]
pub(crate) fn holder(conn: &mut Conn, key: &str) -> Option<(String, i64)> {
    let info = cmd!(conn, "LOCK.INFO", key);
    let holder = info.map_get("holders")?.items().first()?;
    let owner = holder.field("owner").as_text();
    Some((owner, holder.field("token").as_int()))
}

#[track_caller]
pub(crate) fn is_held_by(conn: &mut Conn, key: &str, owner: &str, token: i64) {
    assert_eq!(holder(conn, key), Some((owner.to_string(), token)));
}

/// How many wait for a key that is held or kept.
#[track_caller]
pub(crate) fn waiters(conn: &mut Conn, key: &str) -> i64 {
    cmd!(conn, "LOCK.INFO", key).field("waiters").as_int()
}

/// Nobody waits any more, as far as the module and the server know.
#[track_caller]
pub(crate) fn nobody_waits(server: &Server) {
    eventually("nobody waits any more", || {
        counter(server, "waiters") == 0 && server.info("clients")["blocked_clients"] == "0"
    });
}

/// Loads a function of a library `t` that runs one command on one key.
pub(crate) fn load_function(conn: &mut Conn) {
    let library =
        "#!lua name=t\nredis.register_function{function_name='run', callback=function(keys, args)
        return redis.call(args[1], keys[1], unpack(args, 2)) end, flags={'allow-oom'}}";
    let loaded = cmd!(conn, "FUNCTION", "LOAD", "REPLACE", library);
    assert_eq!(loaded, bulk("t"));
}

/// Runs one command on one key in a script.
pub(crate) const RUN: &str = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
