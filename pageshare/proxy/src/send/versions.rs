//! What pages held when they were sent last, as far as memory allows: a page that the guest has
//! changed since can travel as the difference.

use std::collections::HashMap;

use pageshare_index::{PAGE_SIZE, PageHash};
use pageshare_wire::PageSet;

/// A page's RAM block, by number, and its offset in it.
pub(super) type Address = (u32, u64);

/// A bounded number of pages, by address.
///
/// While there is room, every page sent that the destination did not have is kept; what others have
/// too is seldom written. After that a page gets in only when it is sent again, in the place of the
/// one that has been there longest: what a guest writes once it is likely to write again, and the
/// first pass over its memory must not drive that out.
pub(super) struct Versions {
    slots: HashMap<Address, usize>,
    pages: Vec<(Address, PageHash)>,
    contents: Vec<u8>,
    /// Pages noted before, one bit each, by block: only then is a page one that is sent again.
    noted: HashMap<u32, Vec<u64>>,
    next: usize,
    capacity: usize,
}

impl Versions {
    pub(super) fn with_room_for(bytes: usize) -> Self {
        Self {
            slots: HashMap::new(),
            pages: Vec::new(),
            contents: Vec::new(),
            noted: HashMap::new(),
            next: 0,
            capacity: bytes / PAGE_SIZE,
        }
    }

    /// What this page held before, with its hash.
    pub(super) fn earlier(&self, at: Address) -> Option<(PageHash, &[u8; PAGE_SIZE])> {
        let slot = *self.slots.get(&at)?;
        Some((self.pages.get(slot)?.1, self.contents[slot * PAGE_SIZE..].first_chunk()?))
    }

    /// Pages are being sent with these hashes and contents, of which the destination has `known`.
    pub(super) fn note_unknown(
        &mut self,
        pages: &[Address],
        hashes: &[PageHash],
        contents: &[&[u8; PAGE_SIZE]],
        known: &PageSet,
    ) {
        for (page, ((at, hash), content)) in pages.iter().zip(hashes).zip(contents).enumerate() {
            if !known.contains(page) {
                self.note(*at, *hash, content);
            }
        }
    }

    fn note(&mut self, at: Address, hash: PageHash, content: &[u8; PAGE_SIZE]) {
        let again = self.noted_before(at);
        if let Some(slot) = self.slots.get(&at) {
            self.put(*slot, at, hash, content);
        } else if self.pages.len() < self.capacity {
            self.slots.insert(at, self.pages.len());
            self.pages.push((at, hash));
            self.contents.extend_from_slice(content);
        } else if again && self.capacity > 0 {
            let slot = self.next;
            self.next = (slot + 1) % self.capacity;
            self.slots.remove(&self.pages[slot].0);
            self.slots.insert(at, slot);
            self.put(slot, at, hash, content);
        }
    }

    fn put(&mut self, slot: usize, at: Address, hash: PageHash, content: &[u8; PAGE_SIZE]) {
        self.pages[slot] = (at, hash);
        self.contents[slot * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(content);
    }

    /// Whether the page was noted before; notes it.
    fn noted_before(&mut self, (block, offset): Address) -> bool {
        /// A block of 64 TiB.
        const LARGEST: u64 = 1 << 46;
        if offset >= LARGEST {
            return false;
        }
        let page = offset / PAGE_SIZE as u64;
        let (word, bit) = (usize::try_from(page / 64).unwrap_or(0), 1 << (page % 64));
        let bits = self.noted.entry(block).or_default();
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        let before = bits[word] & bit != 0;
        bits[word] |= bit;
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> [u8; PAGE_SIZE] {
        [byte; PAGE_SIZE]
    }

    fn hash(byte: u8) -> PageHash {
        PageHash([byte; 16])
    }

    #[test]
    fn a_page_sent_again_drives_out_the_longest_kept_and_a_new_one_does_not() {
        let mut versions = Versions::with_room_for(2 * PAGE_SIZE);
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3)] {
            versions.note((0, offset), hash(byte), &page(byte));
        }
        let held = |versions: &Versions, offset: u64| {
            versions.earlier((0, offset)).map(|(hash, content)| (hash, content[0]))
        };
        assert_eq!(held(&versions, 0), Some((hash(1), 1)));
        assert_eq!(held(&versions, 8192), None, "there was no room");
        versions.note((0, 8192), hash(4), &page(4));
        assert_eq!(held(&versions, 8192), Some((hash(4), 4)));
        assert_eq!(held(&versions, 0), None);
        versions.note((0, 4096), hash(5), &page(5));
        assert_eq!(held(&versions, 4096), Some((hash(5), 5)), "a newer version takes its place");
        assert_eq!(held(&versions, 4096 << 20), None);
    }

    #[test]
    fn what_the_destination_has_is_not_kept() {
        let mut versions = Versions::with_room_for(4 * PAGE_SIZE);
        let mut known = PageSet::empty(2);
        known.insert(0);
        let pages = [page(1), page(2)];
        let contents: Vec<_> = pages.iter().collect();
        versions.note_unknown(&[(0, 0), (0, 4096)], &[hash(1), hash(2)], &contents, &known);
        assert!(versions.earlier((0, 0)).is_none());
        assert!(versions.earlier((0, 4096)).is_some_and(|(found, _)| found == hash(2)));
    }
}
