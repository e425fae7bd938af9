//! The test bed tested: without the module, so that it tells a broken bed from a broken module.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Once,
    time::{Duration, Instant},
};

use sluice_testbed::{
    args, array, bulk, chain, cmd, err, eventually, flavour, int, nil, ok, single, status, Aof,
    Conn, Options, Reply, Server,
};

const T: i64 = 2_100_000_000_654_321;

/// All tests here run without the module, the pooled servers too.
fn options() -> Options {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::env::set_var("SLUICE_MODULE", ""));
    Options::new()
}

fn time_us(conn: &mut Conn) -> i64 {
    let time = cmd!(conn, "TIME");
    time.items()[0].as_int() * 1_000_000 + time.items()[1].as_int()
}

/// Gone, or dead and not yet reaped by whoever inherited it.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    }
}

#[test]
fn a_frozen_clock_is_exact_to_the_microsecond() {
    let server = options().start();
    let (clock, mut conn) = (server.clock(), server.conn());
    clock.freeze_at(T);
    assert_eq!(time_us(&mut conn), T);
    clock.advance_us(1);
    assert_eq!(time_us(&mut conn), T + 1);
    clock.advance_ms(-5_000);
    assert_eq!(time_us(&mut conn), T + 1 - 5_000_000);
    assert_eq!(clock.now_ms(), (T + 1 - 5_000_000) / 1000);

    clock.run();
    clock.advance_ms(60_000);
    let shown = time_us(&mut conn);
    assert!(shown > T + 55_000_000 && shown <= clock.now_us());
    clock.freeze();
    assert_eq!(time_us(&mut conn), clock.now_us());
    assert!(clock.now_us() < T + 65_000_000);
}

#[test]
fn keys_expire_by_the_test_clock_while_cron_goes_on() {
    let server = options().start();
    let mut conn = server.conn();
    server.clock().freeze_at(T);
    cmd!(conn, "SET", "k", "v", "PX", 1000);
    server.clock().advance_ms(1000);
    assert_eq!(cmd!(conn, "GET", "k"), bulk("v"));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(conn, "GET", "k"), nil());

    cmd!(conn, "SET", "k", "v", "PX", 1000);
    server.clock().advance_ms(1001);
    eventually("active expiry", || {
        server.info("stats")["expired_keys"] == "2"
    });
}

#[test]
fn the_monotonic_clock_can_jump() {
    let server = options().start();
    let uptime = || server.info("server")["uptime_in_seconds"].clone();
    server.clock().freeze();
    let before = uptime();
    server.clock().advance_mono_ms(3_600_000);
    assert_eq!(cmd!(server.conn(), "PING"), status("PONG"));
    assert_eq!(uptime(), before, "the wall clock stands");
}

#[test]
fn restarts_keep_port_directory_clock_and_data() {
    let server = options().aof(Aof::Pure).start();
    server.clock().freeze_at(T);
    let (port, dir) = (server.port(), server.dir().to_path_buf());
    cmd!(server.conn(), "SET", "k", "v");
    for stop in [Server::kill9, |server: &Server| {
        assert!(server.shutdown_nosave().success());
    }] {
        let pid = server.pid();
        stop(&server);
        assert!(!server.is_alive() && is_gone(pid));
        server.start_again();
        assert_eq!((server.port(), server.dir()), (port, dir.as_path()));
        let mut conn = server.conn();
        assert_eq!(time_us(&mut conn), T);
        assert_eq!(cmd!(conn, "GET", "k"), bulk("v"));
    }
    server.restart();
    assert_eq!(
        server.aof_commands(),
        [args!["SELECT", 0], args!["SET", "k", "v"]]
    );
}

#[test]
fn an_rdb_is_saved_on_request_only() {
    let server = options().start();
    cmd!(server.conn(), "SET", "k", "v");
    server.restart_saving();
    assert_eq!(cmd!(server.conn(), "GET", "k"), bulk("v"));
    cmd!(server.conn(), "SET", "k", "w");
    server.restart();
    assert_eq!(cmd!(server.conn(), "GET", "k"), bulk("v"));
}

#[test]
fn nothing_is_left_after_a_drop() {
    let server = options().start();
    let (pid, dir) = (server.pid(), server.dir().to_path_buf());
    server.sigstop();
    drop(server);
    assert!(is_gone(pid));
    assert!(!dir.exists());
}

