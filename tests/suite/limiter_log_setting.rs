//! sluice.rl-max-log-entries: the largest limit that a SLIDINGLOG may have, and the most entries.

use crate::limiter_support::*;
use crate::support::*;

pub(crate) const SETTING: &str = "sluice.rl-max-log-entries";

fn too_long(max: u32) -> String {
    format!("ERR limit must be an integer between 1 and {max} ({SETTING})")
}

#[test]
fn a_limit_above_the_setting_is_an_error_that_names_it() {
    let server = recorder();
    let mut c = server.conn();
    let shown = cmd!(c, "CONFIG", "GET", SETTING);
    assert_eq!(shown.field(SETTING), &bulk("100000"));
    for value in ["0", "-1", "1000001", "x", ""] {
        assert!(
            cmd!(c, "CONFIG", "SET", SETTING, value).is_error(),
            "{value}"
        );
    }
    let calls = |limit: u32| {
        [
            format!("RL.SLIDINGLOG k {limit} 60000"),
            format!("RL.PEEK k SLIDINGLOG {limit} 60000"),
            format!("RL.CHARGE k SLIDINGLOG {limit} 60000"),
            format!("RL.REFUND k SLIDINGLOG {limit} 60000"),
            format!("RL.ALL 1 k SLIDINGLOG {limit} 60000"),
            format!("RL.ALL 2 l k GCRA 1 1 1 SLIDINGLOG {limit} 60000"),
        ]
    };
    refuses(&server, &too_long(100_000), &calls(100_001));
    for (max, raised) in [(1_000_000, 100_001), (7, 7), (1, 1)] {
        assert_eq!(cmd!(c, "CONFIG", "SET", SETTING, max), ok());
        refuses(&server, &too_long(max), &calls(max + 1));
        run(
            &mut c,
            &[(
                &format!("RL.PEEK k SLIDINGLOG {raised} 60000"),
                [1, i64::from(raised), i64::from(raised), 0, 0],
            )],
        );
    }
    // Others have no entries.
    run(
        &mut c,
        &[(
            "RL.FIXEDWINDOW k 1000000000 1",
            [1, MAX_TOKENS, MAX_TOKENS - 1, 0, 1],
        )],
    );
}

#[test]
fn a_setting_below_a_live_log_refuses_its_limit_and_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    for _ in 0..8 {
        server.clock().advance_ms(1000);
        cmd!(c, "RL.SLIDINGLOG", "k", 10, 60_000);
    }
    assert_eq!(cmd!(c, "CONFIG", "SET", SETTING, 5), ok());
    let old = [
        "RL.SLIDINGLOG k 10 60000",
        "RL.PEEK k SLIDINGLOG 10 60000",
        "RL.CHARGE k SLIDINGLOG 10 60000",
        "RL.REFUND k SLIDINGLOG 10 60000",
        "RL.ALL 1 k SLIDINGLOG 10 60000",
    ];
    refuses(&server, &too_long(5), &old);
    // A limit that is allowed reads what is there. The fourth of eight has to leave.
    answers(
        &server,
        &[
            (
                "RL.PEEK k SLIDINGLOG 5 60000",
                five([0, 5, 0, 56_000, 60_000]),
            ),
            ("RL.SLIDINGLOG k 5 60000", five([0, 5, 0, 56_000, 60_000])),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "k").field("entries"), &int(8));
    assert_eq!(cmd!(c, "CONFIG", "SET", SETTING, 10), ok());
    run(
        &mut c,
        &[("RL.PEEK k SLIDINGLOG 10 60000", [1, 10, 2, 0, 60_000])],
    );
}

/// Charges alone can bring more entries than the limit.
#[test]
fn charges_beyond_the_setting_join_the_newest_entry() {
    let chain = chain();
    let mut c = chain.primary.conn();
    assert_eq!(cmd!(c, "CONFIG", "SET", SETTING, 5), ok());
    let charge = "RL.CHARGE k SLIDINGLOG 5 60000";
    let start = chain.clock().now_us();
    for n in 0..5 {
        cmd!(c, "RL.CHARGE", "k", "SLIDINGLOG", 5, 60_000);
        chain.clock().advance_ms(1000);
        assert_eq!(cmd!(c, "RL.INFO", "k").field("entries"), &int(n + 1));
    }
    let mut tap = Tap::on(&chain);
    for n in 1..=3 {
        let now = chain.clock().now_us();
        // A second later one more entry has to leave, which is a second younger.
        run(&mut c, &[(charge, [0, 5, 0, 55_000, 60_000])]);
        let behind = start + 3_000_000;
        let step = log_step((5, 60_000), 0, behind, (now, 5 + n as u64));
        assert_eq!(tap.take(), [limiter_effect("k", now, &step)]);
        assert_eq!(cmd!(c, "RL.INFO", "k").field("entries"), &int(5));
        chain.clock().advance_ms(1000);
        assert_same(&chain);
    }
    // The joined one lapses with its last charge, the first four long before.
    chain
        .clock()
        .advance_us(start + 63_999_999 - chain.clock().now_us());
    let peek = "RL.PEEK k SLIDINGLOG 5 60000";
    run(&mut c, &[(peek, [1, 5, 1, 0, 3001])]);
    chain.clock().advance_us(3_000_000);
    run(&mut c, &[(peek, [1, 5, 1, 0, 1])]);
    chain.clock().advance_us(1);
    run(&mut c, &[(peek, [1, 5, 5, 0, 0])]);
}
