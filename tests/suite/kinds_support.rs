//! What the files about the kinds of locks share.

use crate::support::*;

/// Runs a command as one would type it.
#[track_caller]
pub(crate) fn run(c: &mut Conn, line: &str) -> Reply {
    c.cmd(&words(line))
}

/// Runs a command that answers an integer: a token, mostly.
#[track_caller]
pub(crate) fn number(c: &mut Conn, line: &str) -> i64 {
    match run(c, line) {
        Reply::Int(number) => number,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn all_answer<const N: usize>(c: &mut Conn, lines: [(&str, Reply); N]) {
    for (line, reply) in lines {
        assert_eq!(run(c, line), reply, "{line}");
    }
}

/// Owner, token and ttl_ms of every holder that LOCK.INFO shows.
#[track_caller]
pub(crate) fn holders(c: &mut Conn, key: &str) -> Vec<(String, i64, i64)> {
    let info = cmd!(c, "LOCK.INFO", key);
    if info.is_nil() {
        return Vec::new();
    }
    let one = |holder: &Reply| {
        let owner = holder.field("owner").as_text();
        let token = holder.field("token").as_int();
        (owner, token, holder.field("ttl_ms").as_int())
    };
    info.field("holders").items().iter().map(one).collect()
}

/// The owners alone, in the order of the grants.
#[track_caller]
pub(crate) fn owners(c: &mut Conn, key: &str) -> Vec<String> {
    let all = holders(c, key);
    all.into_iter().map(|(owner, _, _)| owner).collect()
}

/// A field of the first holder.
#[track_caller]
pub(crate) fn of_holder(c: &mut Conn, key: &str, field: &str) -> i64 {
    let info = cmd!(c, "LOCK.INFO", key);
    info.field("holders").items()[0].field(field).as_int()
}

/// LOCK.INFO's mode; "free" without a lock.
#[track_caller]
pub(crate) fn mode(c: &mut Conn, key: &str) -> String {
    let info = cmd!(c, "LOCK.INFO", key);
    info.map_get("mode")
        .map_or("free".to_string(), Reply::as_text)
}

/// The pairs of a map as RESP2 shows them: a flat array.
pub(crate) fn flat(pairs: &[(&str, Reply)]) -> Reply {
    let pairs = pairs.iter().cloned();
    array(pairs.flat_map(|(field, value)| [bulk(field), value]))
}

/// The same pairs in RESP3.
pub(crate) fn map(pairs: &[(&str, Reply)]) -> Reply {
    let pairs = pairs.iter().cloned();
    Reply::Map(pairs.map(|(field, value)| (bulk(field), value)).collect())
}

/// A server with its own options, its clock frozen at [`T_US`].
#[track_caller]
pub(crate) fn own(options: Options) -> Server {
    let server = options.start();
    server.clock().freeze_at(T_US);
    server
}