#[test]
fn a_refused_start_returns_the_log() {
    let error = options()
        .config("no-such-thing", 1)
        .try_start()
        .err()
        .unwrap();
    assert!(error.log.contains("no-such-thing"), "{error}");
    let error = options()
        .wrapper(&["/does/not/exist"])
        .try_start()
        .err()
        .unwrap();
    assert!(error.reason.contains("cannot run it"), "{error}");
}

#[test]
fn options_reach_the_server() {
    let server = options()
        .cluster()
        .config("maxmemory", "7mb")
        // The title would be written over the environment in /proc.
        .config("set-proc-title", "no")
        .wrapper(&["env", "BED=1"])
        .env("BED2", "2")
        .start();
    let mut conn = server.conn();
    assert_eq!(server.info("cluster")["cluster_enabled"], "1");
    let maxmemory = cmd!(conn, "CONFIG", "GET", "maxmemory");
    assert_eq!(maxmemory.field("maxmemory").as_int(), 7 << 20);
    let environment = fs::read_to_string(format!("/proc/{}/environ", server.pid())).unwrap();
    assert!(environment.contains("BED=1\0") && environment.contains("BED2=2\0"));
    server.wait_log("Ready to accept connections");
    assert!(flavour().version >= (7, 0, 0));
}

#[test]
fn replies_are_exact_in_both_protocols() {
    let server = options().start();
    let (mut two, mut three) = (server.conn(), server.conn3());
    assert_eq!(cmd!(two, "SET", b"k\0\r\n", vec![0xffu8, b'v']), ok());
    assert_eq!(cmd!(three, "GET", b"k\0\r\n"), bulk(b"\xffv"));
    assert_eq!(cmd!(two, "GET", "x"), nil());
    assert_eq!(cmd!(three, "GET", "x"), nil());
    assert_eq!(
        cmd!(two, "LPUSH", b"k\0\r\n", 1),
        err("WRONGTYPE Operation against a key holding the wrong kind of value")
    );
    cmd!(two, "HSET", "h", "f", 5u64);
    let (flat, map) = (cmd!(two, "HGETALL", "h"), cmd!(three, "HGETALL", "h"));
    assert_eq!(flat.field("f").as_int(), 5);
    assert!(matches!(map, Reply::Map(_)));
    assert_eq!(map.field("f").as_text(), "5");

    assert_eq!(
        two.exec_multi(&[args!["INCR", "n"], args!["GET", "n"]]),
        [int(1), bulk("1")]
    );
    assert_eq!(
        two.eval("return {KEYS[1], ARGV[1]}", &["k"], &args![7]),
        array([bulk("k"), bulk("7")])
    );
    assert!(two.client_id() > 0);
}

#[test]
fn pushes_and_late_replies_wait_their_turn() {
    let server = options().start();
    let (mut conn, mut other) = (server.conn3(), server.conn());
    cmd!(conn, "CLIENT", "TRACKING", "ON");
    cmd!(conn, "GET", "k");
    cmd!(other, "SET", "k", 1);
    assert_eq!(cmd!(conn, "PING"), status("PONG"));
    assert!(matches!(conn.recv(), Reply::Push(_)));

    conn.send(&args!["BLPOP", "list", 0]);
    assert_eq!(conn.recv_timeout(Duration::from_millis(20)), None);
    cmd!(other, "LPUSH", "list", "a");
    assert_eq!(conn.recv(), array([bulk("list"), bulk("a")]));

    let id = conn.client_id();
    cmd!(other, "CLIENT", "KILL", "ID", id);
    assert!(conn.try_cmd(&["PING"]).is_err());
}

#[test]
fn a_chain_agrees_and_shares_a_clock() {
    options();
    let chain = chain();
    let mut conn = chain.primary.conn();
    for i in 0..50 {
        cmd!(conn, "SET", i, "v", "PX", 1000 + i);
    }
    chain.assert_equal();
    assert_ne!(chain.digests()[0], "0".repeat(40));
    assert_eq!(chain.sub.aof_commands().last().unwrap()[0], b"SET");
    chain.clock().advance_ms(60_000);
    for server in chain.servers() {
        assert_eq!(time_us(&mut server.conn()), chain.clock().now_us());
    }
    eventually("expiry reaches the sub-replica", || {
        cmd!(chain.sub.conn(), "DBSIZE") == int(0)
    });

    // Links come back after a restart in the middle.
    chain.replica.restart();
    cmd!(conn, "SET", "after", 1);
    chain.assert_equal();
}

