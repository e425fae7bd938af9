//! Making a used server look like a fresh one.

use std::{collections::HashMap, fs, time::Duration};

use crate::{
    args,
    conn::Conn,
    reply::{ok, Reply},
    server::{fields, Server},
};

/// A reset is milliseconds; a server that takes longer is stuck, and is better replaced.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The configuration of a server right after its start.
pub(crate) struct Baseline(HashMap<Vec<u8>, Vec<u8>>);

impl Baseline {
    pub(crate) fn of(server: &Server) -> Self {
        Self(parameters(&server.conn().cmd(&["CONFIG", "GET", "*"])))
    }
}

/// Resets a server that must be a primary, and empties it.
pub(crate) fn reset_primary(server: &Server, baseline: &Baseline) -> Result<(), String> {
    let mut conn = server.try_conn()?;
    let role = reset_settings(&mut conn, server, baseline)?;
    expect(role.get("role"), "master")?;
    // After the clients are gone, so that nothing they leave behind is written after the flush.
    let replies = run(
        &mut conn,
        &[
            args!["FLUSHALL", "SYNC"],
            args!["FUNCTION", "FLUSH", "SYNC"],
            args!["CONFIG", "RESETSTAT"],
        ],
    )?;
    if replies[0] != ok() {
        return Err(format!("FLUSHALL: {:?}", replies[0]));
    }
    remove_old_files(server, baseline)
}

/// Resets a server that must follow `primary`, whose flush will empty it.
pub(crate) fn reset_follower(
    server: &Server,
    primary: &Server,
    baseline: &Baseline,
) -> Result<(), String> {
    let mut conn = server.try_conn()?;
    let role = reset_settings(&mut conn, server, baseline)?;
    expect(role.get("role"), "slave")?;
    expect(role.get("master_port"), &primary.port().to_string())?;
    expect(role.get("master_link_status"), "up")?;
    run(&mut conn, &[args!["CONFIG", "RESETSTAT"]])?;
    remove_old_files(server, baseline)
}

/// Users, clients, configuration, scripts. Returns INFO replication.
fn reset_settings(
    conn: &mut Conn,
    server: &Server,
    baseline: &Baseline,
) -> Result<HashMap<String, String>, String> {
    // "reset" in front, so that nothing of the test's rules for the default user is left.
    let default = args!["ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all"];
    let seen = run(
        conn,
        &[
            args!["CLIENT", "UNPAUSE"],
            default,
            args!["ACL", "USERS"],
            args!["CONFIG", "GET", "*"],
            args!["INFO", "replication"],
        ],
    )?;
    if let Some(error) = seen.iter().find(|reply| reply.is_error()) {
        return Err(format!("{error:?}"));
    }
    let mut commands = vec![
        args!["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        args!["CLIENT", "KILL", "TYPE", "pubsub"],
        args!["SCRIPT", "FLUSH", "SYNC"],
        args!["SLOWLOG", "RESET"],
        args!["ACL", "LOG", "RESET"],
        args!["DEBUG", "SET-ACTIVE-EXPIRE", 1],
    ];
    let users = seen[2].items().iter().map(Reply::as_bytes);
    for user in users.filter(|user| user != b"default") {
        commands.push(args!["ACL", "DELUSER", user]);
    }
    let now = parameters(&seen[3]);
    for (name, value) in &baseline.0 {
        if now.get(name) != Some(value) {
            // Immutable ones refuse, which is fine: then nobody changed them either.
            commands.push(args!["CONFIG", "SET", name, value]);
        }
    }
    run(conn, &commands)?;
    server.write_config(); // after a CONFIG REWRITE
    Ok(fields(&seen[4]))
}

/// A restart in the next test must not load what this one saved. The AOF stays where it is in use.
fn remove_old_files(server: &Server, baseline: &Baseline) -> Result<(), String> {
    let _ = fs::remove_file(server.dir().join("dump.rdb"));
    if baseline.0.get(&b"appendonly"[..]).map(Vec::as_slice) == Some(b"no") {
        let _ = fs::remove_dir_all(server.dir().join("appendonlydir"));
    }
    Ok(())
}

fn run(conn: &mut Conn, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>, String> {
    let lost = |error| format!("no reply: {error}");
    conn.write(commands).map_err(lost)?;
    commands
        .iter()
        .map(|_| conn.try_own_reply(TIMEOUT).map_err(lost))
        .collect()
}

fn parameters(config: &Reply) -> HashMap<Vec<u8>, Vec<u8>> {
    config
        .items()
        .chunks_exact(2)
        .map(|pair| (pair[0].as_bytes().to_vec(), pair[1].as_bytes().to_vec()))
        .collect()
}

fn expect(found: Option<&String>, wanted: &str) -> Result<(), String> {
    match found {
        Some(value) if value == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {wanted:?}")),
    }
}
