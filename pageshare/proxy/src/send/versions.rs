//! What pages held when they were sent last, as far as memory allows: a page that the guest has
//! changed since can travel as the difference.

use std::collections::HashMap;

use pageshare_index::{PAGE_SIZE, PageHash};
use pageshare_wire::PageSet;

/// A page's RAM block, by number, and its offset in it.
pub(super) type Address = (u32, u64);

/// A bounded number of pages, by address.
///
/// A page is kept from the second time on that it is sent, as in QEMU's XBZRLE: what a guest writes
/// once it is likely to write again, and most pages are sent once. Copying those as well took the
/// first pass a tenth of this process's time, and spared a fortieth of the bytes. Where there is no
/// room, a page takes the place of the one that has been there longest. What the destination has
/// anyway is not kept.
pub(super) struct Versions {
    slots: HashMap<Address, usize>,
    pages: Vec<(Address, PageHash)>,
    contents: Vec<u8>,
    /// Pages sent before, one bit each, by block.
    sent: HashMap<u32, Vec<u64>>,
    next: usize,
    capacity: usize,
}

impl Versions {
    pub(super) fn with_room_for(bytes: usize) -> Self {
        Self {
            slots: HashMap::new(),
            pages: Vec::new(),
            contents: Vec::new(),
            sent: HashMap::new(),
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
    pub(super) fn note(
        &mut self,
        pages: &[Address],
        hashes: &[PageHash],
        contents: &[&[u8; PAGE_SIZE]],
        known: &PageSet,
    ) {
        for (page, ((at, hash), content)) in pages.iter().zip(hashes).zip(contents).enumerate() {
            let again = self.sent_before(*at);
            if again && !known.contains(page) {
                self.keep(*at, *hash, content);
            }
        }
    }

    fn keep(&mut self, at: Address, hash: PageHash, content: &[u8; PAGE_SIZE]) {
        if let Some(slot) = self.slots.get(&at) {
            self.put(*slot, at, hash, content);
        } else if self.pages.len() < self.capacity {
            self.slots.insert(at, self.pages.len());
            self.pages.push((at, hash));
            self.contents.extend_from_slice(content);
        } else if self.capacity > 0 {
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

    /// Whether the page was sent before; it is now.
    fn sent_before(&mut self, (block, offset): Address) -> bool {
        /// A block of 64 TiB.
        const LARGEST: u64 = 1 << 46;
        if offset >= LARGEST {
            return false;
        }
        let page = offset / PAGE_SIZE as u64;
        let (word, bit) = (usize::try_from(page / 64).unwrap_or(0), 1 << (page % 64));
        let bits = self.sent.entry(block).or_default();
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

    fn note(versions: &mut Versions, offset: u64, byte: u8) {
        versions.note(&[(0, offset)], &[hash(byte)], &[&page(byte)], &PageSet::empty(1));
    }

    fn held(versions: &Versions, offset: u64) -> Option<(PageHash, u8)> {
        versions.earlier((0, offset)).map(|(hash, content)| (hash, content[0]))
    }

    #[test]
    fn a_page_is_kept_once_it_is_sent_again_in_the_place_of_the_longest_kept() {
        let mut versions = Versions::with_room_for(2 * PAGE_SIZE);
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3)] {
            note(&mut versions, offset, byte);
            assert_eq!(held(&versions, offset), None, "most pages are sent once");
        }
        for (offset, byte) in [(0, 4), (4096, 5), (4096, 6)] {
            note(&mut versions, offset, byte);
            assert_eq!(held(&versions, offset), Some((hash(byte), byte)));
        }
        note(&mut versions, 8192, 7);
        assert_eq!(held(&versions, 8192), Some((hash(7), 7)));
        assert_eq!(held(&versions, 0), None, "there was no more room");
        assert_eq!(held(&versions, 4096), Some((hash(6), 6)));
        assert_eq!(held(&versions, 4096 << 20), None);
    }

    #[test]
    fn what_the_destination_has_is_not_kept_but_was_sent() {
        let mut versions = Versions::with_room_for(4 * PAGE_SIZE);
        let mut known = PageSet::empty(2);
        known.insert(0);
        let pages = [page(1), page(2)];
        let contents: Vec<_> = pages.iter().collect();
        for _ in 0..2 {
            versions.note(&[(0, 0), (0, 4096)], &[hash(1), hash(2)], &contents, &known);
        }
        assert_eq!(held(&versions, 0), None);
        assert_eq!(held(&versions, 4096), Some((hash(2), 2)));
        note(&mut versions, 0, 3);
        assert_eq!(held(&versions, 0), Some((hash(3), 3)));
    }
}
