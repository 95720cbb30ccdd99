//! Looks for pages in one place after the other.

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use pageshare_wire::PageSet;

/// Pages that are looked for, and copies of those that were found.
pub(super) struct Search<'a> {
    hashes: &'a [PageHash],
    pub(super) known: PageSet,
    /// A page for each hash, at its index, and maybe more; of those not known, anything.
    pub(super) contents: Vec<u8>,
}

impl<'a> Search<'a> {
    /// Nothing has been found yet; `contents` has room for a page for each hash.
    pub(super) fn begin(hashes: &'a [PageHash], contents: Vec<u8>) -> Self {
        Self { hashes, known: PageSet::empty(hashes.len()), contents }
    }

    /// Takes what is in one place and was not found yet: `read` is given the pages that lack and
    /// where to copy them, and says which it has copied. With a key, only what has the right hash
    /// counts: the memory that it comes from is alive. Returns how many pages that were.
    pub(super) fn take(
        &mut self,
        key: Option<&HashKey>,
        read: impl FnOnce(&[(usize, PageHash)], &mut [[u8; PAGE_SIZE]]) -> Vec<usize>,
    ) -> usize {
        let lacking = |(at, _): &(usize, PageHash)| !self.known.contains(*at);
        let wanted: Vec<_> = self.hashes.iter().copied().enumerate().filter(lacking).collect();
        if wanted.is_empty() {
            return 0;
        }
        let pages = self.contents.as_chunks_mut().0;
        let mut copied = read(&wanted, pages);
        if let Some(key) = key {
            let copies: Vec<_> = copied.iter().map(|at| &pages[*at]).collect();
            let mut sound = key.hash_pages(&copies).into_iter();
            copied.retain(|at| sound.next() == Some(self.hashes[*at]));
        }
        for at in &copied {
            self.known.insert(*at);
        }
        copied.len()
    }

    /// The same where pages are read one by one.
    pub(super) fn take_each(
        &mut self,
        key: Option<&HashKey>,
        mut read: impl FnMut(PageHash, &mut [u8; PAGE_SIZE]) -> bool,
    ) -> usize {
        self.take(key, |wanted, pages| {
            let copied = wanted.iter().filter(|(at, hash)| read(*hash, &mut pages[*at]));
            copied.map(|(at, _)| *at).collect()
        })
    }
}
