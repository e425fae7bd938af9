//! The format, byte by byte. A change here is a change of the format: it needs a new version,
//! and the old one must still be read.

use crate::{exclusive, guard, high_water, kept, limited, shared, unhex, CLOCK, SHARED};
use sluice_core::lock::Hold;
use sluice_core::{Identity, Millis, State, Token};
use std::fmt::Debug;

fn check_format<S: State + Debug + PartialEq>(state: S, body: &str) {
    let stored = unhex(&format!("01 {body}"));
    assert_eq!(state.to_stored().as_bytes(), stored);
    assert_eq!(S::from_stored(&stored).as_ref(), Ok(&state));

    let effect = unhex(&format!("01 5756555453521100 {body}"));
    assert_eq!(state.to_effect(CLOCK).as_bytes(), effect);
    assert_eq!(S::from_effect(&effect), Ok((state, CLOCK)));
}

#[test]
fn format_of_an_exclusive_lock() {
    // Shape, token, deadline, granted, MAXHOLD, holds, lengths of owner and META, and the
    // two.
    check_format(
        exclusive(b"own", b"ma"),
        "00 1716151413121f00 2726252423221e00 3736353433321d00 0000000000000000 44434241 0300 0200 6f776e 6d61",
    );
    check_format(
        exclusive(b"\0", b""),
        "00 1716151413121f00 2726252423221e00 3736353433321d00 0000000000000000 44434241 0100 0000 00",
    );
}

#[test]
fn format_of_an_exclusive_lock_with_the_longest_owner_and_meta() {
    check_format(
        exclusive(&[0xaa; 512], &[0xbb; 1024]),
        &format!(
            "00 1716151413121f00 2726252423221e00 3736353433321d00 0000000000000000 44434241 0002 0004 {}{}",
            "aa".repeat(512),
            "bb".repeat(1024)
        ),
    );
}

#[test]
fn format_of_an_exclusive_lock_with_a_maxhold() {
    check_format(
        limited(b"own", b"ma"),
        "00 1716151413121f00 2726252423221e00 3736353433321d00 5756555453521e00 44434241 \
         0300 0200 6f776e 6d61",
    );
}

#[test]
fn format_of_a_shared_lock_with_two_readers() {
    let hold = |token, deadline, max, holds, owner: &[u8], meta: &[u8]| Hold {
        token: Token::new(token).unwrap(),
        deadline: Millis(deadline),
        granted: Millis(0x001d_3233_3435_3637),
        max,
        holds,
        holder: Identity::new(owner, meta),
    };
    let max = Some(Millis(0x001e_5253_5455_5657));
    let (first, second) = (0x001f_1213_1415_1617, 0x001f_1213_1415_1618);
    let expected = [
        hold(
            first,
            0x001e_2223_2425_2627,
            None,
            0x4142_4344,
            b"own",
            b"ma",
        ),
        hold(second, 0x001e_2223_2425_2628, max, 1, b"b", b""),
    ];
    let lock = shared();
    assert!(lock.holds().eq(&expected));
    assert_eq!(lock.deadline(), Millis(0x001e_2223_2425_2628));
    assert_eq!(lock.token(), Token::new(second));
    check_format(lock, SHARED);
}

#[test]
fn format_of_a_kept_lock() {
    check_format(kept(), "01 1716151413121f00 2726252423221e00");
}

#[test]
fn format_of_a_guard() {
    check_format(guard(), "1716151413121f00 2726252423221e00");
}

#[test]
fn format_of_the_high_water_mark() {
    check_format(high_water(), "1716151413121f00");
}
