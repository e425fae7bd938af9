//! Stored states and effects as bytes: exactly these bytes, and nothing else is read.

use proptest::prelude::*;
use sluice_core::lock::Hold;
use sluice_core::{Guard, Identity, Lock, Malformed, Micros, Millis, State, Token};
use std::fmt::Debug;

const CLOCK: Micros = Micros(0x0011_5253_5455_5657);

fn exclusive(owner: &[u8], meta: &[u8]) -> Lock {
    Lock::Exclusive(Hold {
        token: Token::new(0x001f_1213_1415_1617).unwrap(),
        deadline: Millis(0x001e_2223_2425_2627),
        granted: Millis(0x001d_3233_3435_3637),
        holds: 0x4142_4344,
        holder: Identity::new(owner, meta),
    })
}

fn kept() -> Lock {
    Lock::Kept {
        token: Token::new(0x001f_1213_1415_1617).unwrap(),
        until: Millis(0x001e_2223_2425_2627),
    }
}

fn guard() -> Guard {
    Guard {
        token: Token::new(0x001f_1213_1415_1617).unwrap(),
        until: Millis(0x001e_2223_2425_2627),
    }
}

fn high_water() -> Token {
    Token::new(0x001f_1213_1415_1617).unwrap()
}

// The format -----------------------------------------------------------------------------

/// `literal` may have spaces between the fields. A change here is a change of the format:
/// it needs a new version, and the old one must still be read.
fn unhex(literal: &str) -> Vec<u8> {
    let digits: Vec<u8> = literal.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

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
    // Shape, token, deadline, granted, holds, lengths of owner and META, and the two.
    check_format(
        exclusive(b"own", b"ma"),
        "00 1716151413121f00 2726252423221e00 3736353433321d00 44434241 0300 0200 6f776e 6d61",
    );
    check_format(
        exclusive(b"\0", b""),
        "00 1716151413121f00 2726252423221e00 3736353433321d00 44434241 0100 0000 00",
    );
}

#[test]
fn format_of_an_exclusive_lock_with_the_longest_owner_and_meta() {
    check_format(
        exclusive(&[0xaa; 512], &[0xbb; 1024]),
        &format!(
            "00 1716151413121f00 2726252423221e00 3736353433321d00 44434241 0002 0004 {}{}",
            "aa".repeat(512),
            "bb".repeat(1024)
        ),
    );
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

// What is refused ------------------------------------------------------------------------

/// Reads `bytes` both ways; what is accepted must be written back as the same bytes.
fn read<S: State>(bytes: &[u8]) -> [Result<(), Malformed>; 2] {
    let stored = S::from_stored(bytes).map(|state| {
        assert_eq!(state.to_stored().as_bytes(), bytes);
    });
    let effect = S::from_effect(bytes).map(|(state, now)| {
        assert_eq!(state.to_effect(now).as_bytes(), bytes);
    });
    [stored, effect]
}

/// The stored form and the effect, and which answer of [`read`] is about it.
fn forms<S: State>(state: &S) -> [(usize, Vec<u8>); 2] {
    [
        (0, state.to_stored().as_bytes().to_vec()),
        (1, state.to_effect(CLOCK).as_bytes().to_vec()),
    ]
}

fn check_damage<S: State>(state: &S) {
    for (form, bytes) in forms(state) {
        assert_eq!(read::<S>(&bytes)[form], Ok(()));

        for len in 0..bytes.len() {
            assert_eq!(read::<S>(&bytes[..len])[form], Err(Malformed::Corrupt));
        }
        for byte in 0..=255 {
            let longer = [&bytes[..], &[byte]].concat();
            assert_eq!(read::<S>(&longer)[form], Err(Malformed::Corrupt));
        }

        let mut damaged = bytes.clone();
        for version in (0..=255).filter(|version| *version != 1) {
            damaged[0] = version;
            let expected = match version {
                0 => Malformed::Corrupt,
                newer => Malformed::Version(newer),
            };
            assert_eq!(read::<S>(&damaged)[form], Err(expected));
            // A newer version may have any length.
            assert_eq!(read::<S>(&damaged[..1])[form], Err(expected));
            let longer = [&damaged[..], b"x"].concat();
            assert_eq!(read::<S>(&longer)[form], Err(expected));
        }
    }
}

#[test]
fn truncated_prolonged_and_newer_bytes_are_refused() {
    assert_eq!(Lock::VERSION, 1);
    assert_eq!(Guard::VERSION, 1);
    assert_eq!(Token::VERSION, 1);
    check_damage(&exclusive(b"own", b"ma"));
    check_damage(&exclusive(b"own", b""));
    check_damage(&exclusive(&[b'o'; 100], &[b'm'; 100]));
    check_damage(&exclusive(&[b'o'; 512], &[b'm'; 1024]));
    check_damage(&kept());
    check_damage(&guard());
    check_damage(&high_water());
}

fn check_mutations<S: State>(state: &S) {
    for (_, bytes) in forms(state) {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            for byte in 0..=255 {
                damaged[at] = byte;
                // Any answer, but no panic, and nothing is accepted that is not canonical.
                let _ = read::<S>(&damaged);
            }
        }
    }
}