#[test]
fn a_diverged_chain_is_noticed() {
    options();
    let chain = chain();
    cmd!(chain.sub.conn(), "CONFIG", "SET", "replica-read-only", "no");
    cmd!(chain.sub.conn(), "SET", "only-here", 1);
    let [primary, replica, sub] = chain.digests();
    assert_eq!(primary, replica);
    assert_ne!(replica, sub);
}

#[test]
fn the_pool_returns_a_clean_server() {
    options();
    let mut seen: Vec<(u32, i64)> = Vec::new();
    // Other tests here take leases too, so this may be another server every time.
    for _ in 0..4 {
        let server = single();
        let now = server.clock().now_us();
        for (_, before) in seen.iter().filter(|(pid, _)| *pid == server.pid()) {
            assert!(now - before > 3 * 86_400_000_000, "{now} after {before}");
        }
        seen.push((server.pid(), now));
        let mut conn = server.conn();
        assert_eq!(time_us(&mut conn), now);
        assert!(now % 1000 != 0 && now / 1000 % 1000 != 0);
        assert_eq!(cmd!(conn, "DBSIZE"), int(0));
        assert_eq!(cmd!(conn, "ACL", "USERS"), array([bulk("default")]));
        assert_eq!(
            cmd!(conn, "CONFIG", "GET", "maxmemory").field("maxmemory"),
            &bulk("0")
        );
        let script = "0".repeat(40);
        assert_eq!(cmd!(conn, "SCRIPT", "EXISTS", &script), array([int(0)]));

        cmd!(conn, "SET", "k", "v");
        cmd!(conn, "SAVE");
        cmd!(conn, "ACL", "SETUSER", "eve", "on", "nopass", "+@all");
        cmd!(conn, "ACL", "SETUSER", "default", "-get");
        cmd!(conn, "CONFIG", "SET", "maxmemory", "100mb");
        cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
        cmd!(conn, "CONFIG", "REWRITE");
        cmd!(conn, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
        cmd!(conn, "CLIENT", "PAUSE", 1_000_000, "ALL");
        let mut blocked = server.conn();
        blocked.send(&args!["BLPOP", "list", 0]);
        server.sigstop();
    }
}

#[test]
fn a_dead_or_runaway_server_is_replaced() {
    options();
    let dead = single().pid();
    {
        let server = single();
        server.kill9();
    }
    let far = {
        let server = single();
        server.clock().freeze_at(9_000_000_000_000_000);
        server.pid()
    };
    let server = single();
    assert_ne!(server.pid(), far);
    assert!(server.is_alive());
    assert!(dead > 0 && time_us(&mut server.conn()) < 9_000_000_000_000_000);
}

/// Not a test: what the test below runs in a process of its own.
#[test]
fn child_process_that_holds_a_server() {
    if std::env::var_os("BED_CHILD").is_none() {
        return;
    }
    // Spawned from a thread that ends, as a test's does: the server must not end with it.
    let server = std::thread::spawn(|| options().start()).join().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(server.is_alive());
    println!("\n@{} {}", server.pid(), server.dir().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_server_dies_with_a_killed_test_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "child_process_that_holds_a_server",
            "--nocapture",
        ])
        .env("BED_CHILD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with('@'))
        .expect("the child process failed");
    let (pid, dir) = line[1..].split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(!is_gone(pid));
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    eventually("the server dies with its test process", || is_gone(pid));
    fs::remove_dir_all(dir).unwrap();
}

/// Shows what the suite pays; the bounds are loose, for machines under load.
#[test]
fn starts_and_leases_are_fast() {
    options();
    let timed = |what: &str, limit_ms: u128, action: &mut dyn FnMut()| {
        let start = Instant::now();
        action();
        let ms = start.elapsed().as_millis();
        println!("{what}: {ms} ms");
        assert!(ms < limit_ms, "{what} took {ms} ms");
    };
    timed("start", 5_000, &mut || drop(options().start()));
    timed(
        "chain",
        10_000,
        &mut || drop(sluice_testbed::Chain::start()),
    );
    drop((single(), chain()));
    timed("10 leases of a server", 5_000, &mut || {
        (0..10).for_each(|_| drop(single()));
    });
    timed("10 leases of a chain", 20_000, &mut || {
        (0..10).for_each(|_| drop(chain()));
    });
}
