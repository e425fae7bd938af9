//! The byte form of stored state and effects: little-endian integers, lengths before bytes,
//! a version byte in front.
//!
//! Everything read here is untrusted (a client's RESTORE reaches it). Lengths are checked
//! against what is there before anything is allocated, and bytes left over are an error.

use crate::{Micros, Millis, Token};

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Written by a newer module; the version it names.
    Version(u8),
    Corrupt,
}

/// A byte string under construction. What a lock with a UUID for an owner needs fits
/// inside, so that the hot paths encode their effects without allocating.
pub struct Blob {
    len: usize,
    inline: [u8; Blob::INLINE],
    /// Takes over everything once `inline` is too small.
    spilled: Vec<u8>,
}

impl Blob {
    const INLINE: usize = 128;

    pub fn new() -> Blob {
        Blob {
            len: 0,
            inline: [0; Blob::INLINE],
            spilled: Vec::new(),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        if self.len <= Blob::INLINE {
            &self.inline[..self.len]
        } else {
            &self.spilled
        }
    }

    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.fixed(value.to_le_bytes());
    }

    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.fixed(value.to_le_bytes());
    }

    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.fixed(value.to_le_bytes());
    }

    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.fixed(value.to_le_bytes());
    }

    /// Inlined with its length known, this is one store and not a call of memcpy.
    #[inline(always)]
    fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        match self.inline.get_mut(self.len..self.len + N) {
            Some(place) => {
                place.copy_from_slice(&bytes);
                self.len += N;
            }
            None => self.bytes(&bytes),
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end <= Blob::INLINE {
            self.inline[self.len..end].copy_from_slice(bytes);
        } else {
            if self.len <= Blob::INLINE {
                self.spilled.extend_from_slice(&self.inline[..self.len]);
            }
            self.spilled.extend_from_slice(bytes);
        }
        self.len = end;
    }
}

impl Default for Blob {
    fn default() -> Self {
        Blob::new()
    }
}

/// Reads what [`Blob`] wrote.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Reads the version byte; `newest` is the highest this build understands.
    pub fn version(&mut self, newest: u8) -> Result<u8, Malformed> {
        match self.u8()? {
            0 => Err(Malformed::Corrupt),
            version if version > newest => Err(Malformed::Version(version)),
            version => Ok(version),
        }
    }

    /// Bytes that are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Corrupt)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn token(&mut self) -> Result<Token, Malformed> {
        Token::new(self.u64()?).ok_or(Malformed::Corrupt)
    }

    pub(crate) fn instant(&mut self) -> Result<Millis, Malformed> {
        match self.u64()? {
            ms if ms < Millis::BOUND => Ok(Millis(ms)),
            _ => Err(Malformed::Corrupt),
        }
    }

    pub(crate) fn clock(&mut self) -> Result<Micros, Malformed> {
        match self.u64()? {
            us if us < Micros::BOUND => Ok(Micros(us)),
            _ => Err(Malformed::Corrupt),
        }
    }

    /// Everything has been read; more is as odd as less.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Corrupt)
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::Corrupt)?;
        self.rest = rest;
        Ok(*head)
    }
}
