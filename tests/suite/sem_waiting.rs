//! Waiting for permits: who is granted what, and when.

use std::time::{Duration, Instant};

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::*;

/// `h1` … `hN` hold one permit each of `k`, for a minute.
#[track_caller]
fn fill(c: &mut Conn, count: usize) {
    for n in 1..=count {
        acquire(c, &format!("k h{n} 60000 {count}"));
    }
}

// The head of the line --------------------------------------------------------------------------------

/// A waiter for five permits is not starved by later waiters for one, nor by newcomers.
#[test]
fn a_waiter_for_many_is_not_starved_by_waiters_for_one() {
    let server = single();
    let mut c = server.conn();
    fill(&mut c, 5);
    let mut five = wait_for(&server, "k five 60000 5 PERMITS 5");
    let mut ones: Vec<Waiter> = (1..=5)
        .map(|n| wait_for(&server, &format!("k one{n} 60000 5")))
        .collect();
    let mut newcomer = server.conn();
    for n in 1..=4 {
        assert_eq!(cmd!(c, "SEM.RELEASE", "k", format!("h{n}")), int(1));
        for line in ["SEM.ACQUIRE k new 60000 5", "SEM.ACQUIRE k new 1 1000000"] {
            assert_eq!(run(&mut newcomer, line), nil());
        }
        assert_eq!(cmd!(c, "SEM.INFO", "k").field("waiters"), &int(6));
        assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(5 - n));
    }
    five.still_waits();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "h5"), int(1));
    let mut last = five.token();
    holds(&mut c, "k", &[("five", 5)]);
    // The ones come all at once, in their order.
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "five"), int(5));
    for one in &mut ones {
        let token = one.token();
        assert_eq!(token, last + 1);
        last = token;
    }
    assert_eq!(held(&mut c, "k").len(), 5);
    nobody_waits(&server);
}

#[test]
fn one_release_grants_as_many_as_it_has_room_for() {
    let chain = chain();
    let mut c = chain.primary.conn();
    acquire(&mut c, "k all 60000 6 PERMITS 6");
    let mut queue: Vec<(Waiter, bool)> = [
        ("a 60000 6 PERMITS 2", true),
        ("b 60000 6 PERMITS 3", true),
        ("d 60000 6 PERMITS 2", false),
        ("e 60000 6", false),
    ]
    .map(|(line, now)| (wait_for(&chain.primary, &format!("k {line}")), now))
    .into();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "all"), int(6));
    // One is free, and d wants two: e does not pass it.
    holds(&mut c, "k", &[("a", 2), ("b", 3)]);
    for (waiter, is_granted) in &mut queue {
        match is_granted {
            true => assert!(waiter.token() > 0),
            false => waiter.still_waits(),
        }
    }
    chain.assert_equal();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a"), int(2));
    holds(&mut c, "k", &[("b", 3), ("d", 2), ("e", 1)]);
    chain.assert_equal();
}

#[test]
fn each_waiter_is_judged_by_its_own_limit() {
    let server = single();
    let mut c = server.conn();
    fill(&mut c, 5);
    // Lowered: its turn comes when only two are left.
    let mut low = wait_for(&server, "k low 60000 3");
    let mut high = wait_for(&server, "k high 60000 9");
    for n in 1..=2 {
        cmd!(c, "SEM.RELEASE", "k", format!("h{n}"));
    }
    low.still_waits();
    cmd!(c, "SEM.RELEASE", "k", "h3");
    assert!(low.token() < high.token());
    holds(
        &mut c,
        "k",
        &[("h4", 1), ("h5", 1), ("low", 1), ("high", 1)],
    );
}

// Ends of leases -----------------------------------------------------------------------------------------

/// A crashed holder's permits come back at its own deadline, and wake the queue at that moment.
#[test]
fn each_crashed_holder_wakes_the_queue_at_its_own_deadline() {
    let chain = chain();
    let server = &chain.primary;
    let since = Since::now(server);
    let mut c = server.conn();
    leave_expired(&mut c);
    const COUNT: i64 = 5;
    for n in 1..=COUNT {
        acquire(&mut c, &format!("k h{n} {} {COUNT}", n * 1000));
    }
    let mut waiters: Vec<Waiter> = (1..=COUNT)
        .map(|n| wait_for(server, &format!("k w{n} 60000 {COUNT}")))
        .collect();
    chain.clock().advance_ms(999);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        chain.clock().advance_ms(1);
        // The deadline's own millisecond.
        waiter.still_waits();
        assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(COUNT));
        chain.clock().advance_ms(1);
        let due = chain.clock().now_us();
        assert!(waiter.token() >= due, "w{}", n + 1);
        assert_eq!(held(&mut c, "k").len(), COUNT as usize);
        chain.assert_equal();
        chain.clock().advance_ms(998);
    }
    since.all_counted(&[
        ("sem_leases_expired", COUNT),
        ("sem_granted", 2 * COUNT),
        ("sem_permits", COUNT),
    ]);
}

