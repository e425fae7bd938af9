//! The internal commands that carry state: whom they are taken from, and what happens to bad ones.

use crate::support::*;
use sluice_testbed::Clock;
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
};

const REFUSED: &str =
    "ERR internal command: accepted only from the primary or the append-only file";

fn own(options: Options) -> Server {
    let server = options.start();
    server.clock().freeze_at(T_US);
    server
}

/// Redis 8 hides internal commands from clients altogether.
fn hides_internal_commands() -> bool {
    flavour().kind == Kind::Redis && flavour().version >= (8, 0, 0)
}

/// Well-formed effects: they are refused for where they come from.
fn effects(now_us: i64) -> [Vec<Vec<u8>>; 3] {
    let lock = Held::at(now_us, 5000, "forged").effect(now_us);
    let guard = effect(now_us, &guard_body(5, now_us as u64 / 1000 + 5000));
    [
        args!["sluice.lk", "k", lock],
        args!["SLUICE.FN", "g", guard],
        args!["sluice.hw", effect(now_us, &LAST_TOKEN.to_le_bytes())],
    ]
}

fn pcall(command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = args!["EVAL", "return redis.pcall(unpack(ARGV))", 0];
    all.extend_from_slice(command);
    all
}

// --- clients ---

#[test]
fn clients_may_not_send_effects() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let before = counter(&server, "effects_refused");
    changes_nothing(&server, || {
        for command in effects(server.clock().now_us()) {
            let plain = c.cmd(&command);
            let scripted = c.cmd(&pcall(&command));
            let queued = c.multi(&[args!["PING"], command]);
            if hides_internal_commands() {
                assert!(
                    plain.as_text().starts_with("ERR unknown command"),
                    "{plain:?}"
                );
                assert!(scripted.is_error(), "{scripted:?}");
                assert!(queued.as_text().starts_with("EXECABORT"), "{queued:?}");
            } else {
                assert_eq!(plain, err(REFUSED));
                assert_eq!(scripted, err(REFUSED));
                assert_eq!(queued, array([status("PONG"), err(REFUSED)]));
            }
        }
    });
    let refused = if hides_internal_commands() { 0 } else { 9 };
    assert_eq!(counter(&server, "effects_refused"), before + refused);
    assert!(counter(&server, "token_high_water") < LAST_TOKEN as i64);
    assert_eq!(cmd!(c, "EXISTS", "g"), int(0));
}

/// A client that the server itself takes for an internal one is still none of ours.
#[test]
fn an_internal_client_of_redis_8_may_not_send_effects_either() {
    if !hides_internal_commands() {
        return;
    }
    let server = single();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "MARK-INTERNAL-CLIENT"), ok());
    let before = counter(&server, "effects_refused");
    for command in effects(server.clock().now_us()) {
        assert_eq!(c.cmd(&command), err(REFUSED));
        assert_eq!(c.exec_multi(&[command]), [err(REFUSED)]);
    }
    assert_eq!(counter(&server, "effects_refused"), before + 6);
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn clients_of_a_replica_may_not_send_effects() {
    let chain = chain();
    cmd!(chain.primary.conn(), "LOCK.ACQUIRE", "k", UUID, 5000);
    chain.sync();
    for server in [&chain.replica, &chain.sub] {
        let mut r = server.conn();
        for (writable, answer) in [
            (
                "no",
                "READONLY You can't write against a read only replica.",
            ),
            ("yes", REFUSED),
        ] {
            let read_only = if writable == "yes" { "no" } else { "yes" };
            cmd!(r, "CONFIG", "SET", "replica-read-only", read_only);
            for command in effects(chain.clock().now_us()) {
                let reply = r.cmd(&command);
                let scripted = r.cmd(&pcall(&command));
                if hides_internal_commands() {
                    assert!(reply.as_text().starts_with("ERR unknown command"));
                    assert!(scripted.is_error());
                } else {
                    assert_eq!(reply, err(answer));
                    assert!(scripted.as_text().contains(&answer[9..]), "{scripted:?}");
                    if writable == "yes" {
                        assert_eq!(r.exec_multi(&[command]), [err(REFUSED)]);
                    }
                }
            }
        }
    }
    chain.assert_equal();
    assert!(counter(&chain.replica, "token_high_water") < LAST_TOKEN as i64);
}

