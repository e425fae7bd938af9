//! RL.SLIDINGLOG: every call of the window, exactly.

use crate::limiter_support::*;
use crate::support::*;

const ENTRIES: &str = "sluice.rl-max-log-entries";

fn too_long(max: i64) -> String {
    format!("ERR limit must be an integer between 1 and {max} ({ENTRIES})")
}

/// Of RL.INFO: what lies within the window, and in how many entries.
fn used(c: &mut Conn, key: &str) -> [i64; 2] {
    let info = cmd!(c, "RL.INFO", key);
    ["used", "entries"].map(|field| info.field(field).as_int())
}

#[test]
fn each_call_leaves_a_window_after_it_came() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let at = |us: i64| server.clock().freeze_at(start + us);
    let line = "RL.SLIDINGLOG k 3 1000";
    run(&mut c, &[(line, [1, 3, 2, 0, 1000])]);
    at(200_000);
    run(&mut c, &[(line, [1, 3, 1, 0, 1000])]);
    at(300_000);
    run(
        &mut c,
        &[
            (line, [1, 3, 0, 0, 1000]),
            (line, [0, 3, 0, 700, 1000]),
            ("RL.SLIDINGLOG k 3 1000 COST 2", [0, 3, 0, 900, 1000]),
            ("RL.SLIDINGLOG k 3 1000 COST 3", [0, 3, 0, 1000, 1000]),
        ],
    );
    at(999_999);
    run(&mut c, &[(line, [0, 3, 0, 1, 301])]);
    at(1_000_000);
    run(
        &mut c,
        &[(line, [1, 3, 0, 0, 1000]), (line, [0, 3, 0, 200, 1000])],
    );
    at(1_199_999);
    run(&mut c, &[(line, [0, 3, 0, 1, 801])]);
    at(1_200_000);
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 3 1000", [1, 3, 1, 0, 800])],
    );
    at(1_300_000);
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 3 1000", [1, 3, 2, 0, 700])],
    );
    at(1_999_999);
    run(&mut c, &[("RL.PEEK k SLIDINGLOG 3 1000", [1, 3, 2, 0, 1])]);
    at(2_000_000);
    run(&mut c, &[("RL.PEEK k SLIDINGLOG 3 1000", [1, 3, 3, 0, 0])]);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
}

#[test]
fn an_instant_within_the_millisecond_counts() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.SLIDINGLOG k 1 1";
    let mut count = 0;
    for _ in 0..5000 {
        count += admitted(&mut c, line, 1);
        server.clock().advance_us(7);
    }
    // At 0, 1001, 2002, … of 34,993 µs: the first multiples of 7 that are a ms later.
    assert_eq!(count, 5000 / 143 + 1);
}

#[test]
fn calls_of_one_microsecond_are_one_entry() {
    let server = single();
    let mut c = server.conn();
    for n in 1..=5 {
        run(
            &mut c,
            &[(
                "RL.SLIDINGLOG k 100 1000 COST 3",
                [1, 100, 100 - 3 * n, 0, 1000],
            )],
        );
        assert_eq!(used(&mut c, "k"), [3 * n, 1]);
    }
    for n in 1..=5 {
        server.clock().advance_us(1);
        run(
            &mut c,
            &[("RL.SLIDINGLOG k 100 1000", [1, 100, 85 - n, 0, 1000])],
        );
        assert_eq!(used(&mut c, "k"), [15 + n, 1 + n]);
    }
    // They leave together.
    server.clock().advance_us(1_000_000 - 6);
    assert_eq!(used(&mut c, "k"), [20, 6]);
    server.clock().advance_us(1);
    assert_eq!(used(&mut c, "k"), [5, 5]);
}

#[test]
fn a_long_log_is_exact() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let line = "RL.SLIDINGLOG k 3000 60000";
    // One each 10 ms, more than are kept in a chunk.
    for n in 0..3000 {
        server.clock().freeze_at(start + n * 10_000);
        assert_eq!(c.cmd(&words(line)).items()[2], int(2999 - n));
    }
    assert_eq!(used(&mut c, "k"), [3000, 3000]);
    run(
        &mut c,
        &[
            // The first leaves 60 s after it came, the last 30 s after that.
            (line, [0, 3000, 0, 30_010, 60_000]),
            (&format!("{line} COST 1000"), [0, 3000, 0, 40_000, 60_000]),
            (&format!("{line} COST 3000"), [0, 3000, 0, 60_000, 60_000]),
        ],
    );
    for (us, remaining) in [(59_999_999, 0), (60_000_000, 1), (69_999_999, 1000)] {
        server.clock().freeze_at(start + us);
        let peek = cmd!(c, "RL.PEEK", "k", "SLIDINGLOG", 3000, 60_000);
        assert_eq!(peek.items()[2], int(remaining), "{us}");
    }
    // What left stays stored until something comes, and then leaves a part at a time.
    server.clock().freeze_at(start + 80_000_000);
    assert_eq!(used(&mut c, "k"), [999, 999]);
    run(&mut c, &[(line, [1, 3000, 2000, 0, 60_000])]);
    assert_eq!(used(&mut c, "k"), [1000, 1000]);
}

