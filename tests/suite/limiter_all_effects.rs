//! RL.ALL among others: on replicas, in transactions and scripts, in clusters, under ACL, and from
//! eight connections at once.

use std::sync::Barrier;

use crate::limiter_support::*;
use crate::support::*;

// --- what it propagates ---

#[test]
fn the_effects_of_one_call_are_one_unit() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let line = words("RL.ALL 3 a b d GCRA 2 1 60000 FIXEDWINDOW 1 60000 SLIDINGLOG 1 60000");
    assert_eq!(c.cmd(&line).items()[0], int(1));
    let effects = [
        Bucket::owing(1, now, (2, 1, 60_000)).effect_on("a", now),
        limiter_effect("b", now, &fixed_window((1, 60_000), now, 1)),
        // The first entry of a log is behind none.
        limiter_effect("d", now, &log_step((1, 60_000), 0, 0, (now, 1))),
    ];
    let [a, b, d] = effects;
    assert_eq!(tap.take(), [args!["MULTI"], a, b, d, args!["EXEC"]]);
    assert_eq!(c.cmd(&line).items()[0], int(0));
    assert!(tap.take().is_empty());
    assert_same(&chain);
}

#[test]
fn a_denial_keeps_the_keys_that_a_slower_policy_needs() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    cmd!(c, "RL.GCRA", "a", 9, 10, 60_000, "COST", 9);
    cmd!(c, "RL.GCRA", "b", 1, 1, 1000);
    let mut tap = Tap::on(&chain);
    // The second denies; under the policy for the first its nine take nine tenths of an hour.
    let line = words("RL.ALL 2 a b GCRA 10 10 3600000 GCRA 1 1 1000");
    let reply = c.cmd(&line);
    assert_eq!(reply.items()[..2], [int(0), int(1)], "{reply:?}");
    let end = deadline_ms(start, 3_240_000_000);
    assert_eq!(cmd!(c, "PEXPIRETIME", "a"), int(end));
    assert_eq!(tap.take(), [args!["PEXPIREAT", "a", end]]);
    c.cmd(&line);
    assert!(tap.take().is_empty());
    assert_same(&chain);
}

#[test]
fn a_denial_after_a_step_back_moves_every_key_to_now() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let line = words("RL.ALL 3 a b d GCRA 2 1 60000 FIXEDWINDOW 1 60000 SLIDINGLOG 5 60000");
    assert_eq!(c.cmd(&line).items()[0], int(1));
    chain.clock().advance_ms(-HOUR_MS);
    let denied = c.cmd(&line);
    let fives = [
        five([1, 2, 1, 0, 60_000]),
        five([0, 1, 0, 60_000, 60_000]),
        five([1, 5, 4, 0, 60_000]),
    ];
    let [a, b, d] = fives.clone();
    assert_eq!(denied, array([int(0), int(1), a, b, d]));
    assert_same(&chain);
    // They were stored so: a minute from now all is forgotten.
    chain.clock().advance_ms(59_999);
    assert_eq!(c.cmd(&line).items()[0], int(0));
    chain.clock().advance_ms(1);
    let reply = c.cmd(&line);
    let fives = [
        [1, 2, 1, 0, 60_000],
        [1, 1, 0, 0, 60_000],
        [1, 5, 4, 0, 60_000],
    ];
    let [a, b, d] = fives.map(five);
    assert_eq!(reply, array([int(1), int(-1), a, b, d]));
    assert_same(&chain);
}

// --- transactions, scripts ---

#[test]
fn transactions_and_scripts_get_the_same_replies() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let line = |tag: &str| {
        words(&format!(
            "RL.ALL 2 a{tag} b{tag} GCRA 2 1 60000 SLIDINGWINDOW 1 60000"
        ))
    };
    let plain: Vec<_> = (0..2).map(|_| c.cmd(&line("1"))).collect();
    let queued = c.exec_multi(&[line("2"), line("2")]);
    let script = "return {redis.call(unpack(ARGV)), redis.call(unpack(ARGV))}";
    let scripted = c.eval(script, &["a3", "b3"], &line("3"));
    assert_eq!(plain[0].items()[..2], [int(1), int(-1)]);
    assert_eq!(plain[1].items()[..2], [int(0), int(1)]);
    assert_eq!(queued, plain);
    assert_eq!(scripted.items(), plain);
    assert_same(&chain);
}

// --- clusters ---

#[test]
fn in_a_cluster_all_keys_share_a_slot() {
    let server = Options::new().cluster().start();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "CLUSTER", "ADDSLOTSRANGE", 0, 16_383), ok());
    eventually("the cluster serves", || {
        // It waits for two seconds of the wall clock.
        server.clock().advance_ms(500);
        cmd!(c, "CLUSTER", "INFO")
            .as_text()
            .contains("cluster_state:ok")
    });
    let (g, f) = ("GCRA 2 1 60000", "FIXEDWINDOW 1 60000");
    let line = format!("RL.ALL 2 {{t}}a {{t}}b {g} {f}");
    assert_eq!(c.cmd(&words(&line)).items()[..2], [int(1), int(-1)]);
    let cross = err("CROSSSLOT Keys in request don't hash to the same slot");
    let line = format!("RL.ALL 2 {{t}}a other {g} {f}");
    assert_eq!(c.cmd(&words(&line)), cross);
    // The server takes positions of keys as the module names them.
    for numkeys in [9, 64] {
        let line = format!("RL.ALL {numkeys} {{t}}a {{t}}b {g}");
        let too_few = err("ERR numkeys is more than the keys that follow");
        assert_eq!(c.cmd(&words(&line)), too_few, "{numkeys}");
    }
    for numkeys in ["65", "1024", "-1", "x", "0", "99999999999999999999"] {
        let line = format!("RL.ALL {numkeys} {{t}}a {{t}}b {g} {f}");
        let range = err("ERR numkeys must be an integer between 1 and 64");
        assert_eq!(c.cmd(&words(&line)), range, "{numkeys}");
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(2));
}

