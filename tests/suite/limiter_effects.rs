//! What each kind of write to a limiter propagates, to the byte, as it stands in the file of a
//! sub-replica: one effect, or what the server itself has for it, or nothing.

use sluice_testbed::Chain;

use crate::limiter_support::*;
use crate::support::*;

type Command = Vec<Vec<u8>>;

/// Calls, and what follows each. All of them are on the key `k`.
struct Recorder<'a> {
    chain: &'a Chain,
    tap: Tap<'a>,
    conn: Conn,
}

impl<'a> Recorder<'a> {
    fn on(chain: &'a Chain) -> Recorder<'a> {
        Recorder {
            chain,
            tap: Tap::on(chain),
            conn: chain.primary.conn(),
        }
    }

    #[track_caller]
    fn propagates(&mut self, line: &str, expected: &[Command]) {
        let reply = self.conn.cmd(&words(line));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        assert_eq!(self.tap.take(), expected, "{line}");
        assert_same(self.chain);
    }

    /// One effect with this body, as of now.
    #[track_caller]
    fn sends(&mut self, line: &str, body: &[u8]) {
        let now = self.chain.clock().now_us();
        self.propagates(line, &[limiter_effect("k", now, body)]);
    }

    #[track_caller]
    fn sends_nothing(&mut self, lines: &[&str]) {
        for line in lines {
            self.conn.cmd(&words(line));
            assert_eq!(self.tap.take(), [] as [Command; 0], "{line}");
        }
        assert_same(self.chain);
    }

    #[track_caller]
    fn deletes(&mut self, line: &str) {
        self.propagates(line, &[args!["DEL", "k"]]);
    }

    /// A denial under a policy by which the state matters for `us` from `from_us`.
    #[track_caller]
    fn lengthens(&mut self, line: &str, from_us: i64, us: i64) {
        let end = deadline_ms(from_us, us);
        self.propagates(line, &[args!["PEXPIREAT", "k", end]]);
        self.sends_nothing(&[line]);
    }
}

#[test]
fn a_bucket_sends_its_debt() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let owing = |tokens, at_us| Bucket::owing(tokens, at_us, (5, 5, 60_000)).body();
    r.sends("RL.LEAKYBUCKET k 5 5 60000 COST 2", &owing(2, t));
    r.sends("RL.CHARGE k GCRA 5 5 60000 COST 21", &owing(23, t));
    r.sends("CL.THROTTLE k 4 5 60 -1", &owing(22, t));
    r.sends_nothing(&[
        "RL.GCRA k 5 5 60000",
        "RL.PEEK k LEAKYBUCKET 5 5 60000",
        "CL.THROTTLE k 4 5 60",
        "CL.THROTTLE k 4 5 60 0",
        "RL.FIXEDWINDOW k 5 60000",
        "RL.CHARGE k GCRA 1 1 31536000000 COST 101",
        "RL.INFO k",
    ]);
    // Its own capacity, but a rate of one token a minute: 22 minutes.
    r.lengthens("RL.GCRA k 5 1 60000", t, 22 * 60_000_000);
    chain.clock().advance_ms(12_000);
    r.sends(
        "RL.REFUND k TOKENBUCKET 5 5 60000 COST 3",
        &owing(18, t + 12_000_000),
    );
    chain.clock().advance_ms(-60_000);
    let back = t - 48_000_000;
    r.sends("RL.GCRA k 5 5 60000", &owing(18, back));
    r.sends_nothing(&["RL.GCRA k 5 5 60000"]);
    r.deletes("RL.REFUND k GCRA 5 5 60000 COST 1000000000");
    r.sends_nothing(&["RL.REFUND k GCRA 5 5 60000", "RL.RESET k"]);
}

