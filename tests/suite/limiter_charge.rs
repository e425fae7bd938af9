//! RL.CHARGE: what is counted without asking, into overdraft if need be.

use crate::limiter_support::*;
use crate::support::*;

const TOO_MUCH: &str = "ERR the charge would take more than 100 years to drain";

/// A policy of each algorithm with ten a second, and when a call of ten is forgotten.
const EACH: [(&str, i64); 6] = [
    ("GCRA 10 10 1000", 1000),
    ("TOKENBUCKET 10 10 1000", 1000),
    ("LEAKYBUCKET 10 10 1000", 1000),
    ("FIXEDWINDOW 10 1000", 1000),
    ("SLIDINGWINDOW 10 1000", 2000),
    ("SLIDINGLOG 10 1000", 1000),
];

#[test]
fn a_charge_that_fits_is_a_call() {
    let server = single();
    let mut c = server.conn();
    for (policy, expected) in [
        ("GCRA 10 10 1000", [1, 10, 6, 0, 400]),
        ("TOKENBUCKET 10 10 1000", [1, 10, 6, 0, 400]),
        ("LEAKYBUCKET 10 10 1000", [1, 10, 6, 0, 400]),
        ("FIXEDWINDOW 10 1000", [1, 10, 6, 0, 1000]),
        ("SLIDINGWINDOW 10 1000", [1, 10, 6, 0, 2000]),
        ("SLIDINGLOG 10 1000", [1, 10, 6, 0, 1000]),
    ] {
        cmd!(c, "DEL", "charged", "called");
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        let charge = format!("RL.CHARGE charged {policy} COST 4");
        let call = format!("RL.{algorithm} called {numbers} COST 4");
        run(&mut c, &[(&charge, expected), (&call, expected)]);
        assert_eq!(digest_of(&mut c, "charged"), digest_of(&mut c, "called"));
        assert_eq!(
            cmd!(c, "PEXPIRETIME", "charged"),
            cmd!(c, "PEXPIRETIME", "called")
        );
    }
}

#[test]
fn an_overdraft_of_a_bucket_denies_until_it_is_drained() {
    let server = single();
    let mut c = server.conn();
    let call = "RL.GCRA k 10 10 1000";
    run(
        &mut c,
        &[
            (&format!("{call} COST 4"), [1, 10, 6, 0, 400]),
            // Would have fitted 200 ms later; it counts now.
            ("RL.CHARGE k GCRA 10 10 1000 COST 8", [0, 10, 0, 200, 1200]),
            (call, [0, 10, 0, 300, 1200]),
            // Never fits: the wait is for the overdraft.
            (
                "RL.CHARGE k GCRA 10 10 1000 COST 20",
                [0, 10, 0, 2200, 3200],
            ),
            ("RL.CHARGE k GCRA 10 10 1000", [0, 10, 0, 2300, 3300]),
            (call, [0, 10, 0, 2400, 3300]),
            ("RL.PEEK k TOKENBUCKET 10 10 1000", [0, 10, 0, 2400, 3300]),
        ],
    );
    server.clock().advance_us(2_399_999);
    run(&mut c, &[(call, [0, 10, 0, 1, 901])]);
    server.clock().advance_us(1);
    run(&mut c, &[(call, [1, 10, 0, 0, 1000])]);
}

/// Post-paid: an estimate first, and then what it really was.
#[test]
fn an_estimate_is_settled_either_way() {
    let server = single();
    let mut c = server.conn();
    let policy = "TOKENBUCKET 1000 1000 60000";
    let line = "RL.TOKENBUCKET k 1000 1000 60000 COST 300";
    run(
        &mut c,
        &[
            (line, [1, 1000, 700, 0, 18_000]),
            (
                &format!("RL.CHARGE k {policy} COST 250"),
                [1, 1000, 450, 0, 33_000],
            ),
            (line, [1, 1000, 150, 0, 51_000]),
            (
                &format!("RL.REFUND k {policy} COST 100"),
                [1, 1000, 250, 0, 45_000],
            ),
            (line, [0, 1000, 250, 3000, 45_000]),
        ],
    );
}

#[test]
fn a_charge_to_a_queue_says_the_hold() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.CHARGE k LEAKYBUCKET 10 10 1000 COST 4";
    run(
        &mut c,
        &[
            (line, [1, 10, 6, 0, 400]),
            (line, [1, 10, 2, 400, 800]),
            (line, [0, 10, 0, 200, 1200]),
            (line, [0, 10, 0, 600, 1600]),
        ],
    );
}

#[test]
fn what_a_window_is_charged_above_its_limit_it_does_not_carry_over() {
    let server = single();
    let mut c = server.conn();
    let charge = "RL.CHARGE k FIXEDWINDOW 10 1000";
    run(
        &mut c,
        &[
            (&format!("{charge} COST 6"), [1, 10, 4, 0, 1000]),
            (&format!("{charge} COST 6"), [0, 10, 0, 1000, 1000]),
            (&format!("{charge} COST 500"), [0, 10, 0, 1000, 1000]),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "k").field("used"), &int(512));
    server.clock().advance_us(999_999);
    run(&mut c, &[("RL.FIXEDWINDOW k 10 1000", [0, 10, 0, 1, 1])]);
    server.clock().advance_us(1);
    run(&mut c, &[("RL.FIXEDWINDOW k 10 1000", [1, 10, 9, 0, 1000])]);
}

