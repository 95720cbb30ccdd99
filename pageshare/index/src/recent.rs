//! The pages that arrived last, by content.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::PAGE_SIZE;
use crate::hash::{PageHash, PrefixHasher};

/// Keeps the contents of a bounded number of pages; the oldest gives way.
#[derive(Debug, Default)]
pub struct Recent {
    slots: HashMap<PageHash, usize, BuildHasherDefault<PrefixHasher>>,
    hashes: Vec<PageHash>,
    contents: Vec<u8>,
    next: usize,
    capacity: usize,
}

impl Recent {
    /// Room for `bytes` of content, rounded down to whole pages; taken only as pages arrive.
    #[must_use]
    pub fn with_room_for(bytes: usize) -> Self {
        Self { capacity: bytes / PAGE_SIZE, ..Self::default() }
    }

    /// Keeps a page. Content that is not [`PAGE_SIZE`] long, or known already, is ignored.
    pub fn insert(&mut self, hash: PageHash, content: &[u8]) {
        if self.capacity == 0 || content.len() != PAGE_SIZE || self.slots.contains_key(&hash) {
            return;
        }
        let slot = self.next;
        if slot < self.hashes.len() {
            self.slots.remove(&self.hashes[slot]);
            self.hashes[slot] = hash;
            self.contents[slot * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(content);
        } else {
            self.hashes.push(hash);
            self.contents.extend_from_slice(content);
        }
        self.slots.insert(hash, slot);
        self.next = (slot + 1) % self.capacity;
    }

    /// The page with this hash, as it was inserted.
    #[must_use]
    pub fn get(&self, hash: PageHash) -> Option<&[u8]> {
        let slot = self.slots.get(&hash)?;
        self.contents.get(slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE)
    }
}