// --- ACL ---

#[test]
fn a_user_needs_permission_for_every_key() {
    let server = recorder();
    let mut c = server.conn();
    let rules = "ACL SETUSER u reset on nopass +@all ~app:* %R~read %W~write";
    assert_eq!(c.cmd(&words(rules)), ok());
    let mut u = server.conn();
    assert_eq!(cmd!(u, "AUTH", "u", "any"), ok());
    let line = |keys: &str| {
        let count = keys.split(' ').count();
        let policies = vec!["GCRA 2 1 60000"; count].join(" ");
        words(&format!("RL.ALL {count} {keys} {policies}"))
    };
    assert_eq!(u.cmd(&line("app:a app:b")).items()[0], int(1));
    changes_nothing(&server, || {
        for keys in [
            "other",
            "app:a other",
            "other app:a",
            "app:a app:b read",
            "write app:a",
        ] {
            let reply = u.cmd(&line(keys)).as_text();
            assert!(reply.starts_with("NOPERM"), "{keys}: {reply}");
        }
        // A numkeys that does not fit hides no key from the check: it is refused.
        for numkeys in ["1", "0", "9", "-1", "x"] {
            let line = format!("RL.ALL {numkeys} other app:a GCRA 2 1 60000");
            assert!(u.cmd(&words(&line)).is_error(), "{numkeys}");
        }
    });
}

// --- concurrency ---

/// Eight connections, two hierarchies that share their first two keys, the clock running: what was
/// admitted is on every key, and nothing else.
#[test]
fn under_concurrency_each_key_has_exactly_what_was_admitted() {
    let server = own(Options::new());
    server.clock().run();
    // So long that nothing leaves meanwhile.
    let hierarchies = [
        "RL.ALL 4 service tenant u1 op1 FIXEDWINDOW 900 86400000 SLIDINGLOG 700 86400000 \
         SLIDINGWINDOW 400 86400000 FIXEDWINDOW 1000 86400000 COST 2",
        "RL.ALL 4 op2 u2 tenant service FIXEDWINDOW 1000 86400000 SLIDINGLOG 350 86400000 \
         SLIDINGLOG 700 86400000 FIXEDWINDOW 900 86400000",
    ];
    let barrier = Barrier::new(8);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (barrier, server) = (&barrier, &server);
                scope.spawn(move || {
                    let mut c = server.conn();
                    let line = hierarchies[n % 2];
                    barrier.wait();
                    // One by one and many at a time, so that they mix.
                    let single: usize = (0..60).map(|_| admitted(&mut c, line, 1)).sum();
                    single + admitted(&mut c, line, 150)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a storm"))
            .collect()
    });
    let of = |hierarchy: usize| -> i64 {
        let own = counts.iter().skip(hierarchy).step_by(2);
        own.sum::<usize>() as i64
    };
    let (first, second) = (of(0), of(1));
    let mut c = server.conn();
    let mut used = |key: &str, field: &str| cmd!(c, "RL.INFO", key).field(field).as_int();
    assert_eq!(used("service", "used"), first + second);
    assert_eq!(used("tenant", "used"), first + second);
    assert_eq!(used("u1", "current"), first);
    assert_eq!(used("op1", "used"), 2 * first);
    assert_eq!(used("op2", "used"), second);
    assert_eq!(used("u2", "used"), second);
    // The tenant's limit is what stops both, unless their own does first.
    assert_eq!(first + second, 700, "{first} and {second}");
    assert!(first <= 400 && second <= 350, "{first} and {second}");
}

/// The same with a clock that refills: what the keys say is what was admitted, less what drained.
#[test]
fn under_concurrency_no_key_is_charged_for_a_denied_call() {
    let chain = chain();
    let server = &chain.primary;
    let line = "RL.ALL 3 a b d GCRA 100 100 1000 GCRA 40 10 1000 SLIDINGLOG 60 1000";
    let storm = || -> usize {
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut c = server.conn();
                        barrier.wait();
                        admitted(&mut c, line, 50)
                    })
                })
                .collect();
            let counts = threads.into_iter().map(|t| t.join().expect("a storm"));
            counts.sum()
        })
    };
    let mut c = server.conn();
    let mut expected = |a: i64, b: i64, d: i64| {
        let left = ["a", "b", "d"].map(|key| cmd!(c, "RL.INFO", key).field("remaining").as_int());
        assert_eq!(left, [a, b, d]);
    };
    assert_eq!(storm(), 40);
    expected(60, 0, 20);
    chain.clock().advance_ms(500);
    // Five have come back to the second; the first is full again but for nothing.
    assert_eq!(storm(), 5);
    expected(95, 0, 15);
    chain.clock().advance_ms(4000);
    assert_eq!(storm(), 40);
    expected(60, 0, 20);
    assert_same(&chain);
}