#[test]
fn on_a_running_clock_each_deadline_wakes_one() {
    let server = single();
    let mut c = server.conn();
    server.clock().run();
    let started = Instant::now();
    for n in 1..=4 {
        acquire(&mut c, &format!("k h{n} {} 4", n * 400));
    }
    let mut waiters: Vec<Waiter> = (1..=4)
        .map(|n| wait_for(&server, &format!("k w{n} 60000 4")))
        .collect();
    for (n, waiter) in (1..).zip(&mut waiters) {
        waiter.token();
        let late = started
            .elapsed()
            .checked_sub(Duration::from_millis(n * 400));
        let late = late.unwrap_or_else(|| panic!("w{n} before the lease was over"));
        // How soon is for `benches/waiting`. Not lost: nothing else would wake it for a minute.
        assert!(late < Duration::from_secs(30), "w{n} {late:?} late");
    }
}

#[test]
fn a_renewal_and_a_retry_let_the_queue_wait_on() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 1000 2");
    acquire(&mut c, "k b 2000 2");
    let mut w = wait_for(&server, "k w 60000 2");
    assert_eq!(run(&mut c, "SEM.RENEW k a 3000"), int(3000));
    server.clock().advance_ms(1500);
    w.still_waits();
    acquire(&mut c, "k b 5000 2");
    server.clock().advance_ms(1000);
    w.still_waits();
    server.clock().advance_ms(501);
    w.token();
    holds(&mut c, "k", &[("b", 1), ("w", 1)]);
}

#[test]
fn a_step_back_stretches_the_leases_that_a_queue_waits_for() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 1000 2");
    acquire(&mut c, "k b 5000 2");
    let mut w = wait_for(&server, "k w 60000 2 PERMITS 2");
    server.clock().advance_ms(1001);
    w.still_waits();
    // With it what was over is not over any more.
    server.clock().advance_ms(-3_600_000);
    w.still_waits();
    holds(&mut c, "k", &[("a", 1), ("b", 1)]);
    server.clock().advance_ms(3_600_000);
    w.still_waits();
    server.clock().advance_ms(4000);
    w.token();
    holds(&mut c, "k", &[("w", 2)]);
}

// One holder, several waits -----------------------------------------------------------------------------

#[test]
fn one_grant_answers_all_waits_of_a_holder() {
    let chain = chain();
    let server = &chain.primary;
    let since = Since::now(server);
    let mut c = server.conn();
    fill(&mut c, 2);
    let mut first = wait_for(server, "k w 1000 2 PERMITS 2 META one");
    let mut behind = wait_for(server, "k x 60000 2");
    let mut again = wait_for(server, "k w 9000 3 PERMITS 2 META two");
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("waiters"), &int(3));
    // The higher of the limits it gave, which leaves one of three with h2.
    cmd!(c, "SEM.RELEASE", "k", "h1");
    let token = first.token();
    assert_eq!(again.token(), token);
    holds(&mut c, "k", &[("h2", 1), ("w", 2)]);
    assert_eq!(of_holder(&mut c, "k", "w", "ttl_ms"), 9000);
    behind.still_waits();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "w"), int(2));
    behind.token();
    since.all_counted(&[("sem_granted", 4)]);
    chain.assert_equal();
}

/// The most generous call speaks for all: it is granted as soon as if it alone had come.
#[test]
fn a_second_wait_under_a_higher_limit_is_granted_at_once() {
    let server = single();
    let mut c = server.conn();
    fill(&mut c, 5);
    let mut low = wait_for(&server, "k w 60000 3 PERMITS 2");
    let mut behind = wait_for(&server, "k x 60000 9");
    low.still_waits();
    let mut high = server.conn();
    let token = acquire(&mut high, "k w 60000 7 PERMITS 2 BLOCK 60000");
    assert_eq!(low.token(), token);
    behind.token();
    // Behind the head nothing changes.
    let mut head = wait_for(&server, "k head 60000 8 PERMITS 3");
    let mut low = wait_for(&server, "k y 60000 8");
    let mut high = wait_for(&server, "k y 60000 9");
    for waiter in [&mut head, &mut low, &mut high] {
        waiter.still_waits();
    }
}

#[test]
fn a_waiting_holder_may_not_ask_for_other_permits() {
    let server = single();
    let mut c = server.conn();
    fill(&mut c, 2);
    let mut w = wait_for(&server, "k w 1000 5 PERMITS 4");
    for line in [
        "SEM.ACQUIRE k w 1000 5",
        "SEM.ACQUIRE k w 1000 5 PERMITS 5 BLOCK 1000",
        "SEM.ACQUIRE k w 1000 5 PERMITS 3 SESSION BLOCK 1000",
    ] {
        assert_eq!(run(&mut c, line), permits_changed(4), "{line}");
    }
    // The same without BLOCK is busy, and its place stands.
    assert_eq!(run(&mut c, "SEM.ACQUIRE k w 1000 5 PERMITS 4"), nil());
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("waiters"), &int(1));
    cmd!(c, "SEM.RELEASE", "k", "h1");
    w.token();
    holds(&mut c, "k", &[("h2", 1), ("w", 4)]);
}