#[test]
fn no_single_damaged_byte_panics_or_is_lost() {
    check_mutations(&exclusive(b"own", b"ma"));
    check_mutations(&exclusive(&[b'o'; 40], &[b'm'; 30]));
    check_mutations(&kept());
    check_mutations(&guard());
    check_mutations(&high_water());
}

/// An encoded lock from fields that may be anything, which the types forbid.
#[derive(Clone, Debug)]
struct Raw {
    shape: u8,
    token: u64,
    deadline: u64,
    granted: u64,
    holds: u32,
    owner_len: u16,
    meta_len: u16,
    /// How many bytes there are instead of `owner_len + meta_len`.
    rest: usize,
}

impl Raw {
    fn valid() -> Raw {
        Raw {
            shape: 0,
            token: 7,
            deadline: 20,
            granted: 10,
            holds: 1,
            owner_len: 3,
            meta_len: 2,
            rest: 5,
        }
    }

    fn with_lengths(owner_len: u16, meta_len: u16) -> Raw {
        Raw {
            owner_len,
            meta_len,
            rest: usize::from(owner_len) + usize::from(meta_len),
            ..Raw::valid()
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut out = vec![self.shape];
        out.extend(self.token.to_le_bytes());
        out.extend(self.deadline.to_le_bytes());
        if self.shape != 1 {
            out.extend(self.granted.to_le_bytes());
            out.extend(self.holds.to_le_bytes());
            out.extend(self.owner_len.to_le_bytes());
            out.extend(self.meta_len.to_le_bytes());
            out.extend((0..self.rest).map(|i| i as u8));
        }
        out
    }

    fn is_accepted(&self) -> bool {
        let bound = 1u64 << 53;
        let hold = || {
            self.granted < bound
                && self.granted <= self.deadline
                && self.holds >= 1
                && self.owner_len >= 1
                && self.owner_len <= 512
                && self.meta_len <= 1024
                && self.rest == usize::from(self.owner_len) + usize::from(self.meta_len)
        };
        self.token >= 1
            && self.token < bound
            && self.deadline < bound
            && (self.shape == 1 || self.shape == 0 && hold())
    }

    fn check(&self) {
        let expected = if self.is_accepted() {
            Ok(())
        } else {
            Err(Malformed::Corrupt)
        };
        let body = self.body();
        let stored = [&[1], &body[..]].concat();
        assert_eq!(read::<Lock>(&stored)[0], expected, "{self:?}");
        let effect = [&[1], &[9, 9, 9, 9, 9, 9, 0, 0][..], &body].concat();
        assert_eq!(read::<Lock>(&effect)[1], expected, "{self:?}");
    }
}

fn accepted(raw: Raw) {
    assert!(raw.is_accepted(), "{raw:?}");
    raw.check();
}

fn refused(raw: Raw) {
    assert!(!raw.is_accepted(), "{raw:?}");
    raw.check();
}

const BOUND: u64 = 1 << 53;

#[test]
fn tokens_outside_1_to_2_53_minus_1_are_corrupt() {
    for shape in [0, 1] {
        let with = |token| Raw {
            shape,
            token,
            ..Raw::valid()
        };
        refused(with(0));
        accepted(with(1));
        accepted(with(BOUND - 1));
        refused(with(BOUND));
        refused(with(u64::MAX));
    }

    let guard = |token: u64| [&[1], &token.to_le_bytes()[..], &[0; 8]].concat();
    let mark = |token: u64| [&[1], &token.to_le_bytes()[..]].concat();
    for token in [0, BOUND, u64::MAX] {
        assert_eq!(read::<Guard>(&guard(token))[0], Err(Malformed::Corrupt));
        assert_eq!(read::<Token>(&mark(token))[0], Err(Malformed::Corrupt));
    }
    for token in [1, BOUND - 1] {
        assert_eq!(read::<Guard>(&guard(token))[0], Ok(()));
        assert_eq!(read::<Token>(&mark(token))[0], Ok(()));
    }
}

#[test]
fn instants_from_2_53_on_are_corrupt() {
    assert_eq!(Millis::BOUND, BOUND);
    for shape in [0, 1] {
        let with = |deadline| Raw {
            shape,
            deadline,
            ..Raw::valid()
        };
        accepted(with(BOUND - 1));
        refused(with(BOUND));
        refused(with(u64::MAX));
    }
    let granted = |granted| Raw {
        granted,
        deadline: BOUND - 1,
        ..Raw::valid()
    };
    accepted(granted(0));
    accepted(granted(BOUND - 1));
    refused(granted(BOUND));
    refused(granted(u64::MAX));

    let guard = |until: u64| [&[1], &7u64.to_le_bytes()[..], &until.to_le_bytes()].concat();
    assert_eq!(read::<Guard>(&guard(0))[0], Ok(()));
    assert_eq!(read::<Guard>(&guard(BOUND - 1))[0], Ok(()));
    assert_eq!(read::<Guard>(&guard(BOUND))[0], Err(Malformed::Corrupt));
    assert_eq!(read::<Guard>(&guard(u64::MAX))[0], Err(Malformed::Corrupt));
}

#[test]
fn a_hold_that_no_command_leaves_is_corrupt() {
    let granted = |granted| Raw {
        granted,
        ..Raw::valid()
    };
    accepted(granted(20));
    refused(granted(21));

    let holds = |holds| Raw {
        holds,
        ..Raw::valid()
    };
    refused(holds(0));
    accepted(holds(u32::MAX));
}

#[test]
fn unknown_shapes_are_corrupt() {
    for shape in 2..=255 {
        refused(Raw {
            shape,
            ..Raw::valid()
        });
    }
}

#[test]
fn owners_and_meta_outside_their_lengths_are_corrupt() {
    refused(Raw::with_lengths(0, 0));
    refused(Raw::with_lengths(0, 5));
    accepted(Raw::with_lengths(1, 0));
    accepted(Raw::with_lengths(512, 1024));
    refused(Raw::with_lengths(513, 0));
    refused(Raw::with_lengths(1, 1025));
    refused(Raw::with_lengths(u16::MAX, 0));
    refused(Raw::with_lengths(1, u16::MAX));
}

#[test]
fn lengths_that_are_not_there_are_corrupt() {
    for rest in [0, 4, 6] {
        refused(Raw {
            rest,
            ..Raw::valid()
        });
    }
    refused(Raw {
        rest: 0,
        ..Raw::with_lengths(512, 1024)
    });
}

// Random bytes ---------------------------------------------------------------------------

/// Integers near every edge there is.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..=3u64,
        4 => BOUND - 2..=BOUND + 1,
        2 => 0..BOUND,
        1 => any::<u64>(),
    ]
}

