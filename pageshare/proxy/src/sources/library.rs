//! Pages that this host has, by hash.

use std::path::Path;

use pageshare_index::snapshot;
use pageshare_index::{
    Catalogue, HashKey, Origin, PAGE_SIZE, PageHash, Place, Table, TableBuilder,
};

use super::reader::{Reader, Stamp};
use crate::error::Error;

/// Reads an index file, of this host or of another.
///
/// # Errors
/// If the file cannot be read or is no index of this scope.
pub(crate) fn read_index(path: &Path, key: &HashKey) -> Result<(Catalogue, Table), Error> {
    let unusable =
        |reason: String| Error::File { what: "index", path: path.display().to_string(), reason };
    let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    snapshot::decode(key, &bytes).map_err(|error| unusable(error.to_string()))
}

/// A table with its origins open for reading.
pub struct Library {
    catalogue: Catalogue,
    table: Table,
    /// By origin number; nothing where the process has ended or the file is gone.
    readers: Vec<Option<Reader>>,
    /// By origin number, what tells whether it has changed since it was indexed; nothing where
    /// nothing does.
    stamps: Vec<Option<Stamp>>,
    key: HashKey,
}

impl Library {
    /// A table with its catalogue, whose origins are open and have these stamps, by number.
    pub(super) fn new(
        catalogue: Catalogue,
        table: Table,
        readers: Vec<Option<Reader>>,
        stamps: Vec<Option<Stamp>>,
        key: HashKey,
    ) -> Self {
        Self { catalogue, table, readers, stamps, key }
    }

    /// Whether something of this origin was indexed, or looked for.
    pub(super) fn has(&self, origin: &Origin) -> bool {
        self.catalogue.origins().contains(origin)
    }

    /// How many pages of this catalogue need not be read again: those of its first origins, as far
    /// as they are the same here, and unchanged by their stamps.
    pub(super) fn unchanged(&self, catalogue: &Catalogue, stamps: &[Option<Stamp>]) -> u32 {
        let same = |origin: u32| {
            let at = origin as usize;
            self.catalogue.origins().get(at) == catalogue.origins().get(at)
                && self.stamps.get(at).is_some_and(Option::is_some)
                && self.stamps.get(at) == stamps.get(at)
        };
        let spans = self.catalogue.spans().iter().zip(catalogue.spans());
        let unchanged = spans.take_while(|(old, new)| old == new && same(new.origin));
        unchanged.last().map_or(0, |(_, span)| span.first + span.pages)
    }

    /// Has a new table keep what is known of the first `pages` pages.
    pub(super) fn hand_over(&self, pages: u32, to: &mut TableBuilder) {
        to.keep(&self.table, pages);
    }

    /// Reads an index file and opens every origin that is still the one that was indexed.
    ///
    /// # Errors
    /// If the file cannot be read or is no index of this scope.
    pub fn load(path: &Path, key: HashKey) -> Result<Self, Error> {
        let (catalogue, table) = read_index(path, &key)?;
        let readers = Reader::open_all(&catalogue);
        Ok(Self::new(catalogue, table, readers, Vec::new(), key))
    }

    /// The bytes of an index file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        snapshot::encode(&self.key, &self.catalogue, &self.table)
    }

    /// Copies, of each page that is wanted, the `nth` one that may have its hash to where it is
    /// wanted among `copies`. Whether it still has is for the caller to check. Returns where
    /// something was copied.
    pub fn read(
        &self,
        wanted: &[(usize, PageHash)],
        nth: usize,
        copies: &mut [[u8; PAGE_SIZE]],
    ) -> Vec<usize> {
        // The table is larger than a processor's caches: looking up all at once, the processor
        // waits for several lookups' memory at a time.
        let place = |(at, hash): &(usize, PageHash)| {
            let page = self.table.find(*hash).nth(nth)?;
            Some((*at, self.catalogue.place(page)?))
        };
        let places: Vec<(usize, Place)> = wanted.iter().filter_map(place).collect();
        let mut copied = Vec::with_capacity(places.len());
        for of_one in places.chunk_by(|(_, a), (_, b)| a.origin == b.origin) {
            let origin = of_one.first().map_or(0, |(_, place)| place.origin as usize);
            let Some(reader) = self.readers.get(origin).and_then(Option::as_ref) else { continue };
            let pages: Vec<_> = of_one.iter().map(|(at, place)| (*at, place.address)).collect();
            copied.extend(reader.pages(&pages, copies));
        }
        copied
    }

    /// Copies a page with this hash to `copy`, if there still is one. What was copied is hashed
    /// again, so that `copy` holds the page asked for or the answer is no.
    pub fn copy(&self, hash: PageHash, copy: &mut [u8; PAGE_SIZE]) -> bool {
        let copies = std::array::from_mut(copy);
        (0..self.table.find(hash).count()).any(|nth| {
            !self.read(&[(0, hash)], nth, copies).is_empty() && self.key.hash(&copies[0]) == hash
        })
    }

    /// Memory that the index occupies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes() + std::mem::size_of_val(self.catalogue.spans())
    }

    /// Number of pages indexed.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.table.len()
    }
}
