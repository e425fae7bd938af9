//! The byte string under construction, and the reader of it: below, at and beyond what lies
//! inside.

use proptest::prelude::*;
use sluice_core::codec::Reader;
use sluice_core::{Blob, Malformed};

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 1) as u8).collect()
}

fn written(pieces: &[&[u8]]) -> Vec<u8> {
    let mut blob = Blob::new();
    for piece in pieces {
        blob.bytes(piece);
    }
    blob.as_bytes().to_vec()
}

#[test]
fn a_new_one_is_empty() {
    assert_eq!(Blob::new().as_bytes(), b"");
    assert_eq!(Blob::default().as_bytes(), b"");
}

#[test]
fn integers_are_little_endian() {
    let mut blob = Blob::new();
    blob.u8(0x01);
    blob.u16(0x0203);
    blob.u32(0x0405_0607);
    blob.u64(0x0809_0a0b_0c0d_0e0f);
    assert_eq!(
        blob.as_bytes(),
        b"\x01\x03\x02\x07\x06\x05\x04\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08"
    );
}

const AROUND_INLINE: [usize; 8] = [0, 1, 126, 127, 128, 129, 130, 1000];

#[test]
fn written_at_once() {
    for len in AROUND_INLINE {
        let bytes = sample(len);
        assert_eq!(written(&[&bytes]), bytes);
    }
}

#[test]
fn written_byte_by_byte() {
    for len in AROUND_INLINE {
        let bytes = sample(len);
        let mut blob = Blob::new();
        for (done, byte) in bytes.iter().enumerate() {
            assert_eq!(blob.as_bytes(), &bytes[..done]);
            blob.u8(*byte);
        }
        assert_eq!(blob.as_bytes(), bytes);
    }
}

#[test]
fn written_in_two_pieces_divided_anywhere_with_an_empty_one_between() {
    for len in AROUND_INLINE {
        let bytes = sample(len);
        for middle in 0..=len {
            let (head, tail) = bytes.split_at(middle);
            assert_eq!(written(&[head, tail]), bytes);
            assert_eq!(written(&[head, b"", tail, b""]), bytes);
        }
    }
}

#[test]
fn an_integer_across_the_edge() {
    for before in 119..=130 {
        let bytes = sample(before);
        let mut blob = Blob::new();
        blob.bytes(&bytes);
        blob.u64(0x0102_0304_0506_0708);
        blob.u8(9);
        assert_eq!(
            blob.as_bytes(),
            [&bytes[..], b"\x08\x07\x06\x05\x04\x03\x02\x01\x09"].concat()
        );
    }
}

#[test]
fn a_reader_gives_nothing_it_has_not() {
    let short = |len| Reader::new(&[0xff; 8][..len]);
    assert_eq!(short(0).u8(), Err(Malformed::Corrupt));
    assert_eq!(short(1).u16(), Err(Malformed::Corrupt));
    assert_eq!(short(3).u32(), Err(Malformed::Corrupt));
    assert_eq!(short(7).u64(), Err(Malformed::Corrupt));
    assert_eq!(short(8).bytes(9), Err(Malformed::Corrupt));
    assert_eq!(short(8).bytes(usize::MAX), Err(Malformed::Corrupt));
    assert_eq!(short(8).bytes(8), Ok(&[0xff; 8][..]));
    assert_eq!(short(0).bytes(0), Ok(&b""[..]));
    assert_eq!(short(8).u64(), Ok(u64::MAX));
    assert_eq!(short(0).finish(), Ok(()));
    assert_eq!(short(1).finish(), Err(Malformed::Corrupt));
}

#[test]
fn a_reader_understands_versions_up_to_the_newest() {
    let version = |byte, newest| Reader::new(&[byte]).version(newest);
    assert_eq!(version(0, 3), Err(Malformed::Corrupt));
    assert_eq!(version(1, 3), Ok(1));
    assert_eq!(version(3, 3), Ok(3));
    assert_eq!(version(4, 3), Err(Malformed::Version(4)));
    assert_eq!(version(255, 3), Err(Malformed::Version(255)));
    assert_eq!(Reader::new(b"").version(3), Err(Malformed::Corrupt));
}

#[derive(Clone, Debug)]
enum Piece {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Bytes(Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        any::<u8>().prop_map(Piece::U8),
        any::<u16>().prop_map(Piece::U16),
        any::<u32>().prop_map(Piece::U32),
        any::<u64>().prop_map(Piece::U64),
        prop::collection::vec(any::<u8>(), 0..70).prop_map(Piece::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn it_equals_a_vec_built_the_same_way_and_reads_back(
        pieces in prop::collection::vec(piece(), 0..20),
    ) {
        let mut blob = Blob::new();
        let mut model = Vec::new();
        for piece in &pieces {
            match piece {
                Piece::U8(value) => {
                    blob.u8(*value);
                    model.extend(value.to_le_bytes());
                }
                Piece::U16(value) => {
                    blob.u16(*value);
                    model.extend(value.to_le_bytes());
                }
                Piece::U32(value) => {
                    blob.u32(*value);
                    model.extend(value.to_le_bytes());
                }
                Piece::U64(value) => {
                    blob.u64(*value);
                    model.extend(value.to_le_bytes());
                }
                Piece::Bytes(bytes) => {
                    blob.bytes(bytes);
                    model.extend(bytes);
                }
            }
            prop_assert_eq!(blob.as_bytes(), &model[..]);
        }

        let mut reader = Reader::new(&model);
        for piece in &pieces {
            match piece {
                Piece::U8(value) => prop_assert_eq!(reader.u8(), Ok(*value)),
                Piece::U16(value) => prop_assert_eq!(reader.u16(), Ok(*value)),
                Piece::U32(value) => prop_assert_eq!(reader.u32(), Ok(*value)),
                Piece::U64(value) => prop_assert_eq!(reader.u64(), Ok(*value)),
                Piece::Bytes(bytes) => {
                    prop_assert_eq!(reader.bytes(bytes.len()), Ok(&bytes[..]));
                }
            }
        }
        prop_assert_eq!(reader.finish(), Ok(()));
    }
}