#[test]
fn a_sliding_window_charged_above_its_limit_weighs_as_much_afterwards() {
    let server = single();
    let mut c = server.conn();
    let call = "RL.SLIDINGWINDOW k 10 1000";
    run(
        &mut c,
        &[
            (
                "RL.CHARGE k SLIDINGWINDOW 10 1000 COST 15",
                [0, 10, 0, 2000, 2000],
            ),
            // 9 of 15 fit when 40 % of them are out of reach.
            (call, [0, 10, 0, 1400, 2000]),
        ],
    );
    server.clock().advance_us(1_000_000);
    run(&mut c, &[(call, [0, 10, 0, 400, 1000])]);
    server.clock().advance_us(399_999);
    run(&mut c, &[(call, [0, 10, 0, 1, 601])]);
    server.clock().advance_us(1);
    run(&mut c, &[(call, [1, 10, 0, 0, 1600])]);
}

#[test]
fn a_log_charged_above_its_limit_denies_until_enough_has_left() {
    let server = single();
    let mut c = server.conn();
    let call = "RL.SLIDINGLOG k 10 1000";
    run(
        &mut c,
        &[(
            "RL.CHARGE k SLIDINGLOG 10 1000 COST 15",
            [0, 10, 0, 1000, 1000],
        )],
    );
    server.clock().advance_ms(300);
    run(
        &mut c,
        &[
            (
                "RL.CHARGE k SLIDINGLOG 10 1000 COST 2",
                [0, 10, 0, 700, 1000],
            ),
            (call, [0, 10, 0, 700, 1000]),
        ],
    );
    server.clock().advance_ms(700);
    run(&mut c, &[(call, [1, 10, 7, 0, 1000])]);
}

#[test]
fn a_charge_beyond_a_century_is_an_error_and_charges_nothing() {
    let server = recorder();
    let mut c = server.conn();
    let year = MAX_PERIOD_MS;
    let slow = format!("GCRA 10 1 {year}");
    refuses(
        &server,
        TOO_MUCH,
        &[
            format!("RL.CHARGE k {slow} COST 101"),
            format!("RL.CHARGE k {slow} COST 1000000000"),
            format!("RL.CHARGE k LEAKYBUCKET 10 1 {year} COST 101"),
        ],
    );
    let full = format!("RL.CHARGE k {slow} COST 100");
    run(&mut c, &[(&full, [0, 10, 0, 90 * year, 100 * year])]);
    refuses(
        &server,
        TOO_MUCH,
        &[
            format!("RL.CHARGE k {slow}"),
            format!("RL.CHARGE k TOKENBUCKET 10 1 {year} COST 1"),
        ],
    );
    // When a year has drained there is room for one more, and for no two.
    server.clock().advance_ms(year - 1);
    refuses(&server, TOO_MUCH, &[format!("RL.CHARGE k {slow}")]);
    server.clock().advance_ms(1);
    refuses(&server, TOO_MUCH, &[format!("RL.CHARGE k {slow} COST 2")]);
    let one = format!("RL.CHARGE k {slow} COST 1");
    run(&mut c, &[(&one, [0, 10, 0, 90 * year, 100 * year])]);
    assert_eq!(cmd!(c, "RL.RESET", "k"), int(1));
}

#[test]
fn the_largest_charges_are_counted() {
    let server = single();
    let mut c = server.conn();
    let most = MAX_TOKENS;
    for (policy, expected) in [
        ("GCRA 1 1 1", [0, 1, 0, most - 1, most]),
        ("LEAKYBUCKET 1 1000000000 1", [0, 1, 0, 1, 1]),
        ("FIXEDWINDOW 1 1000", [0, 1, 0, 1000, 1000]),
        ("SLIDINGWINDOW 1 1000", [0, 1, 0, 2000, 2000]),
        ("SLIDINGLOG 1 1000", [0, 1, 0, 1000, 1000]),
        ("FIXEDWINDOW 1000000000 1000", [1, most, 0, 0, 1000]),
    ] {
        cmd!(c, "DEL", "k");
        let line = format!("RL.CHARGE k {policy} COST {most}");
        run(&mut c, &[(&line, expected)]);
    }
}

#[test]
fn an_overdraft_stands_under_its_own_capacity_and_is_clamped_under_another() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            (
                "RL.CHARGE k GCRA 10 10 1000 COST 25",
                [0, 10, 0, 1500, 2500],
            ),
            // The same capacity at half the rate.
            ("RL.PEEK k GCRA 10 5 1000", [0, 10, 0, 3200, 5000]),
            // Another capacity: at most full.
            ("RL.PEEK k GCRA 20 10 1000", [0, 20, 0, 100, 2000]),
            ("RL.PEEK k GCRA 5 10 1000", [0, 5, 0, 100, 500]),
        ],
    );
}

#[test]
fn a_charge_while_blocked_counts_and_is_not_allowed() {
    let server = single();
    let mut c = server.conn();
    for (policy, reset_ms) in EACH {
        cmd!(c, "DEL", "k");
        assert_eq!(cmd!(c, "RL.BLOCK", "k", 500), int(500));
        let charge = format!("RL.CHARGE k {policy} COST 10");
        run(&mut c, &[(&charge, [0, 10, 0, 500, reset_ms])]);
        server.clock().advance_ms(500);
        let peek = cmd_line(&mut c, &format!("RL.PEEK k {policy} COST 10"));
        assert_eq!(peek.items()[0], int(0), "{policy}");
        assert_eq!(peek.items()[4], int(reset_ms - 500), "{policy}");
    }
}

fn cmd_line(c: &mut Conn, line: &str) -> Reply {
    c.cmd(&words(line))
}
