//! Where page numbers lie.

use std::path::PathBuf;

use crate::PAGE_SIZE;

/// Something that holds pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Memory of a running process.
    Process {
        /// Its process id.
        pid: u32,
        /// When it started, in clock ticks since boot: a process id alone may have been reused.
        started: u64,
    },
    /// A file, raw.
    File {
        /// Where it is.
        path: PathBuf,
    },
    /// What an image file holds compressed. Addresses are those of the disk that is in it.
    Compressed {
        /// Where it is.
        path: PathBuf,
    },
}

/// A run of pages that lie one behind the other in one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Which of the catalogue's origins.
    pub origin: u32,
    /// Address of the first page: in the process, the file, or the disk.
    pub address: u64,
    /// Number of the first page.
    pub first: u32,
    /// How many pages.
    pub pages: u32,
}

/// Where one page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which of the catalogue's origins.
    pub origin: u32,
    /// Address in the process, the file, or the disk.
    pub address: u64,
}

/// Numbers the pages of all origins, in the order in which they are added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    origins: Vec<Origin>,
    spans: Vec<Span>,
    pages: u32,
}

impl Catalogue {
    /// Adds an origin; returns its number.
    pub fn add_origin(&mut self, origin: Origin) -> u32 {
        self.origins.push(origin);
        u32::try_from(self.origins.len() - 1).unwrap_or(u32::MAX)
    }

    /// Numbers `pages` pages from `address` on; returns their span, or nothing when the 2^32
    /// numbers (16 TiB) are used up or the origin was never added.
    pub fn add_span(&mut self, origin: u32, address: u64, pages: u32) -> Option<Span> {
        self.origins.get(origin as usize)?;
        address.checked_add(u64::from(pages) * PAGE_SIZE as u64)?;
        let span = Span { origin, address, first: self.pages, pages };
        self.pages = self.pages.checked_add(pages)?;
        self.spans.push(span);
        Some(span)
    }

    /// Where page number `page` lies.
    #[must_use]
    pub fn place(&self, page: u32) -> Option<Place> {
        let after = self.spans.partition_point(|span| span.first <= page);
        let span = self.spans.get(after.checked_sub(1)?)?;
        let within = page - span.first;
        (within < span.pages).then(|| Place {
            origin: span.origin,
            address: span.address + u64::from(within) * PAGE_SIZE as u64,
        })
    }

    /// All origins, by number.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// All spans, in the order of their page numbers.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How many pages are numbered.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }
}
