//! The semaphore and its effects as bytes: exactly these bytes, and nothing else is read.

#[path = "semaphore_model/holders.rs"]
mod holders;

use holders::{three, NOW};
use proptest::prelude::*;
use sluice_core::semaphore::{Hold, Release, SemaphoreEffect};
use sluice_core::{Malformed, Micros, Semaphore, State};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Token, deadline, granted, permits, lengths, owner, META.
const HOLD: &str = "1716151413121f00 2726252423221e00 3736353433321d00 01020300 0200 0100 6f70 6d";

#[test]
fn the_format_of_a_stored_semaphore() {
    let bytes = unhex(&format!(
        "01 02000000 {HOLD} 1816151413121f00 2726252423221e00 3736353433321d00 40420f00 0100 0000 71"
    ));
    let semaphore = Semaphore::from_stored(&bytes).unwrap();
    let holds: Vec<&Hold> = semaphore.holds().collect();
    assert_eq!(holds.len(), 2);
    assert_eq!(holds[0].token.get(), 0x001f_1213_1415_1617);
    assert_eq!(holds[0].deadline.0, 0x001e_2223_2425_2627);
    assert_eq!(holds[0].granted.0, 0x001d_3233_3435_3637);
    assert_eq!(holds[0].permits, 0x0003_0201);
    assert_eq!(holds[0].holder.owner(), b"op");
    assert_eq!(holds[0].holder.meta(), b"m");
    assert_eq!(holds[1].permits, 1_000_000);
    assert_eq!(semaphore.permits(), 0x0003_0201 + 1_000_000);
    assert_eq!(semaphore.to_stored().as_bytes(), bytes);
}

#[test]
fn the_format_of_effects() {
    let stored = unhex(&format!("01 01000000 {HOLD}"));
    let semaphore = Semaphore::from_stored(&stored).unwrap();
    let clock = Micros(0x0011_5253_5455_5657);
    let whole = unhex(&format!("01 5756555453521100 00 01000000 {HOLD}"));
    assert_eq!(semaphore.to_effect(clock).as_bytes(), whole);
    // That of a rewritten file prunes nobody.
    let hold = unhex(&format!("01 0000000000000000 01 {HOLD}"));
    let rebuilt: Vec<_> = semaphore.rebuild();
    assert_eq!(rebuilt.len(), 1);
    assert_eq!(rebuilt[0].as_bytes(), hold);
    let token = semaphore.last_token().unwrap();
    assert_eq!(semaphore.restate(token).unwrap().as_bytes(), hold);

    let mut three = three();
    let at = Micros(NOW.0 + 1000);
    let Release::Returned { change, token, .. } = three.release(b"b", None, at) else {
        panic!("others hold permits");
    };
    let mut gone = vec![1];
    gone.extend(at.0.to_le_bytes());
    gone.push(2);
    gone.extend(token.get().to_le_bytes());
    assert_eq!(three.effect(&change, at).as_bytes(), gone);
    let read = SemaphoreEffect::decode(&gone).unwrap();
    assert_eq!(read, (SemaphoreEffect::Gone(token), at));
}

#[test]
fn what_no_primary_writes_is_corrupt() {
    let stored = |hold: &str| Semaphore::from_stored(&unhex(&format!("01 01000000 {hold}")));
    assert!(stored(HOLD).is_ok());
    for (what, from, to) in [
        ("no token", "1716151413121f00", "0000000000000000"),
        ("a token of 2^53", "1716151413121f00", "0000000000002000"),
        (
            "it ended before it began",
            "3736353433321d00",
            "2826252423221e00",
        ),
        ("no permits", "01020300", "00000000"),
        ("too many permits", "01020300", "41420f00"),
        ("no owner", "0200 0100 6f70", "0000 0300 6f70"),
    ] {
        let hold = HOLD.replace(from, to);
        assert_ne!(hold, HOLD, "{what}");
        assert_eq!(stored(&hold), Err(Malformed::Corrupt), "{what}");
    }
    for (what, bytes) in [
        ("nobody", "01 00000000".to_string()),
        ("one too many", format!("01 02000000 {HOLD}")),
        ("one too few", format!("01 01000000 {HOLD} {HOLD}")),
        ("one twice", format!("01 02000000 {HOLD} {HOLD}")),
        ("many", format!("01 ffffffff {HOLD}")),
    ] {
        let read = Semaphore::from_stored(&unhex(&bytes));
        assert_eq!(read, Err(Malformed::Corrupt), "{what}");
    }
    let newer = unhex(&format!("02 01000000 {HOLD}"));
    assert_eq!(Semaphore::from_stored(&newer), Err(Malformed::Version(2)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// Whatever is read was written so, and nothing makes it panic.
    #[test]
    fn corrupt_bytes_are_refused(
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        for good in [three().to_stored(), three().to_effect(NOW), three().rebuild().remove(1)] {
            let mut bytes = good.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            check_reading(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            check_reading(&bytes);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_reading(&bytes);
        check_reading(&[&[1], &bytes[..]].concat());
    }
}

fn check_reading(bytes: &[u8]) {
    if let Ok(semaphore) = Semaphore::from_stored(bytes) {
        assert_eq!(semaphore.to_stored().as_bytes(), bytes);
    }
    if let Ok((effect, now)) = SemaphoreEffect::decode(bytes) {
        Semaphore::apply(Some(&mut three()), effect.clone(), now);
        Semaphore::apply(None, effect, now);
    }
}
