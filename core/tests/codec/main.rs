//! Stored states and effects as bytes: exactly these bytes, and nothing else is read.

mod allocations;
mod damage;
mod effects;
mod fields;
mod format;
mod readers;

use sluice_core::lock::Hold;
use sluice_core::{Guard, Identity, Lock, Malformed, Micros, Millis, State, Token};

const CLOCK: Micros = Micros(0x0011_5253_5455_5657);

fn exclusive(owner: &[u8], meta: &[u8]) -> Lock {
    Lock::Exclusive(Hold {
        token: Token::new(0x001f_1213_1415_1617).unwrap(),
        deadline: Millis(0x001e_2223_2425_2627),
        granted: Millis(0x001d_3233_3435_3637),
        max: None,
        holds: 0x4142_4344,
        holder: Identity::new(owner, meta),
    })
}

/// The same with a MAXHOLD.
fn limited(owner: &[u8], meta: &[u8]) -> Lock {
    match exclusive(owner, meta) {
        Lock::Exclusive(mut hold) => {
            hold.max = Some(Millis(0x001e_5253_5455_5657));
            Lock::Exclusive(hold)
        }
        _ => unreachable!(),
    }
}

/// Two readers, the later of which has the longer lease.
fn shared() -> Lock {
    let bytes = unhex(&format!("01 {SHARED}"));
    Lock::from_stored(&bytes).unwrap()
}

/// Shape, count, and for each reader token, deadline, granted, MAXHOLD, holds, lengths of
/// owner and META, and the two.
const SHARED: &str = "02 02000000 \
    1716151413121f00 2726252423221e00 3736353433321d00 0000000000000000 44434241 \
    0300 0200 6f776e 6d61 \
    1816151413121f00 2826252423221e00 3736353433321d00 5756555453521e00 01000000 \
    0100 0000 62";

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

/// `literal` may have spaces between the fields. A change here is a change of the format:
/// it needs a new version, and the old one must still be read.
fn unhex(literal: &str) -> Vec<u8> {
    let digits: Vec<u8> = literal.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

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
