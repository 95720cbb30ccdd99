//! Keyed hashes of page contents.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{PAGE_SIZE, lanes};

/// The secret of a scope: whoever holds it may ask, within the scope, whether a page is known.
#[derive(Clone, PartialEq, Eq)]
pub struct ScopeKey(pub [u8; 32]);

impl ScopeKey {
    /// The key under which pages are hashed.
    #[must_use]
    pub fn hash_key(&self) -> HashKey {
        HashKey(blake3::derive_key("pageshare 2026 page content", &self.0))
    }

    /// The key under which the two proxies prove to each other that they hold this scope.
    #[must_use]
    pub fn proof_key(&self) -> [u8; 32] {
        blake3::derive_key("pageshare 2026 scope proof", &self.0)
    }
}

/// A secret must not reach a log.
impl fmt::Debug for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScopeKey(..)")
    }
}

/// The key under which pages are hashed.
#[derive(Clone)]
pub struct HashKey([u8; 32]);

impl HashKey {
    /// Hashes one page (or any bytes).
    #[must_use]
    pub fn hash(&self, content: &[u8]) -> PageHash {
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::keyed_hash(&self.0, content).as_bytes()[..16]);
        PageHash(hash)
    }

    /// Hashes many pages, in order: the same hashes as [`HashKey::hash`] gives, several times as
    /// fast.
    #[must_use]
    pub fn hash_pages(&self, pages: &[&[u8; PAGE_SIZE]]) -> Vec<PageHash> {
        let mut out = Vec::with_capacity(pages.len());
        lanes::hash(&self.0, pages, |hash| out.push(PageHash(hash)));
        out
    }

    /// Names the key without giving it away, so that an index of another scope is recognised.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 16] {
        self.hash(b"pageshare key fingerprint").0
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// The first 128 bits of a page's keyed BLAKE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHash(pub [u8; 16]);

/// The bits of a keyed hash are as good as any other's: see [`PrefixHasher`].
impl Hash for PageHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.prefix());
    }
}

/// For maps by [`PageHash`], or by its prefix, which need no second hash.
#[derive(Debug, Default, Clone, Copy)]
pub struct PrefixHasher(u64);

impl Hasher for PrefixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "only prefixes are hashed");
    }

    fn write_u64(&mut self, prefix: u64) {
        self.0 = prefix;
    }
}

impl PageHash {
    /// The bits by which the table is ordered.
    #[must_use]
    pub fn prefix(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}
