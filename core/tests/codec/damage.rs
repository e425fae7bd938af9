//! Bytes that are cut, prolonged or changed.

use crate::{exclusive, forms, guard, high_water, kept, limited, read, shared};
use sluice_core::{Guard, Lock, Malformed, State, Token};

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
    check_damage(&limited(b"own", b"ma"));
    check_damage(&shared());
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
    check_mutations(&limited(b"own", b"ma"));
    check_mutations(&shared());
    check_mutations(&kept());
    check_mutations(&guard());
    check_mutations(&high_water());
}
