//! The digest that ties each segment to all before it.

use pageshare_index::PageHash;

/// Both sides compute the same chain; a segment carries the sender's value after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain([u8; 16]);

impl Chain {
    /// Takes one segment in: its number, its expanded length, its operations and the hashes of
    /// the pages asked for. Contents that were not asked for are covered by TLS or the CRC32C.
    pub fn extend(&mut self, sequence: u32, expanded: u32, ops: &[u8], asked: &[PageHash]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(&sequence.to_le_bytes());
        hasher.update(&expanded.to_le_bytes());
        hasher.update(ops);
        for hash in asked {
            hasher.update(&hash.0);
        }
        self.0.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    }

    /// The value so far.
    #[must_use]
    pub fn value(self) -> [u8; 16] {
        self.0
    }
}
