//! Finds 4 KiB pages by content, without doing any I/O itself.
//!
//! A [`Table`] maps keyed hashes of pages to page numbers; a [`Catalogue`] says which memory or
//! file a page number stands for; both are written to and read from one [file](snapshot) whose
//! format is specified in `docs/formats/pageshare-index.md`. A [`Recent`] keeps the contents of
//! the pages that arrived last.
//!
//! What a table finds is a *candidate*: the page it came from is alive. The caller copies the
//! candidate, hashes the copy, and uses it only if that hash is the one asked for. So a wrong or
//! stale index costs time and never correctness.

#![forbid(unsafe_code)]

mod catalogue;
mod hash;
mod lanes;
mod recent;
pub mod snapshot;
mod table;

pub use catalogue::{Catalogue, Origin, Place, Span};
pub use hash::{HashKey, PageHash, PrefixHasher, ScopeKey};
pub use recent::Recent;
pub use table::{Table, TableBuilder};

/// Bytes in a page of content.
pub const PAGE_SIZE: usize = 4096;