#[test]
fn no_command_runs_while_loading() {
    let server = single();
    let mut c = server.conn();
    for name in [
        "lock.acquire",
        "lock.release",
        "lock.renew",
        "lock.info",
        "lock.forcerelease",
        "lock.guard",
        "sluice.lk",
        "sluice.fn",
        "sluice.hw",
    ] {
        let info = cmd!(c, "COMMAND", "INFO", name);
        let info = &info.items()[0];
        if hides_internal_commands() && name.starts_with("sluice.") {
            assert!(info.is_nil(), "{name} is not hidden: {info:?}");
            continue;
        }
        let flags = format!("{:?}", info.items()[2]);
        assert!(!flags.contains("loading"), "{name}: {flags}");
        assert!(!flags.contains("stale"), "{name}: {flags}");
    }
}

#[test]
fn an_effect_is_refused_while_the_server_loads() {
    let server = single();
    let mut c = server.conn();
    let filler = vec![b'x'; 4096];
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    cmd!(
        c,
        "CONFIG",
        "SET",
        "loading-process-events-interval-bytes",
        1024
    );
    let set = |i| args!["SET", format!("filler{i}"), &filler];
    c.pipeline(&(0..40).map(set).collect::<Vec<_>>());
    // Microseconds for each key.
    cmd!(c, "CONFIG", "SET", "key-load-delay", 10_000);
    let mut other = server.conn();
    let command = effects(server.clock().now_us())[0].clone();
    c.send(&args!["DEBUG", "RELOAD"]);
    let mut seen = Vec::new();
    eventually("the server loads", || {
        seen.push(other.cmd(&command).as_text());
        seen.last()
            .is_some_and(|reply| reply.starts_with("LOADING"))
            || hides_internal_commands()
    });
    assert_eq!(c.recv(), ok());
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

// --- from a file ---

#[test]
fn an_effect_in_the_file_is_the_state() {
    let server = own(Options::new().aof(Aof::Pure));
    let held = Held::at(T_US - 500, 5000, UUID);
    append_to_aof(
        &server,
        &[
            args!["SELECT", 0],
            args!["sluice.lk", "k", held.effect(T_US)],
            args!["sluice.lk", "gone", held.effect(T_US)],
            args!["DEL", "gone"],
        ],
    );
    let mut c = server.conn();
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("token"), &int(T_US - 500));
    assert_eq!(info.field("holders").items()[0].field("owner"), &bulk(UUID));
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(held.deadline_ms as i64));
    assert_eq!(cmd!(c, "EXISTS", "gone"), int(0));
    assert_eq!(counter(&server, "token_high_water"), T_US - 500);
    assert_eq!(counter(&server, "effects_refused"), 0);
}

#[test]
fn effects_are_idempotent() {
    let server = own(Options::new().aof(Aof::Pure));
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000, "META", "m");
    cmd!(c, "LOCK.RENEW", "k", UUID, 9000);
    cmd!(c, "LOCK.ACQUIRE", "kept", UUID, 5000);
    cmd!(c, "LOCK.RELEASE", "kept", UUID, "KEEP", 7000);
    cmd!(c, "LOCK.GUARD", "g", 12);
    cmd!(c, "LOCK.ACQUIRE", "gone", UUID, 5000);
    cmd!(c, "LOCK.RELEASE", "gone", UUID);
    let digest = cmd!(c, "DEBUG", "DIGEST");
    let commands = server.aof_commands();
    // Each command twice in a row, and then everything once more.
    let twice: Vec<_> = commands
        .iter()
        .flat_map(|command| [command.clone(), command.clone()])
        .chain(commands.clone())
        .collect();
    append_to_aof(&server, &twice);
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
    assert_eq!(counter(&server, "lock_keys"), 2);
    assert_eq!(counter(&server, "token_high_water"), T_US + 2);
    assert_eq!(cmd!(c, "PTTL", "k"), int(9000));
}