// Transactions and scripts --------------------------------------------------------------------------------

#[test]
fn in_a_transaction_or_a_script_nobody_waits_and_nobody_overtakes() {
    let server = single();
    let mut c = server.conn();
    fill(&mut c, 2);
    let line = words("SEM.ACQUIRE k new 60000 2 BLOCK 60000");
    let script = "return redis.call(unpack(ARGV))";
    assert_eq!(c.exec_multi(std::slice::from_ref(&line)), [nil()]);
    assert_eq!(c.eval(script, &["k"], &line), nil());
    let mut w = wait_for(&server, "k w 60000 2 PERMITS 2");
    // A permit is free, but another comes first.
    let replies = c.exec_multi(&[words("SEM.RELEASE k h1"), line.clone()]);
    assert_eq!(replies, [int(1), nil()]);
    assert_eq!(c.eval(script, &["k"], &line), nil());
    // A release in there hands over in the same unit.
    let replies = c.exec_multi(&[words("SEM.RELEASE k h2"), line.clone(), words("SEM.INFO k")]);
    assert_eq!(replies[..2], [int(1), nil()]);
    assert_eq!(replies[2].field("permits"), &int(2));
    assert_eq!(replies[2].field("waiters"), &int(0));
    w.token();
    let mut x = wait_for(&server, "k x 60000 2");
    let release = args!["SEM.RELEASE", "w"];
    assert_eq!(c.eval(RUN, &["k"], &release), int(2));
    x.token();
    assert!(c.eval(script, &["k"], &line).as_int() > 0);
}

// From the field -------------------------------------------------------------------------------------------

/// redis#8623: noeviction, over maxmemory: SEM.RELEASE plainly, in EVAL and in FCALL still grants,
/// SEM.RENEW works, SEM.ACQUIRE answers OOM.
#[test]
fn over_maxmemory_a_release_still_grants() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    load_function(&mut c);
    fill(&mut c, 3);
    let mut queue: Vec<Waiter> = (1..=4)
        .map(|n| wait_for(server, &format!("k w{n} 60000 3")))
        .collect();
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "noeviction");
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    for line in [
        "SEM.ACQUIRE k x 1000 3",
        "SEM.ACQUIRE free x 1000 3",
        "SEM.ACQUIRE k x 1000 3 BLOCK 1000",
    ] {
        let reply = run(&mut c, line);
        assert!(reply.as_text().starts_with("OOM "), "{line}: {reply:?}");
    }
    assert_eq!(run(&mut c, "SEM.RENEW k h3 61000"), int(61_000));
    assert_eq!(run(&mut c, "SEM.RELEASE k h1"), int(1));
    queue[0].token();
    let reply = c.eval(RUN, &["k"], &args!["SEM.RELEASE", "h2"]);
    assert_eq!(reply, int(1));
    queue[1].token();
    let reply = cmd!(c, "FCALL", "run", 1, "k", "SEM.RELEASE", "w1");
    assert_eq!(reply, int(1));
    queue[2].token();
    // What the deferred writer does is no client's command.
    chain.clock().advance_ms(60_001);
    queue[3].token();
    chain.assert_equal();
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
}

/// redisson#5762: one permit, two clients, thousands of hand-overs at random moments: no wait beyond
/// the hand-over itself, and none is lost.
#[test]
fn two_clients_hand_one_permit_to_each_other() {
    const ROUNDS: i64 = 3000;
    let server = single();
    let since = Since::now(&server);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (holder, seed) in [("a", 1u64), ("b", 2)] {
            let mut conn = server.conn();
            scope.spawn(move || {
                let line = words(&format!("SEM.ACQUIRE k {holder} 60000 1 BLOCK 60000"));
                let (mut last, mut random) = (0, seed);
                for _ in 0..ROUNDS {
                    let token = conn.cmd(&line).as_int();
                    assert!(token > last);
                    last = token;
                    // Some hold it for a moment, most give it back at once.
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    if random >> 60 == 0 {
                        std::thread::sleep(Duration::from_micros(random >> 54));
                    }
                    assert_eq!(cmd!(conn, "SEM.RELEASE", "k", holder), int(1));
                }
            });
        }
    });
    // One lost wake-up would take the minute of a lease or a wait.
    assert!(started.elapsed() < Duration::from_secs(45));
    since.all_counted(&[
        ("sem_granted", 2 * ROUNDS),
        ("sem_released", 2 * ROUNDS),
        ("sem_wait_timeouts", 0),
    ]);
    assert_eq!(
        high_water(&server),
        server.clock().now_us() + 2 * ROUNDS - 1
    );
    nobody_waits(&server);
    assert_eq!(cmd!(server.conn(), "DBSIZE"), int(0));
}