fn raw() -> impl Strategy<Value = Raw> {
    let owner_len = prop_oneof![4 => 0..=50u16, 2 => 510..=514u16, 1 => any::<u16>()];
    let meta_len = prop_oneof![4 => 0..=50u16, 2 => 1022..=1026u16, 1 => any::<u16>()];
    let off = prop_oneof![6 => Just(0isize), 1 => -2..=2isize];
    let shape = prop_oneof![6 => Just(0u8), 2 => Just(1), 1 => any::<u8>()];
    let lengths = (owner_len, meta_len, off);
    (shape, edge(), edge(), edge(), 0..=2u32, lengths).prop_map(
        |(shape, token, deadline, granted, holds, (owner_len, meta_len, off))| Raw {
            shape,
            token,
            deadline,
            granted,
            holds,
            owner_len,
            meta_len,
            rest: (usize::from(owner_len) + usize::from(meta_len)).saturating_add_signed(off),
        },
    )
}

/// Bytes that get past the version, and some that do not.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let version = prop_oneof![6 => Just(1u8), 1 => any::<u8>()];
    let shape = prop_oneof![4 => 0..=1u8, 1 => any::<u8>()];
    // Mostly zeros: most of the bytes of an integer that is accepted are.
    let byte = prop_oneof![3 => Just(0u8), 1 => any::<u8>()];
    (version, shape, prop::collection::vec(byte, 0..100))
        .prop_map(|(version, shape, rest)| [&[version, shape], &rest[..]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_is_read_exactly_when_each_field_is_in_its_range(raw in raw()) {
        raw.check();
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in prop_oneof![garbage(), prop::collection::vec(any::<u8>(), 0..100)],
    ) {
        let _ = read::<Lock>(&bytes);
        let _ = read::<Guard>(&bytes);
        let _ = read::<Token>(&bytes);
    }
}