#[test]
fn a_fixed_window_sends_its_count() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let policy = (10, 60_000);
    r.sends(
        "RL.FIXEDWINDOW k 10 60000 COST 4",
        &fixed_window(policy, t, 4),
    );
    chain.clock().advance_us(1001);
    r.sends(
        "RL.FIXEDWINDOW k 10 60000 COST 6",
        &fixed_window(policy, t, 10),
    );
    r.sends_nothing(&[
        "RL.FIXEDWINDOW k 10 60000",
        "RL.PEEK k FIXEDWINDOW 10 60000",
        "RL.SLIDINGWINDOW k 10 60000",
        "RL.FIXEDWINDOW k 10 60000 COST 11",
    ]);
    r.sends(
        "RL.CHARGE k FIXEDWINDOW 10 60000 COST 5",
        &fixed_window(policy, t, 15),
    );
    r.lengthens("RL.FIXEDWINDOW k 10 3600000", t, 3_600_000_000);
    r.sends(
        "RL.REFUND k FIXEDWINDOW 10 60000",
        &fixed_window(policy, t, 14),
    );
    chain.clock().advance_ms(-5000);
    let back = t + 1001 - 5_000_000;
    r.sends("RL.FIXEDWINDOW k 10 60000", &fixed_window(policy, back, 14));
    r.deletes("RL.REFUND k FIXEDWINDOW 10 60000 COST 14");
    // Aligned, it starts before its first request.
    let start = (back - 777_000) / 60_000_000 * 60_000_000 + 777_000;
    r.sends(
        "RL.FIXEDWINDOW k 10 60000 ALIGN 777",
        &fixed_window(policy, start, 1),
    );
    r.deletes("RL.RESET k");
}

#[test]
fn a_sliding_window_sends_both_counts() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let policy = (10, 60_000);
    r.sends(
        "RL.SLIDINGWINDOW k 10 60000 COST 8",
        &sliding_window(policy, t, [8, 0]),
    );
    chain.clock().advance_ms(61_000);
    let start = t + 60_000_000;
    r.sends(
        "RL.SLIDINGWINDOW k 10 60000",
        &sliding_window(policy, start, [1, 8]),
    );
    r.sends_nothing(&[
        "RL.SLIDINGWINDOW k 10 60000 COST 2",
        "RL.PEEK k SLIDINGWINDOW 10 60000",
        "RL.SLIDINGLOG k 10 60000",
        "RL.SLIDINGWINDOW k 10 60000 COST 11",
    ]);
    r.lengthens(
        "RL.SLIDINGWINDOW k 10 3600000 COST 10",
        start,
        7_200_000_000,
    );
    r.sends(
        "RL.CHARGE k SLIDINGWINDOW 10 60000 COST 5",
        &sliding_window(policy, start, [6, 8]),
    );
    // The newest first.
    r.sends(
        "RL.REFUND k SLIDINGWINDOW 10 60000 COST 9",
        &sliding_window(policy, start, [0, 5]),
    );
    chain.clock().advance_ms(-2000);
    let back = t + 59_000_000;
    r.sends(
        "RL.SLIDINGWINDOW k 10 60000 COST 6",
        &sliding_window(policy, back, [0, 5]),
    );
    r.deletes("RL.REFUND k SLIDINGWINDOW 10 60000 COST 5");
    r.sends(
        "RL.CHARGE k SLIDINGWINDOW 10 60000",
        &sliding_window(policy, back, [1, 0]),
    );
    r.deletes("RL.RESET k");
}

