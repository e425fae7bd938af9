//! Payloads of shared locks that no command leaves.

use crate::allocations::allocated;
use crate::{read, shared};
use sluice_core::{Lock, Malformed, State};

/// One reader, encoded.
fn reader(token: u64, owner: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in [token, 20, 10, 0] {
        out.extend(field.to_le_bytes());
    }
    out.extend(1u32.to_le_bytes());
    out.extend((owner.len() as u16).to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend(owner);
    out
}

/// A stored lock that says it has `count` readers.
fn stored(count: u32, readers: &[Vec<u8>]) -> Vec<u8> {
    [&[1, 2], &count.to_le_bytes()[..], &readers.concat()].concat()
}

/// The shortest encoding of a hold.
const LEAST: usize = 41;

#[track_caller]
fn check(bytes: &[u8], expected: Result<(), Malformed>) {
    assert_eq!(read::<Lock>(bytes)[0], expected);
    let effect = [&[1], &[9, 9, 9, 9, 9, 9, 0, 0][..], &bytes[1..]].concat();
    assert_eq!(read::<Lock>(&effect)[1], expected);
}

#[track_caller]
fn refused(bytes: &[u8]) {
    check(bytes, Err(Malformed::Corrupt));
}

#[test]
fn readers_in_the_order_of_their_tokens_are_read() {
    assert_eq!(reader(7, b"a").len(), LEAST);
    check(&stored(1, &[reader(7, b"a")]), Ok(()));
    check(&stored(2, &[reader(7, b"a"), reader(8, b"b")]), Ok(()));
    let three = [reader(1, b"b"), reader(5, b"a\0"), reader(9, b"a")];
    check(&stored(3, &three), Ok(()));
}

#[test]
fn a_shared_lock_without_readers_is_corrupt() {
    refused(&stored(0, &[]));
    refused(&stored(0, &[reader(7, b"a")]));
}

#[test]
fn a_count_that_is_not_the_number_of_readers_is_corrupt() {
    refused(&stored(1, &[]));
    refused(&stored(1, &[reader(7, b"a"), reader(8, b"b")]));
    refused(&stored(3, &[reader(7, b"a"), reader(8, b"b")]));
    // Bytes enough for three of them, but there are two.
    refused(&stored(3, &[reader(7, b"a"), reader(8, &[b'b'; 100])]));
}

#[test]
fn a_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
    for count in [2, 3, 1000, 1 << 20, u32::MAX - 1, u32::MAX] {
        let bytes = stored(count, &[reader(7, b"a")]);
        let (result, bytes) = allocated(|| Lock::from_stored(&bytes));
        assert_eq!(result, Err(Malformed::Corrupt));
        assert_eq!(bytes, 0, "for a count of {count}");
    }
    let bytes = stored(u32::MAX, &[vec![0xff; 100 * LEAST]]);
    let (result, bytes) = allocated(|| Lock::from_stored(&bytes));
    assert_eq!((result, bytes), (Err(Malformed::Corrupt), 0));
}

/// As many as the bytes could hold, but they hold nothing: what is allocated does not follow
/// the count.
#[test]
fn a_count_within_the_bytes_allocates_for_what_has_been_read() {
    let (zeros, ones) = (vec![0; 1000 * LEAST], vec![0xff; 1000 * LEAST]);
    for junk in [zeros, ones] {
        let bytes = stored(1000, &[junk]);
        let (result, bytes) = allocated(|| Lock::from_stored(&bytes));
        assert_eq!((result, bytes), (Err(Malformed::Corrupt), 0));
    }
    let bytes = stored(1000, &[reader(7, b"a"), vec![0; 999 * LEAST]]);
    let (result, bytes) = allocated(|| Lock::from_stored(&bytes));
    assert_eq!(result, Err(Malformed::Corrupt));
    assert!(bytes < 8192, "{bytes} bytes for one reader");
}

#[test]
fn tokens_that_do_not_rise_are_corrupt() {
    refused(&stored(2, &[reader(8, b"a"), reader(7, b"b")]));
    refused(&stored(2, &[reader(7, b"a"), reader(7, b"b")]));
    let three = [reader(7, b"a"), reader(9, b"b"), reader(8, b"c")];
    refused(&stored(3, &three));
}

#[test]
fn two_readers_of_one_owner_are_corrupt() {
    refused(&stored(2, &[reader(7, b"a"), reader(8, b"a")]));
    let three = [reader(7, b"a"), reader(8, b"b"), reader(9, b"a")];
    refused(&stored(3, &three));
    // Not the same bytes, not the same owner.
    check(&stored(2, &[reader(7, b"a"), reader(8, b"a\0")]), Ok(()));
}

/// RedisBloom#1054, for a lock: cut in every reader, many times over, without a leak.
#[test]
fn one_of_many_readers_cut_short_is_corrupt() {
    let readers: Vec<_> = (1..=100)
        .map(|token: u64| reader(token, &token.to_le_bytes()))
        .collect();
    let bytes = stored(100, &readers);
    check(&bytes, Ok(()));
    for len in 0..bytes.len() {
        assert_eq!(Lock::from_stored(&bytes[..len]), Err(Malformed::Corrupt));
    }
}

/// Two damaged bytes at once: a length and what follows it, say.
#[test]
fn no_pair_of_damaged_bytes_panics_or_is_lost() {
    let bytes = shared().to_stored().as_bytes().to_vec();
    for first in 0..bytes.len() {
        for second in first + 1..bytes.len() {
            let mut damaged = bytes.clone();
            for (one, other) in [(0, 0), (0xff, 0xff), (0, 1), (1, 0)] {
                (damaged[first], damaged[second]) = (one, other);
                let _ = read::<Lock>(&damaged);
            }
        }
    }
}