#[test]
fn an_effect_overwrites_a_key_of_another_type() {
    let server = own(Options::new().aof(Aof::Pure));
    let mut c = server.conn();
    cmd!(c, "SET", "s", "v");
    cmd!(c, "RPUSH", "l", "v", "w");
    cmd!(c, "LOCK.GUARD", "g", 5);
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let held = Held::at(T_US, 5000, "new");
    let guard = effect(T_US, &guard_body(9, T_US as u64 / 1000 + 700));
    let mut commands: Vec<_> = ["s", "l", "g"]
        .map(|key| args!["sluice.lk", key, held.effect(T_US)])
        .to_vec();
    commands.push(args!["sluice.fn", "k", guard]);
    append_to_aof(&server, &commands);
    let mut c = server.conn();
    for key in ["s", "l", "g"] {
        assert_eq!(cmd!(c, "TYPE", key), status("sluice-lk"));
        assert_eq!(cmd!(c, "PTTL", key), int(5000));
    }
    assert_eq!(cmd!(c, "TYPE", "k"), status("sluice-fn"));
    assert_eq!(cmd!(c, "PTTL", "k"), int(700));
    assert_eq!(counter(&server, "lock_keys"), 3);
    assert_eq!(counter(&server, "guard_keys"), 1);
}

#[test]
fn effects_in_a_transaction_of_the_file_are_taken() {
    let server = own(Options::new().aof(Aof::Pure));
    let [lock, guard, _] = effects(T_US);
    let unit = [args!["MULTI"], lock, guard, args!["EXEC"]];
    append_to_aof(&server, &[&[args!["SELECT", 0]], &unit[..]].concat());
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("token"), &int(T_US));
    assert_eq!(cmd!(c, "TYPE", "g"), status("sluice-fn"));
    assert_eq!(counter(&server, "effects_refused"), 0);
}

/// Effects that nobody should send, each with the log line it leaves.
fn bad_effects(now_us: i64) -> Vec<(Vec<Vec<u8>>, String)> {
    let newer = |name: &str, version: u8| {
        format!(
            "<sluice> {name}: encoding version {version} is newer than 1, the newest this \
             module reads: upgrade replicas before their primary"
        )
    };
    let corrupt = |name: &str| format!("<sluice> {name}: corrupt encoding refused");
    let versioned = |blob: &[u8], version: u8| {
        let mut blob = blob.to_vec();
        blob[0] = version;
        blob
    };
    let held = Held::at(now_us, 5000, "forged");
    let lock = held.effect(now_us);
    let guard = effect(now_us, &guard_body(5, now_us as u64 / 1000 + 5000));
    let token = effect(now_us, &77u64.to_le_bytes());
    let with = |change: &dyn Fn(&mut Held)| {
        let mut held = held.clone();
        change(&mut held);
        held.effect(now_us)
    };
    let mut all = vec![
        (
            args!["sluice.lk", "k", versioned(&lock, 2)],
            newer("sluice.lk", 2),
        ),
        (
            args!["sluice.fn", "k", versioned(&guard, 3)],
            newer("sluice.fn", 3),
        ),
        (
            args!["sluice.hw", versioned(&token, 255)],
            newer("sluice.hw", 255),
        ),
    ];
    let blobs = [
        Vec::new(),
        versioned(&lock, 0),
        lock[..lock.len() - 1].to_vec(),
        [&lock[..], b"x"].concat(),
        with(&|held| held.token = 0),
        with(&|held| held.token = 1 << 53),
        with(&|held| held.deadline_ms = 1 << 53),
        with(&|held| held.deadline_ms = held.granted_ms - 1),
        with(&|held| held.holds = 0),
        with(&|held| held.owner = Vec::new()),
        with(&|held| held.owner = vec![b'x'; 513]),
        with(&|held| held.meta = vec![b'x'; 1025]),
        guard.clone(),
    ];
    for blob in blobs {
        all.push((args!["sluice.lk", "k", blob], corrupt("sluice.lk")));
    }
    for blob in [guard[..20].to_vec(), [&guard[..], b"x"].concat(), lock] {
        all.push((args!["sluice.fn", "k", blob], corrupt("sluice.fn")));
    }
    for blob in [
        token[..16].to_vec(),
        effect(now_us, &(1u64 << 53).to_le_bytes()),
    ] {
        all.push((args!["sluice.hw", blob], corrupt("sluice.hw")));
    }
    all
}