#[test]
fn a_log_sends_its_newest_entry_and_what_is_gone() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let policy = (10, 60_000);
    r.sends(
        "RL.SLIDINGLOG k 10 60000 COST 3",
        &log_step(policy, 0, 0, (t, 3)),
    );
    chain.clock().advance_us(1);
    r.sends(
        "RL.SLIDINGLOG k 10 60000 COST 2",
        &log_step(policy, 0, t, (t + 1, 5)),
    );
    // One entry for one instant.
    r.sends(
        "RL.SLIDINGLOG k 10 60000",
        &log_step(policy, 0, t, (t + 1, 6)),
    );
    r.sends_nothing(&[
        "RL.SLIDINGLOG k 10 60000 COST 5",
        "RL.PEEK k SLIDINGLOG 10 60000",
        "RL.GCRA k 10 10 60000",
        "RL.SLIDINGLOG k 10 60000 COST 11",
        "RL.SLIDINGLOG k 100001 60000",
    ]);
    // Under a longer window the newest matters for longer.
    r.lengthens("RL.SLIDINGLOG k 6 3600000", t + 1, 3_600_000_000);
    chain.clock().advance_us(1);
    r.sends(
        "RL.CHARGE k SLIDINGLOG 10 60000 COST 7",
        &log_step(policy, 0, t + 1, (t + 2, 13)),
    );
    // What is given back leaves the newest entries, and none of an instant of its own.
    r.sends(
        "RL.REFUND k SLIDINGLOG 10 60000 COST 9",
        &log_step(policy, 0, t, (t + 1, 4)),
    );
    r.sends(
        "RL.REFUND k SLIDINGLOG 10 60000 COST 1",
        &log_step(policy, 0, 0, (t, 3)),
    );
    // The first lapses with the instant in which a window is over.
    chain.clock().advance_us(59_999_998);
    let t2 = t + 60_000_000;
    r.sends("RL.SLIDINGLOG k 10 60000", &log_step(policy, 3, 0, (t2, 4)));
    chain.clock().advance_us(10);
    r.sends(
        "RL.SLIDINGLOG k 10 60000",
        &log_step(policy, 3, t2, (t2 + 10, 5)),
    );
    // A step back puts both into the instant of the denial.
    chain.clock().advance_us(-11);
    r.sends(
        "RL.SLIDINGLOG k 2 60000",
        &log_step(policy, 3, 0, (t2 - 1, 5)),
    );
    r.deletes("RL.REFUND k SLIDINGLOG 10 60000 COST 2");
    // A new log counts from nothing.
    r.sends(
        "RL.SLIDINGLOG k 10 60000",
        &log_step(policy, 0, 0, (t2 - 1, 1)),
    );
    r.deletes("RL.RESET k");
}

#[test]
fn a_block_sends_its_ends_and_what_is_below() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let (policy, until) = ((10, 60_000), t + 5_000_000);
    r.sends("RL.BLOCK k 5000", &blocked(t, until, UNUSED));
    r.sends_nothing(&[
        "RL.BLOCK k 5000",
        "RL.BLOCK k 4999",
        "RL.BLOCK k 0",
        "RL.SLIDINGLOG k 10 60000",
        "RL.PEEK k SLIDINGLOG 10 60000",
        "RL.REFUND k SLIDINGLOG 10 60000",
        "RL.REFUND k GCRA 10 10 60000",
        "CL.THROTTLE k 4 5 60",
    ]);
    // Charges are counted below it, and a refund does not lift it.
    let below = log_step(policy, 0, 0, (t, 4));
    r.sends(
        "RL.CHARGE k SLIDINGLOG 10 60000 COST 4",
        &blocked(t, until, &below),
    );
    chain.clock().advance_us(1);
    let below = log_step(policy, 0, t, (t + 1, 6));
    r.sends(
        "RL.CHARGE k SLIDINGLOG 10 60000 COST 2",
        &blocked(t, until, &below),
    );
    r.sends(
        "RL.REFUND k SLIDINGLOG 10 60000 COST 6",
        &blocked(t, until, UNUSED),
    );
    let below = fixed_window((3, 1000), t + 1, 1);
    r.sends("RL.CHARGE k FIXEDWINDOW 3 1000", &blocked(t, until, &below));
    // A longer one is counted from now on.
    r.sends("RL.BLOCK k 9000", &blocked(t + 1, t + 9_000_001, &below));
    // After a step back it lasts as long as it did, from the next write on.
    chain.clock().advance_ms(-2000);
    let back = t + 1 - 2_000_000;
    let below = fixed_window((3, 1000), back, 1);
    r.sends(
        "RL.FIXEDWINDOW k 3 1000",
        &blocked(back, back + 9_000_000, &below),
    );
    chain.clock().advance_ms(-1);
    let again = back - 1000;
    let below = fixed_window((3, 1000), again, 1);
    r.sends("RL.BLOCK k 1", &blocked(again, again + 9_000_000, &below));
    // When it is over, nothing of it is left.
    chain.clock().advance_us(9_000_000);
    let end = again + 9_000_000;
    r.sends("RL.FIXEDWINDOW k 3 1000", &fixed_window((3, 1000), end, 1));
    r.sends("RL.BLOCK k 31536000000", &{
        let below = fixed_window((3, 1000), end, 1);
        blocked(end, end + 31_536_000_000_000, &below)
    });
    r.deletes("RL.RESET k");
}

