//! Who holds something: an owner and its metadata, stored as compactly as a lock needs.

use crate::codec::{Blob, Malformed, Reader};
use std::fmt;

/// An owner (1..=512 bytes) and its META text (0..=1024 bytes), both binary.
///
/// Up to [`Identity::INLINE`] bytes of the two together lie inside the value that contains
/// this, which is what makes a lock with a UUID for an owner one single allocation. Longer
/// ones take a second.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity(Repr);

/// `owner_len` counts the bytes that are the owner; the rest, up to `len`, are META. It
/// stands in both variants, not beside them, because that saves 8 bytes of padding.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Inline {
        owner_len: u8,
        len: u8,
        bytes: [u8; Identity::INLINE],
    },
    Heap {
        owner_len: u16,
        bytes: Box<[u8]>,
    },
}

impl Identity {
    pub const MAX_OWNER: usize = 512;
    pub const MAX_META: usize = 1024;
    pub const INLINE: usize = 45;

    /// `owner` and `meta` must be within their documented lengths, which the argument
    /// parser and the decoder both check.
    #[inline]
    pub fn new(owner: &[u8], meta: &[u8]) -> Identity {
        debug_assert!((1..=Self::MAX_OWNER).contains(&owner.len()));
        debug_assert!(meta.len() <= Self::MAX_META);
        let len = owner.len() + meta.len();
        Identity(if len <= Self::INLINE {
            let mut bytes = [0; Self::INLINE];
            bytes[..owner.len()].copy_from_slice(owner);
            bytes[owner.len()..len].copy_from_slice(meta);
            Repr::Inline {
                owner_len: owner.len() as u8,
                len: len as u8,
                bytes,
            }
        } else {
            Repr::Heap {
                owner_len: owner.len() as u16,
                bytes: [owner, meta].concat().into_boxed_slice(),
            }
        })
    }

    pub fn owner(&self) -> &[u8] {
        self.split().0
    }

    pub fn meta(&self) -> &[u8] {
        self.split().1
    }

    fn split(&self) -> (&[u8], &[u8]) {
        match &self.0 {
            Repr::Inline {
                owner_len,
                len,
                bytes,
            } => bytes[..usize::from(*len)].split_at(usize::from(*owner_len)),
            Repr::Heap { owner_len, bytes } => bytes.split_at(usize::from(*owner_len)),
        }
    }

    /// The second allocation, if there is one: for memory reports.
    pub fn heap(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Inline { .. } => None,
            Repr::Heap { bytes, .. } => Some(bytes),
        }
    }

    pub(crate) fn heap_len(&self) -> usize {
        self.heap().map_or(0, <[u8]>::len)
    }

    /// The same, for the defragmenter to move.
    pub fn heap_mut(&mut self) -> Option<&mut Box<[u8]>> {
        match &mut self.0 {
            Repr::Inline { .. } => None,
            Repr::Heap { bytes, .. } => Some(bytes),
        }
    }

    pub(crate) fn encode(&self, out: &mut Blob) {
        let (owner, meta) = self.split();
        out.u16(owner.len() as u16);
        out.u16(meta.len() as u16);
        out.bytes(owner);
        out.bytes(meta);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Identity, Malformed> {
        let owner_len = usize::from(from.u16()?);
        let meta_len = usize::from(from.u16()?);
        if !(1..=Self::MAX_OWNER).contains(&owner_len) || meta_len > Self::MAX_META {
            return Err(Malformed::Corrupt);
        }
        let owner = from.bytes(owner_len)?;
        let meta = from.bytes(meta_len)?;
        Ok(Identity::new(owner, meta))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{}]",
            self.owner().escape_ascii(),
            self.meta().escape_ascii()
        )
    }
}
