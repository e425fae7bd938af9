//! Owner and META: where they lie, and that they come apart as they were put in.

use proptest::prelude::*;
use sluice_core::lock::Hold;
use sluice_core::{Identity, Lock};
use std::mem::size_of;

#[test]
fn sizes_that_the_memory_promise_rests_on() {
    assert_eq!(Identity::INLINE, 45);
    assert_eq!(Identity::MAX_OWNER, 512);
    assert_eq!(Identity::MAX_META, 1024);
    assert_eq!(size_of::<Identity>(), 48);
    assert_eq!(size_of::<Hold>(), 96);
    assert_eq!(size_of::<Lock>(), 96);
}

fn check(owner_len: usize, meta_len: usize) -> Identity {
    // Without a byte that occurs in both, so that a wrong split shows.
    let owner: Vec<u8> = (0..owner_len).map(|i| i as u8 & 0x7f).collect();
    let meta: Vec<u8> = (0..meta_len).map(|i| i as u8 | 0x80).collect();
    let mut identity = Identity::new(&owner, &meta);
    assert_eq!(identity.owner(), owner);
    assert_eq!(identity.meta(), meta);

    let whole = [owner, meta].concat();
    let heap = (whole.len() > 45).then_some(&whole[..]);
    assert_eq!(identity.heap(), heap);
    assert_eq!(identity.heap_mut().map(|bytes| &bytes[..]), heap);
    identity
}

#[test]
fn up_to_45_bytes_lie_inside() {
    assert_eq!(check(44, 0).heap(), None);
    assert_eq!(check(45, 0).heap(), None);
    assert_eq!(check(46, 0).heap().map(<[u8]>::len), Some(46));
    assert_eq!(check(36, 8).heap(), None);
    assert_eq!(check(36, 9).heap(), None);
    assert_eq!(check(36, 10).heap().map(<[u8]>::len), Some(46));
    assert_eq!(check(1, 43).heap(), None);
    assert_eq!(check(1, 44).heap(), None);
    assert_eq!(check(1, 45).heap().map(<[u8]>::len), Some(46));
}

#[test]
fn every_length_around_the_edges() {
    for owner_len in [1, 2, 44, 45, 46, 127, 128, 255, 256, 257, 511, 512] {
        for meta_len in [0, 1, 2, 43, 44, 45, 46, 255, 256, 257, 1023, 1024] {
            check(owner_len, meta_len);
        }
    }
    assert_eq!(check(512, 1024).heap().map(<[u8]>::len), Some(1536));
}

/// The same bytes divided elsewhere are somebody else.
#[test]
fn the_split_is_part_of_what_is_equal() {
    assert_eq!(Identity::new(b"ab", b"c"), Identity::new(b"ab", b"c"));
    assert_ne!(Identity::new(b"ab", b"c"), Identity::new(b"a", b"bc"));
    assert_ne!(Identity::new(b"a", b""), Identity::new(b"a\0", b""));
    let long = [b'x'; 100];
    assert_ne!(
        Identity::new(&long[..60], &long[60..]),
        Identity::new(&long[..61], &long[61..])
    );
}

/// The defragmenter moves the allocation; what is in it stays.
#[test]
fn a_moved_allocation_is_the_same_identity() {
    let mut identity = Identity::new(&[b'o'; 40], &[b'm'; 40]);
    let before = identity.clone();
    let bytes = identity.heap_mut().unwrap();
    *bytes = bytes.to_vec().into_boxed_slice();
    assert_eq!(identity, before);
}

#[test]
fn debug_output_escapes_binary() {
    assert_eq!(
        format!("{:?}", Identity::new(b"a\n\xff", b"m\0")),
        r"a\n\xff [m\x00]"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_back(
        owner in prop_oneof![
            prop::collection::vec(any::<u8>(), 1..=60),
            prop::collection::vec(any::<u8>(), 1..=512),
        ],
        meta in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..=30),
            prop::collection::vec(any::<u8>(), 0..=1024),
        ],
    ) {
        let identity = Identity::new(&owner, &meta);
        prop_assert_eq!(identity.owner(), &owner[..]);
        prop_assert_eq!(identity.meta(), &meta[..]);
        prop_assert_eq!(identity.heap().is_none(), owner.len() + meta.len() <= 45);
    }
}
