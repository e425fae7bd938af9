//! Each field has its range, and one beyond it is corrupt.

use crate::{effect, read_effect, read_stored, stored, CLOCK};
use sluice_core::Malformed::{self, Corrupt, Version};
use sluice_core::{Micros, State};

const MOST: u32 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const YEAR_US: u64 = YEAR_MS * 1000;
const MAX_COUNT: u64 = 1 << 53;
const BOUND: u64 = Micros::BOUND;

fn body(shape: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[shape], &fields.concat()[..]].concat()
}

fn window(limit: u32, window_ms: u64) -> Vec<u8> {
    [&limit.to_le_bytes()[..], &window_ms.to_le_bytes()].concat()
}

fn u(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

fn fixed(start: u64, count: u64, limit: u32, window_ms: u64) -> Vec<u8> {
    body(1, &[&u(start), &u(count), &window(limit, window_ms)])
}

fn sliding(start: u64, current: u64, previous: u64, policy: &[u8]) -> Vec<u8> {
    body(2, &[&u(start), &u(current), &u(previous), policy])
}

fn log_of(policy: &[u8], base: u64, count: u32, entries: &[(u64, u64)]) -> Vec<u8> {
    let entries: Vec<u8> = entries
        .iter()
        .flat_map(|(at, total)| [u(*at), u(*total)].concat())
        .collect();
    body(3, &[policy, &u(base), &count.to_le_bytes(), &entries])
}

fn log(base: u64, entries: &[(u64, u64)]) -> Vec<u8> {
    log_of(&window(10, 1_000), base, entries.len() as u32, entries)
}

fn delta(policy: &[u8], base: u64, behind: u64, at: u64, total: u64) -> Vec<u8> {
    body(16, &[policy, &u(base), &u(behind), &u(at), &u(total)])
}

fn block(from: u64, until: u64, below: &[u8]) -> Vec<u8> {
    body(4, &[&u(from), &u(until), below])
}

/// As a stored state and as an effect.
fn both(body: &[u8]) -> Result<(), Malformed> {
    let read = read_stored(&stored(body));
    assert_eq!(read_effect(&effect(body)), read, "{body:?}");
    read
}

#[test]
fn a_fixed_window_has_counted_something() {
    let with = |count| both(&fixed(CLOCK.0, count, 10, 1_000));
    assert_eq!(with(0), Err(Corrupt));
    assert_eq!(with(1), Ok(()));
    // More than the limit: that is what charges leave.
    assert_eq!(with(MAX_COUNT), Ok(()));
    assert_eq!(with(MAX_COUNT + 1), Err(Corrupt));
    assert_eq!(with(u64::MAX), Err(Corrupt));
}

#[test]
fn a_sliding_window_has_counted_something() {
    let with = |current, previous| both(&sliding(CLOCK.0, current, previous, &window(10, 1)));
    assert_eq!(with(0, 0), Err(Corrupt));
    for (current, previous) in [(1, 0), (0, 1), (MAX_COUNT, MAX_COUNT)] {
        assert_eq!(with(current, previous), Ok(()));
    }
    for (current, previous) in [(MAX_COUNT + 1, 1), (1, MAX_COUNT + 1), (0, u64::MAX)] {
        assert_eq!(with(current, previous), Err(Corrupt));
    }
}

#[test]
fn limits_and_windows_are_those_of_policies() {
    for (limit, window_ms, is_one) in [
        (1, 1, true),
        (MOST, YEAR_MS, true),
        (0, 1, false),
        (MOST + 1, 1, false),
        (u32::MAX, 1, false),
        (1, 0, false),
        (1, YEAR_MS + 1, false),
        (1, u64::MAX, false),
    ] {
        let expected = if is_one { Ok(()) } else { Err(Corrupt) };
        let policy = window(limit, window_ms);
        assert_eq!(both(&fixed(1, 1, limit, window_ms)), expected);
        assert_eq!(both(&sliding(1, 1, 1, &policy)), expected);
        assert_eq!(both(&log_of(&policy, 0, 1, &[(1, 1)])), expected);
        assert_eq!(read_effect(&effect(&delta(&policy, 0, 0, 1, 1))), expected);
    }
}

#[test]
fn instants_lie_before_2_61() {
    let ten = window(10, 1_000);
    for (at, expected) in [
        (0, Ok(())),
        (BOUND - 1, Ok(())),
        (BOUND, Err(Corrupt)),
        (u64::MAX, Err(Corrupt)),
    ] {
        assert_eq!(both(&fixed(at, 1, 10, 1_000)), expected);
        assert_eq!(both(&sliding(at, 1, 1, &ten)), expected);
        assert_eq!(both(&log(0, &[(at, 1)])), expected);
        assert_eq!(read_effect(&effect(&delta(&ten, 0, 0, at, 1))), expected);
        assert_eq!(both(&block(at, at, &fixed(1, 1, 1, 1))), expected);
    }
    let behind = |behind| read_effect(&effect(&delta(&ten, 0, behind, BOUND - 1, 1)));
    assert_eq!(behind(BOUND - 2), Ok(()));
    assert_eq!(behind(BOUND), Err(Corrupt));
}

#[test]
fn the_entries_of_a_log_follow_each_other() {
    assert_eq!(both(&log(0, &[(1, 1), (2, 2), (3, 3)])), Ok(()));
    for entries in [
        [(1, 1), (1, 2), (3, 3)],
        [(2, 1), (1, 2), (3, 3)],
        [(1, 1), (3, 2), (2, 3)],
        [(1, 1), (2, 1), (3, 3)],
        [(1, 2), (2, 1), (3, 3)],
        [(1, 0), (2, 1), (3, 3)],
        [(1, 1), (2, 2), (3, 2)],
        [(1, 1), (2, 2), (3, 0)],
    ] {
        assert_eq!(both(&log(0, &entries)), Err(Corrupt), "{entries:?}");
    }
}

#[test]
fn totals_wrap_around_and_are_counted_from_the_base() {
    let base = u64::MAX - 1;
    assert_eq!(both(&log(base, &[(1, u64::MAX), (2, 0), (3, 5)])), Ok(()));
    assert_eq!(both(&log(base, &[(1, base), (2, 0)])), Err(Corrupt));
    assert_eq!(both(&log(base, &[(1, 0), (2, u64::MAX)])), Err(Corrupt));
    let most = MAX_COUNT;
    assert_eq!(both(&log(7, &[(1, 7 + most)])), Ok(()));
    assert_eq!(both(&log(7, &[(1, 8 + most)])), Err(Corrupt));
    let ten = window(10, 1_000);
    let with = |total| read_effect(&effect(&delta(&ten, base, 0, 1, total)));
    for total in [u64::MAX, 0, 5, base.wrapping_add(most)] {
        assert_eq!(with(total), Ok(()));
    }
    for total in [base, base - 1, base.wrapping_add(most + 1)] {
        assert_eq!(with(total), Err(Corrupt));
    }
}

#[test]
fn a_log_has_entries_and_as_many_as_it_says() {
    let ten = window(10, 1_000);
    let two = [(1, 1), (2, 2)];
    assert_eq!(both(&log_of(&ten, 0, 2, &two)), Ok(()));
    for count in [0, 1, 3, 256, 1 << 28, u32::MAX] {
        assert_eq!(both(&log_of(&ten, 0, count, &two)), Err(Corrupt));
    }
    assert_eq!(both(&log_of(&ten, 0, 0, &[])), Err(Corrupt));
    let long: Vec<(u64, u64)> = (1..=1_000).map(|n| (n, n)).collect();
    assert_eq!(both(&log_of(&ten, 0, 1_000, &long)), Ok(()));
}

#[test]
fn a_delta_comes_behind_what_it_says_and_is_never_stored() {
    let ten = window(10, 1_000);
    let with = |behind, at| delta(&ten, 0, behind, at, 1);
    for (behind, at) in [(0, 0), (0, 1), (6, 7)] {
        assert_eq!(read_effect(&effect(&with(behind, at))), Ok(()));
        assert_eq!(read_stored(&stored(&with(behind, at))), Err(Corrupt));
        let blocked = block(5, 6, &with(behind, at));
        assert_eq!(read_effect(&effect(&blocked)), Ok(()));
        assert_eq!(read_stored(&stored(&blocked)), Err(Corrupt));
    }
    for (behind, at) in [(1, 0), (7, 7), (8, 7)] {
        assert_eq!(read_effect(&effect(&with(behind, at))), Err(Corrupt));
    }
}

#[test]
fn a_block_is_no_longer_than_a_year() {
    let with = |from, until| both(&block(from, until, &fixed(1, 1, 1, 1)));
    assert_eq!(with(7, 7), Ok(()));
    assert_eq!(with(7, 7 + YEAR_US), Ok(()));
    assert_eq!(with(7, 8 + YEAR_US), Err(Corrupt));
    assert_eq!(with(7, 6), Err(Corrupt));
    assert_eq!(with(0, BOUND - 1), Err(Corrupt));
    assert_eq!(with(BOUND - 2, BOUND - 1), Ok(()));
    assert_eq!(with(BOUND - 1, BOUND), Err(Corrupt));
}

#[test]
fn blocks_do_not_nest_and_nothing_is_no_state() {
    assert_eq!(both(&block(1, 2, &[5])), Ok(()));
    assert_eq!(both(&[5]), Err(Corrupt));
    assert_eq!(both(&block(1, 2, &block(1, 2, &[5]))), Err(Corrupt));
    assert_eq!(both(&block(1, 2, &[])), Err(Corrupt));
}

#[test]
fn other_shapes_and_versions_are_not_known() {
    let rest = fixed(1, 1, 10, 1_000)[1..].to_vec();
    for shape in (6..=15).chain(17..=255) {
        let body = body(shape, &[&rest]);
        assert_eq!(both(&body), Err(Corrupt), "{shape}");
        assert_eq!(both(&block(1, 2, &body)), Err(Corrupt), "{shape}");
    }
    assert_eq!(sluice_core::Limiter::VERSION, 1);
    for version in 2..=255 {
        for (bytes, read) in [
            (stored(&rest), read_stored as fn(&[u8]) -> _),
            (effect(&rest), read_effect),
        ] {
            let newer = [&[version], &bytes[1..]].concat();
            assert_eq!(read(&newer), Err(Version(version)));
            assert_eq!(read(&newer[..1]), Err(Version(version)));
        }
    }
}