#[test]
fn a_limit_above_the_setting_is_an_error_that_names_it() {
    let server = recorder();
    let mut c = server.conn();
    let calls = |limit: &str| {
        [
            format!("RL.SLIDINGLOG k {limit} 1000"),
            format!("RL.SLIDINGLOG k {limit} 1000 COST 1"),
            format!("RL.PEEK k SLIDINGLOG {limit} 1000"),
            format!("RL.CHARGE k SLIDINGLOG {limit} 1000"),
            format!("RL.REFUND k SLIDINGLOG {limit} 1000"),
            format!("RL.ALL 1 k SLIDINGLOG {limit} 1000"),
        ]
    };
    for text in ["100001", "1000000000", "0", "-1", "x", "", "01"] {
        refuses(&server, &too_long(100_000), &calls(text));
    }
    cmd!(c, "RL.SLIDINGLOG", "k", 100_000, 1000);
    refuses(&server, &too_long(100_000), &calls("100001"));
    for max in [1_000_000, 50, 1] {
        assert_eq!(cmd!(c, "CONFIG", "SET", ENTRIES, max), ok());
        let above = (max + 1).to_string();
        refuses(&server, &too_long(max), &calls(&above));
        cmd!(c, "DEL", "k");
        let line = format!("RL.SLIDINGLOG k {max} 1000 COST {max}");
        run(&mut c, &[(&line, [1, max, 0, 0, 1000])]);
    }
    // The others have their own bound.
    run(
        &mut c,
        &[(
            "RL.FIXEDWINDOW other 1000000000 1000",
            [1, MAX_TOKENS, MAX_TOKENS - 1, 0, 1000],
        )],
    );
}

#[test]
fn a_lowered_setting_leaves_a_live_log_alone() {
    let server = single();
    let mut c = server.conn();
    for _ in 0..60 {
        run_any(&mut c, "RL.SLIDINGLOG k 60 1000");
        server.clock().advance_us(1);
    }
    cmd!(c, "CONFIG", "SET", ENTRIES, 50);
    assert_eq!(used(&mut c, "k"), [60, 60]);
    assert_eq!(cmd!(c, "RL.SLIDINGLOG", "k", 60, 1000), err(&too_long(50)));
    // All sixty count, until they leave.
    run(
        &mut c,
        &[("RL.SLIDINGLOG k 50 1000", [0, 50, 0, 1000, 1000])],
    );
    server.clock().advance_us(1_000_000 - 60);
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 50 1000", [0, 50, 0, 1, 1])],
    );
    server.clock().advance_us(9);
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 50 1000", [0, 50, 0, 1, 1])],
    );
    server.clock().advance_us(1);
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 50 1000", [1, 50, 1, 0, 1])],
    );
}

fn run_any(c: &mut Conn, line: &str) {
    let reply = c.cmd(&words(line));
    assert!(!reply.is_error(), "{line}: {reply:?}");
}

/// A charge needs no entry more than the setting allows: it joins the newest one.
#[test]
fn charges_take_no_more_entries_than_the_setting() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", ENTRIES, 3);
    let start = server.clock().now_us();
    for n in 0..3 {
        server.clock().freeze_at(start + n * 100_000);
        run_any(&mut c, "RL.SLIDINGLOG k 3 1000");
    }
    assert_eq!(used(&mut c, "k"), [3, 3]);
    for n in 3..6 {
        server.clock().freeze_at(start + n * 100_000);
        run_any(&mut c, "RL.CHARGE k SLIDINGLOG 3 1000");
        assert_eq!(used(&mut c, "k"), [n + 1, 3]);
    }
    // The first two still leave when they should, and all that joined with the last.
    server.clock().freeze_at(start + 1_000_000);
    assert_eq!(used(&mut c, "k"), [5, 2]);
    server.clock().freeze_at(start + 1_499_999);
    assert_eq!(used(&mut c, "k"), [4, 1]);
    run(&mut c, &[("RL.SLIDINGLOG k 3 1000", [0, 3, 0, 1, 1])]);
    server.clock().freeze_at(start + 1_500_000);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
}

#[test]
fn a_denial_prunes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    for _ in 0..10 {
        run_any(&mut c, "RL.SLIDINGLOG k 20 1000");
        server.clock().advance_ms(10);
    }
    server.clock().advance_ms(945);
    let cost = "RL.SLIDINGLOG k 20 1000 COST 20";
    changes_nothing(&server, || {
        assert_eq!(c.cmd(&words(cost)), five([0, 20, 15, 45, 45]));
    });
}

#[test]
fn the_effect_of_an_admission_is_one_entry() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let start = chain.clock().now_us();
    let policy = (1000, 60_000);
    let line = "RL.SLIDINGLOG k 1000 60000 COST 2";
    run_any(&mut c, line);
    let mut tap = Tap::on(&chain);
    for n in 1..=300 {
        chain.clock().advance_us(1);
        run_any(&mut c, line);
        let now = start + n;
        let last = (now, 2 + 2 * n as u64);
        let step = log_step(policy, 0, now - 1, last);
        assert_eq!(tap.take(), [limiter_effect("k", now, &step)], "{n}");
    }
    assert_same(&chain);
}