#[test]
fn rl_all_sends_all_its_effects_or_nothing() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let t = chain.clock().now_us();
    let three = "SLIDINGLOG 10 60000 COST 2 GCRA 5 5 60000 COST 3 FIXEDWINDOW 7 60000 COST 4";
    let unit = |commands: &[Command]| [&[args!["MULTI"]], commands, &[args!["EXEC"]]].concat();
    r.propagates(
        &format!("RL.ALL 3 k l m {three}"),
        &unit(&[
            limiter_effect("k", t, &log_step((10, 60_000), 0, 0, (t, 2))),
            limiter_effect("l", t, &Bucket::owing(3, t, (5, 5, 60_000)).body()),
            limiter_effect("m", t, &fixed_window((7, 60_000), t, 4)),
        ]),
    );
    // Any of the three denies: nothing, of the other two neither.
    let key_and_policy = [
        ("k", "SLIDINGLOG 10 60000 COST 9"),
        ("l", "GCRA 5 5 60000 COST 3"),
        ("m", "FIXEDWINDOW 7 60000 COST 4"),
    ];
    for (key, denies) in key_and_policy {
        for line in [
            format!("RL.ALL 3 {key} x y {denies} GCRA 1 1 1000 GCRA 1 1 1000"),
            format!("RL.ALL 3 x {key} y GCRA 1 1 1000 {denies} GCRA 1 1 1000"),
            format!("RL.ALL 3 x y {key} GCRA 1 1 1000 GCRA 1 1 1000 {denies}"),
        ] {
            assert_eq!(r.conn.cmd(&words(&line)).items()[0], int(0), "{line}");
            r.sends_nothing(&[&line]);
        }
    }
    // A denial may lengthen the TTL of a key whose policy needs that, and of no other.
    let end = deadline_ms(t, 3_600_000_000);
    r.propagates(
        "RL.ALL 3 k l m SLIDINGLOG 10 60000 GCRA 5 5 60000 COST 3 FIXEDWINDOW 7 3600000",
        &[args!["PEXPIREAT", "m", end]],
    );
    // After a step back each key that is ahead is sent, though the call is denied.
    chain.clock().advance_us(-1);
    let back = t - 1;
    r.propagates(
        &format!("RL.ALL 3 k l m {three}"),
        &unit(&[
            limiter_effect("k", back, &log_step((10, 60_000), 0, 0, (back, 2))),
            limiter_effect("l", back, &Bucket::owing(3, back, (5, 5, 60_000)).body()),
            limiter_effect("m", back, &fixed_window((7, 60_000), back, 4)),
        ]),
    );
    r.sends_nothing(&[
        &format!("RL.ALL 3 k l k {three}"),
        &format!("RL.ALL 3 l k m {three}"),
        "RL.ALL 2 k new SLIDINGLOG 10 60000 GCRA 0 5 60000",
    ]);
}

#[test]
fn the_effect_of_a_log_is_as_small_with_ten_thousand_entries_as_with_one() {
    let chain = chain();
    let mut r = Recorder::on(&chain);
    let mut c = chain.primary.conn();
    let t = chain.clock().now_us();
    let policy = (20_000, 60_000);
    for count in [1u64, 10, 1000, 10_000] {
        let entries: Vec<_> = (0..count).map(|i| (t as u64 - count + i, i + 1)).collect();
        let whole = limiter_dump(&sliding_log(policy, 0, &entries));
        cmd!(c, "RESTORE", "k", 60_000, &whole, "REPLACE");
        cmd!(c, "PEXPIREAT", "k", deadline_ms(t, 60_000_000));
        r.tap.take();
        let step = log_step(policy, 0, t - 1, (t, count + 1));
        assert_eq!(limiter_effect("k", t, &step)[2].len(), 54);
        r.sends("RL.SLIDINGLOG k 20000 60000", &step);
        r.sends("RL.REFUND k SLIDINGLOG 20000 60000", &{
            let behind = if count == 1 { 0 } else { t - 2 };
            log_step(policy, 0, behind, (t - 1, count))
        });
        let step = blocked(t, t + 1_000_000, &{
            let behind = if count == 1 { 0 } else { t - 2 };
            log_step(policy, 0, behind, (t - 1, count))
        });
        r.sends("RL.BLOCK k 1000", &step);
    }
}
