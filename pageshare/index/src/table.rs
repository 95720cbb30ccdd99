//! Hash prefixes in order, with a directory over their leading bits: 12.5 bytes a page, 0.31 % of
//! what it indexes.

use crate::hash::PageHash;

/// Pages of equal content that are kept: when one of them has changed, another may still do.
const KEPT_ALIKE: usize = 2;

/// Entries per slot of the directory, on average.
const PER_SLOT: usize = 8;

/// Finds page numbers by hash. Immutable; built by a [`TableBuilder`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Table {
    prefixes: Vec<u64>,
    pages: Vec<u32>,
    /// `directory[s]..directory[s + 1]` are the entries whose leading bits are `s`.
    directory: Vec<u32>,
    shift: u32,
}

/// Collects pages in any order. Builders of separate threads are joined with
/// [`TableBuilder::append`].
#[derive(Debug, Default)]
pub struct TableBuilder {
    entries: Vec<(u64, u32)>,
}

impl TableBuilder {
    /// Notes that page number `page` has this content.
    pub fn insert(&mut self, hash: PageHash, page: u32) {
        self.entries.push((hash.prefix(), page));
    }

    /// Takes over what a table has of the pages with numbers below `end`. It has as much of them as
    /// one of those pages alone: of pages alike it keeps those with the lowest numbers.
    pub fn keep(&mut self, table: &Table, end: u32) {
        self.entries.extend(table.entries().filter(|(_, page)| *page < end));
    }

    /// Takes over what another thread collected.
    pub fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Orders what was collected.
    #[must_use]
    pub fn build(mut self) -> Table {
        self.entries.sort_unstable();
        let mut kept: Vec<(u64, u32)> = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            let alike = kept.iter().rev().take_while(|(prefix, _)| *prefix == entry.0).count();
            if alike < KEPT_ALIKE {
                kept.push(entry);
            }
        }
        let (prefixes, pages) = kept.into_iter().unzip();
        Table::from_sorted(prefixes, pages)
    }
}

impl Table {
    /// `prefixes` are in ascending order, as many as `pages`.
    pub(crate) fn from_sorted(prefixes: Vec<u64>, pages: Vec<u32>) -> Self {
        let bits = (prefixes.len() / PER_SLOT).next_power_of_two().trailing_zeros().max(1);
        let shift = 64 - bits;
        let mut directory = vec![0_u32; (1 << bits) + 1];
        for prefix in &prefixes {
            // The shifted prefix has `bits` bits, at most 32 since entries number at most 2^32.
            directory[usize::try_from(prefix >> shift).unwrap_or(0) + 1] += 1;
        }
        for slot in 1..directory.len() {
            directory[slot] += directory[slot - 1];
        }
        Self { prefixes, pages, directory, shift }
    }

    /// Numbers of the pages whose hash begins as this one does: none, one, or a few.
    pub fn find(&self, hash: PageHash) -> impl Iterator<Item = u32> + '_ {
        let prefix = hash.prefix();
        let (from, to) = match self.directory.get(slot(prefix, self.shift)..) {
            Some([from, to, ..]) => (*from as usize, *to as usize),
            _ => (0, 0),
        };
        let first = from + self.prefixes[from..to].partition_point(|other| *other < prefix);
        let alike = self.prefixes[first..to].iter().take_while(move |other| **other == prefix);
        alike.zip(&self.pages[first..to]).map(|(_, page)| *page)
    }

    /// Number of pages indexed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether nothing is indexed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Memory that the table occupies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.prefixes.len() * 8 + self.pages.len() * 4 + self.directory.len() * 4
    }

    /// Prefixes with their pages, in the order of the prefixes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.prefixes.iter().copied().zip(self.pages.iter().copied())
    }
}

fn slot(prefix: u64, shift: u32) -> usize {
    // An empty table has no shift; `checked_shr` keeps that from being an overflow.
    usize::try_from(prefix.checked_shr(shift).unwrap_or(0)).unwrap_or(0)
}