#[test]
fn bad_effects_in_the_file_are_refused_and_logged() {
    let server = own(Options::new().aof(Aof::Pure));
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let digest = cmd!(c, "DEBUG", "DIGEST");
    let bad = bad_effects(T_US);
    let commands: Vec<_> = bad.iter().map(|(command, _)| command.clone()).collect();
    append_to_aof(&server, &commands);
    let log = server.log();
    for (command, line) in &bad {
        let expected = bad.iter().filter(|(_, other)| other == line).count();
        let found = log.matches(line.as_str()).count();
        assert_eq!(found, expected, "{line} for {:?}", command[0]);
    }
    assert_eq!(counter(&server, "effects_refused"), bad.len() as i64);
    assert_eq!(counter(&server, "token_high_water"), token.as_int());
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 6000), int(6000));
}

#[test]
fn good_effects_around_a_bad_one_are_taken() {
    let server = own(Options::new().aof(Aof::Pure));
    let [lock, guard, _] = effects(T_US);
    let mut newer = lock.clone();
    newer[1] = b"other".to_vec();
    newer[2][0] = 2;
    let unit = [args!["MULTI"], lock, newer, guard, args!["EXEC"]];
    append_to_aof(&server, &[&[args!["SELECT", 0]], &unit[..]].concat());
    let mut c = server.conn();
    assert_eq!(cmd!(c, "EXISTS", "k", "g"), int(2));
    assert_eq!(cmd!(c, "EXISTS", "other"), int(0));
    assert_eq!(counter(&server, "effects_refused"), 1);
}

// --- over the replication link ---

/// A primary that sends whatever a test wants, for one replica.
struct FakePrimary {
    link: TcpStream,
}

impl FakePrimary {
    /// Serves an empty data set, taken from `like`, to `replica`.
    fn of(replica: &Server, like: &Server) -> FakePrimary {
        cmd!(like.conn(), "SAVE");
        let rdb = std::fs::read(like.dir().join("dump.rdb")).expect("just saved");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let follow = cmd!(replica.conn(), "REPLICAOF", "127.0.0.1", port);
        assert_eq!(follow, ok());
        let (mut link, _) = listener.accept().expect("the replica connects");
        let mut requests = BufReader::new(link.try_clone().expect("a second handle"));
        loop {
            let words = read_command(&mut requests);
            match words[0].to_ascii_uppercase().as_slice() {
                b"PING" => link.write_all(b"+PONG\r\n"),
                b"PSYNC" => break,
                _ => link.write_all(b"+OK\r\n"),
            }
            .expect("the replica listens");
        }
        let head = format!("+FULLRESYNC {} 0\r\n${}\r\n", "5".repeat(40), rdb.len());
        link.write_all(head.as_bytes())
            .expect("the replica listens");
        link.write_all(&rdb).expect("the replica listens");
        // Its acknowledgements are of no interest, but must not fill the socket.
        std::thread::spawn(move || std::io::copy(&mut requests, &mut std::io::sink()));
        eventually("the replica has loaded", || {
            replica.info("replication")["master_link_status"] == "up"
        });
        FakePrimary { link }
    }

    fn send(&mut self, command: &[Vec<u8>]) {
        self.link
            .write_all(&resp(command))
            .expect("the replica listens");
    }
}

fn read_command(from: &mut impl BufRead) -> Vec<Vec<u8>> {
    let mut number = |mark: u8| -> usize {
        let mut line = String::new();
        from.read_line(&mut line).expect("a request");
        assert_eq!(line.as_bytes()[0], mark, "{line:?}");
        line[1..].trim().parse().expect("a length")
    };
    let count = number(b'*');
    (0..count)
        .map(|_| {
            let mut line = String::new();
            from.read_line(&mut line).expect("a length");
            let len: usize = line[1..].trim().parse().expect("a length");
            let mut word = vec![0; len + 2];
            from.read_exact(&mut word).expect("a word");
            word.truncate(len);
            word
        })
        .collect()
}

