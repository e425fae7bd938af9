//! Many holders: the most there may be, that they load again, and that each is found among them.

use crate::kinds_support::own;
use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::Waiter;

const MOST: usize = 100_000;
const TOO_MANY: &str = "ERR a semaphore has at most 100000 holders";

/// Holders from `from` on, one permit each, for ten minutes.
#[track_caller]
fn fill(c: &mut Conn, from: usize, to: usize) {
    let numbers: Vec<usize> = (from..to).collect();
    for chunk in numbers.chunks(5000) {
        let commands: Vec<_> = chunk
            .iter()
            .map(|n| {
                args![
                    "SEM.ACQUIRE",
                    "k",
                    format!("holder-{n}"),
                    600_000,
                    1_000_000
                ]
            })
            .collect();
        let replies = c.pipeline(&commands);
        assert!(replies.iter().all(|r| matches!(r, Reply::Int(1..))));
    }
}

#[test]
fn a_hundred_thousand_hold_and_not_one_more() {
    let server = own(Options::new().aof(Aof::Pure).config("appendfsync", "no"));
    let mut c = server.conn();
    fill(&mut c, 0, MOST);
    assert_eq!(counter(&server, "sem_permits"), MOST as i64);
    let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", "k");
    for line in [
        "SEM.ACQUIRE k one-more 1000 1000000",
        "SEM.ACQUIRE k one-more 1000 1000000 PERMITS 900000 BLOCK 60000",
    ] {
        assert_eq!(run(&mut c, line), err(TOO_MANY), "{line}");
    }
    // More than are free is busy as ever, and holders go on.
    assert_eq!(run(&mut c, "SEM.ACQUIRE k one-more 1000 100000"), nil());
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "k"), digest);
    acquire(&mut c, "k holder-5 1000 1000000");
    assert_eq!(run(&mut c, "SEM.RENEW k holder-7 600000"), int(600_000));
    // A queue is told when its turn comes: that it has none.
    let line = "SEM.ACQUIRE k big 1000 1000000 PERMITS 900001 BLOCK 60000";
    let mut big = Waiter::send(&server, line);
    let mut one = wait_for(&server, "k small 1000 1000000");
    // The permits of the one that leaves are enough for the big one, which takes its place.
    assert_eq!(run(&mut c, "SEM.RELEASE k holder-0"), int(1));
    big.token();
    assert_eq!(run(&mut c, "SEM.RELEASE k holder-1"), int(1));
    one.token();
    let permits = MOST as i64 - 2 + 900_001 + 1;
    assert_eq!(counter(&server, "sem_permits"), permits);
    server.clock().advance_ms(1001);
    // Their leases are over: two places are free again.
    fill(&mut c, MOST, MOST + 2);
    let refused = run(&mut c, "SEM.ACQUIRE k one-more 1000 1000000");
    assert_eq!(refused, err(TOO_MANY));

    // One that waited is told as well when there are permits for it and no place.
    assert_eq!(run(&mut c, "SEM.RELEASE k holder-2"), int(1));
    acquire(&mut c, "k two 600000 1000000 PERMITS 2");
    let mut last = wait_for(&server, "k last 600000 100001");
    let mut late = wait_for(&server, "k late 600000 100001");
    assert_eq!(run(&mut c, "SEM.RELEASE k two"), int(2));
    last.token();
    assert_eq!(late.answer(), err(TOO_MANY));

    // Through files, and through a payload.
    let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", "k");
    server.restart();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "k"), digest);
    rewrite_aof(&server);
    server.restart();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "k"), digest);
    assert_eq!(cmd!(c, "DEBUG", "RELOAD"), ok());
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "k"), digest);
    let payload = cmd!(c, "DUMP", "k");
    let restored = cmd!(c, "RESTORE", "again", 600_000, payload.as_bytes());
    assert_eq!(restored, ok());
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "again"), digest);
    assert_eq!(counter(&server, "sem_permits"), 2 * MOST as i64);
    cmd!(c, "UNLINK", "k", "again");
    eventually("it is freed", || counter(&server, "sem_permits") == 0);
}

#[test]
fn a_payload_with_one_holder_too_many_is_refused() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let mut all: Vec<Hold> = (0..=MOST as u64)
        .map(|n| {
            let mut hold = Hold::at(now, 5000, 1, n.to_le_bytes());
            hold.token += n;
            hold
        })
        .collect();
    let refused = cmd!(c, "RESTORE", "k", 0, sem_dump(&all));
    assert_eq!(refused, err("ERR Bad data format"));
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    all.pop();
    assert_eq!(cmd!(c, "RESTORE", "k", 0, sem_dump(&all)), ok());
    assert_eq!(counter(&server, "sem_permits"), MOST as i64);
}

/// What a call costs among so many is for `benches/instructions`; here that it finds its holder.
#[test]
fn calls_find_their_holder_among_ten_and_among_a_hundred_thousand() {
    const CALLS: usize = 1000;
    let server = own(Options::new());
    let mut c = server.conn();
    let mut have = 0;
    for holders in [10, 1000, MOST - 1] {
        fill(&mut c, have, holders);
        have = holders;
        let mut all = |line: &dyn Fn(usize) -> String, expected: &dyn Fn(&Reply) -> bool| {
            let commands: Vec<_> = (0..CALLS).map(|n| words(&line(n))).collect();
            let replies = c.pipeline(&commands);
            assert!(
                replies.iter().all(expected),
                "{}: {:?}",
                line(0),
                replies[0]
            );
        };
        let some = |n: usize| n * 7919 % holders;
        let is_positive = |reply: &Reply| matches!(reply, Reply::Int(1..));
        let pair = |n: usize| match n % 2 {
            0 => "SEM.ACQUIRE k one-more 600000 1000000".to_string(),
            _ => "SEM.RELEASE k one-more".to_string(),
        };
        all(&pair, &is_positive);
        let renew = |n| format!("SEM.RENEW k holder-{} {}", some(n), 700_000 + n);
        all(&renew, &is_positive);
        let retry = |n| format!("SEM.ACQUIRE k holder-{} 1 1000000", some(n));
        all(&retry, &is_positive);
        let busy = |_| format!("SEM.ACQUIRE k busy 600000 {holders}");
        all(&busy, &|reply| *reply == nil());
        let stranger = |_| "SEM.RELEASE k x".to_string();
        all(&stranger, &|reply| *reply == int(0));
        assert_eq!(counter(&server, "sem_permits"), holders as i64);
    }
}
