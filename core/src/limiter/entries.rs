//! The entries of a sliding log, in a queue of chunks.
//!
//! One large ring would have to be moved whole when it grows, which at 100,000 entries is a
//! step of its own; a list of small chunks never moves more than one of them.

use std::collections::VecDeque;

/// What had been spent in all up to an instant, which may wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// In µs. Later than that of the entry before.
    pub(super) at: u64,
    pub(super) total: u64,
}

// At most 16 bytes an entry.
const _: () = assert!(std::mem::size_of::<Entry>() == 16);

/// Never an empty chunk, and all but the first and the last are full.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    chunks: VecDeque<VecDeque<Entry>>,
    len: usize,
}

impl Entries {
    pub(super) const CHUNK: usize = 256;

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        let (chunk, index) = self.place(index);
        self.chunks.get(chunk)?.get(index)
    }

    pub(super) fn last(&self) -> Option<&Entry> {
        self.chunks.back()?.back()
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Entry> {
        self.chunks.back_mut()?.back_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flatten()
    }

    /// How many entries from the first one on fulfil `is_before`, which holds for none behind
    /// the first for which it does not.
    pub(super) fn partition_point(&self, is_before: impl Fn(&Entry) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&is_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(super) fn push(&mut self, entry: Entry) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < Entries::CHUNK => {
                if chunk.len() == chunk.capacity() {
                    // A quarter more and not twice as much: many keys have a few entries.
                    let more = (chunk.len() / 4).max(4);
                    chunk.reserve_exact(more.min(Entries::CHUNK - chunk.len()));
                }
                chunk.push_back(entry);
            }
            last => {
                let room = if last.is_some() {
                    Entries::CHUNK / 4
                } else {
                    1
                };
                let mut chunk = VecDeque::with_capacity(room);
                chunk.push_back(entry);
                if self.chunks.is_empty() {
                    // Not room for four, of which most logs need one.
                    self.chunks.reserve_exact(1);
                }
                self.chunks.push_back(chunk);
            }
        }
        self.len += 1;
    }

    /// Keeps the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.len > len {
            let Some(last) = self.chunks.back_mut() else {
                return;
            };
            let excess = (self.len - len).min(last.len());
            last.truncate(last.len() - excess);
            self.len -= excess;
            if last.is_empty() {
                self.chunks.pop_back();
            }
        }
    }

    /// Drops the first `count`, at most all.
    pub(super) fn drop_first(&mut self, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        while left > 0 {
            let Some(first) = self.chunks.front_mut() else {
                return;
            };
            let here = left.min(first.len());
            first.drain(..here);
            left -= here;
            if first.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.give_back();
    }

    /// A log that has become small keeps no more room than it needs.
    fn give_back(&mut self) {
        if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
        if let (1, Some(chunk)) = (self.chunks.len(), self.chunks.front_mut()) {
            if chunk.capacity() > 32 && chunk.len() < chunk.capacity() / 4 {
                chunk.shrink_to(chunk.len() * 2);
            }
        }
    }

    /// Bytes allocated.
    pub(super) fn heap_size(&self) -> usize {
        let chunks = self.chunks.iter().map(VecDeque::capacity);
        chunks.sum::<usize>() * size_of::<Entry>()
            + self.chunks.capacity() * size_of::<VecDeque<Entry>>()
    }

    /// The chunk of an entry, and where in it.
    fn place(&self, index: usize) -> (usize, usize) {
        let first = self.chunks.front().map_or(0, VecDeque::len);
        match index.checked_sub(first) {
            None => (0, index),
            Some(behind) => (1 + behind / Entries::CHUNK, behind % Entries::CHUNK),
        }
    }
}

impl PartialEq for Entries {
    /// Whatever the chunks.
    fn eq(&self, other: &Entries) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}
