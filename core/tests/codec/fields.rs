//! Each field of an encoded lock at the edges of its range, and random bytes.

use crate::effects::read_effect;
use crate::read;
use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;
use sluice_core::{Guard, Lock, Malformed, Millis, Token};

/// An encoded lock from fields that may be anything, which the types forbid.
#[derive(Clone, Debug)]
struct Raw {
    shape: u8,
    token: u64,
    deadline: u64,
    granted: u64,
    /// MAXHOLD, 0 for none.
    max: u64,
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
            max: 0,
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
        if self.shape == 2 {
            out.extend(1u32.to_le_bytes());
        }
        out.extend(self.token.to_le_bytes());
        out.extend(self.deadline.to_le_bytes());
        if self.shape != 1 {
            out.extend(self.granted.to_le_bytes());
            out.extend(self.max.to_le_bytes());
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
                && self.max < bound
                && (self.max == 0 || self.deadline <= self.max)
                && self.holds >= 1
                && self.owner_len >= 1
                && self.owner_len <= 512
                && self.meta_len <= 1024
                && self.rest == usize::from(self.owner_len) + usize::from(self.meta_len)
        };
        self.token >= 1
            && self.token < bound
            && self.deadline < bound
            && (self.shape == 1 || [0, 2].contains(&self.shape) && hold())
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
    for shape in [0, 1, 2] {
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
    for shape in [0, 1, 2] {
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
    let max = |max| Raw {
        max,
        ..Raw::valid()
    };
    accepted(max(BOUND - 1));
    refused(max(BOUND));
    refused(max(u64::MAX));

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

    let max = |max| Raw {
        max,
        ..Raw::valid()
    };
    accepted(max(0));
    refused(max(1));
    refused(max(19));
    accepted(max(20));
    accepted(max(21));

    let holds = |holds| Raw {
        holds,
        ..Raw::valid()
    };
    refused(holds(0));
    accepted(holds(u32::MAX));
}

#[test]
fn unknown_shapes_are_corrupt() {
    for shape in 3..=255 {
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
    let shape = prop_oneof![6 => Just(0u8), 2 => Just(1), 4 => Just(2), 1 => any::<u8>()];
    let lengths = (owner_len, meta_len, off);
    (shape, edge(), edge(), edge(), edge(), 0..=2u32, lengths).prop_map(
        |(shape, token, deadline, granted, max, holds, (owner_len, meta_len, off))| Raw {
            shape,
            token,
            deadline,
            granted,
            max,
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
    let shape = prop_oneof![4 => 0..=2u8, 2 => 16..=17u8, 1 => any::<u8>()];
    // Mostly zeros: most of the bytes of an integer that is accepted are.
    let byte = prop_oneof![3 => Just(0u8), 1 => any::<u8>()];
    (version, shape, prop::collection::vec(byte, 0..100))
        .prop_map(|(version, shape, rest)| [&[version, shape], &rest[..]].concat())
}

/// With the cheap generator: the default one is most of the time of an unoptimized run.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_lock_is_read_exactly_when_each_field_is_in_its_range(raw in raw()) {
        raw.check();
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in prop_oneof![garbage(), prop::collection::vec(any::<u8>(), 0..100)],
    ) {
        let _ = read::<Lock>(&bytes);
        let _ = read_effect(&bytes);
        let _ = read::<Guard>(&bytes);
        let _ = read::<Token>(&bytes);
    }
}