#[test]
fn bad_effects_from_the_primary_are_refused_and_logged() {
    let template = single();
    let clock = Clock::new();
    clock.freeze_at(T_US);
    let replica = Options::new().clock(&clock).start();
    let mut primary = FakePrimary::of(&replica, &template);
    let [lock, guard, _] = effects(T_US);
    primary.send(&args!["SELECT", 0]);
    primary.send(&lock);
    let exists = |key: &str| cmd!(replica.conn(), "EXISTS", key) == int(1);
    eventually("the good effect arrives", || exists("k"));
    let digest = cmd!(replica.conn(), "DEBUG", "DIGEST");
    let refused = counter(&replica, "effects_refused");
    let high = counter(&replica, "token_high_water");

    let bad = bad_effects(T_US);
    for (command, _) in &bad {
        primary.send(command);
    }
    primary.send(&args!["SET", "end", "1"]);
    eventually("all have arrived", || exists("end"));
    let log = replica.log();
    for (_, line) in &bad {
        let expected = bad.iter().filter(|(_, other)| other == line).count();
        assert_eq!(log.matches(line.as_str()).count(), expected, "{line}");
    }
    assert_eq!(
        counter(&replica, "effects_refused"),
        refused + bad.len() as i64
    );
    assert_eq!(counter(&replica, "token_high_water"), high);
    primary.send(&args!["DEL", "end"]);
    eventually("the end is gone", || !exists("end"));
    assert_eq!(cmd!(replica.conn(), "DEBUG", "DIGEST"), digest);

    // The link is as it was, and transactions of the primary work.
    primary.send(&args!["MULTI"]);
    primary.send(&guard);
    primary.send(&args!["DEL", "k"]);
    primary.send(&args!["EXEC"]);
    eventually("the transaction arrives", || exists("g") && !exists("k"));
    assert_eq!(replica.info("replication")["master_link_status"], "up");
}

#[test]
fn an_effect_from_the_primary_overwrites_what_is_there() {
    let template = single();
    let clock = Clock::new();
    clock.freeze_at(T_US);
    let replica = Options::new().clock(&clock).aof(Aof::Pure).start();
    let mut primary = FakePrimary::of(&replica, &template);
    // A full sync starts the file anew.
    wait_for_rewrites(&replica);
    primary.send(&args!["SELECT", 0]);
    primary.send(&args!["SET", "k", "text"]);
    primary.send(&args!["RPUSH", "g", "text"]);
    let [lock, guard, token] = effects(T_US);
    for command in [&lock, &guard, &token] {
        primary.send(command);
    }
    eventually("all have arrived", || {
        counter(&replica, "token_high_water") == LAST_TOKEN as i64
    });
    let mut r = replica.conn();
    assert_eq!(cmd!(r, "TYPE", "k"), status("sluice-lk"));
    assert_eq!(cmd!(r, "TYPE", "g"), status("sluice-fn"));
    let digest = cmd!(r, "DEBUG", "DIGEST");
    // They stand in the replica's own file as they came.
    let written = replica.aof_commands();
    for command in [lock, guard, token] {
        assert!(written.contains(&command), "{:?}", command[0]);
    }
    drop(primary);
    replica.kill9();
    replica.start_again();
    assert_eq!(cmd!(replica.conn(), "DEBUG", "DIGEST"), digest);
    assert_eq!(counter(&replica, "token_high_water"), LAST_TOKEN as i64);
}

/// A primary of a newer version with a replica of this one, as seen by the sub-replica.
#[test]
fn effects_reach_a_sub_replica_unchanged() {
    let chain = chain();
    wait_for_rewrites(&chain.sub);
    let mut c = chain.primary.conn();
    let now = chain.clock().now_us();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000, "META", b"\0\xff");
    chain.sync();
    let mut held = Held::at(now, 5000, UUID);
    held.meta = b"\0\xff".to_vec();
    let last = chain.sub.aof_commands().pop();
    assert_eq!(last, Some(args!["sluice.lk", "k", held.effect(now)]));
}
