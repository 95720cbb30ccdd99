//! Some of a segment's pages.

/// A set of page indices below a fixed length; one bit each, lowest bit first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageSet {
    bits: Vec<u8>,
    length: usize,
}

impl PageSet {
    /// No page out of `length`.
    #[must_use]
    pub fn empty(length: usize) -> Self {
        Self { bits: vec![0; length.div_ceil(8)], length }
    }

    /// The set that `bytes` encode; nothing if they are too few, too many, or have bits beyond
    /// `length`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], length: usize) -> Option<Self> {
        let spare = bytes.len().checked_mul(8)?.checked_sub(length)?;
        let top = bytes.last().map_or(0, |last| last.leading_zeros() as usize);
        let fits = spare < 8 && (bytes.is_empty() || top >= spare);
        fits.then(|| Self { bits: bytes.to_vec(), length })
    }

    /// One bit a page.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// How many pages the set is a subset of.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many pages are in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bits.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether page `index` is in it.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.bits.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    /// Puts page `index` in, if it is below the length.
    pub fn insert(&mut self, index: usize) {
        if index < self.length {
            self.bits[index / 8] |= 1 << (index % 8);
        }
    }
}
