//! The receiver's side: pages out of all copies of a scope in a directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pageshare_index::{PAGE_SIZE, PageHash, ScopeKey, Table, TableBuilder};
use tracing::{debug, info, warn};

use super::directory::listing;
use super::file::Refusal;
use super::now;
use super::opened::Opened;

/// The kept copies that may be used.
#[derive(Default)]
pub struct Copies {
    table: Table,
    files: Vec<Kept>,
    /// What the directory held when it was read.
    seen: Vec<(PathBuf, Option<SystemTime>)>,
    /// When the first of them expires, in seconds since 1970.
    expires: Option<u64>,
}

struct Kept {
    copy: Opened,
    /// Number of its first page in the table.
    first: u32,
}

impl Copies {
    /// Opens every copy of this scope in the directory. One that cannot be used is passed over,
    /// with a sentence in the log; one that has expired is removed.
    #[must_use]
    pub fn open(directory: &Path, scope: &ScopeKey) -> Self {
        let seen = listing(directory).unwrap_or_default();
        let mut builder = TableBuilder::default();
        let (mut files, mut first) = (Vec::new(), 0_u32);
        for (path, _) in &seen {
            let opened = Opened::open(path, scope).and_then(|(copy, contents)| {
                // The table numbers 2^32 pages: 16 TiB.
                let end = first.checked_add(copy.slots()).ok_or(Refusal::Damaged)?;
                Ok((copy, contents, end))
            });
            match opened {
                Ok((copy, contents, end)) => {
                    for (page, entry) in (first..).zip(&contents.entries) {
                        builder.insert(entry.hash, page);
                    }
                    files.push(Kept { copy, first });
                    first = end;
                }
                Err(refusal @ Refusal::Expired(_)) => {
                    info!("kept copy {} is removed: {refusal}", path.display());
                    // Another process may have removed it first.
                    let _ = std::fs::remove_file(path);
                }
                // Scopes may share a directory.
                Err(refusal @ Refusal::Foreign) => {
                    info!("kept copy {} is passed over: {refusal}", path.display());
                }
                Err(refusal) => warn!("kept copy {} is passed over: {refusal}", path.display()),
            }
        }
        if !files.is_empty() {
            debug!("{} kept copies with {first} pages in {}", files.len(), directory.display());
        }
        let expires = files.iter().map(|kept| kept.copy.expires).min();
        Self { table: builder.build(), files, seen, expires }
    }

    /// Whether the directory holds other copies than when this was opened, or one has expired.
    #[must_use]
    pub fn outdated(&self, directory: &Path) -> bool {
        self.expires.is_some_and(|expires| expires <= now())
            || listing(directory).unwrap_or_default() != self.seen
    }

    /// How long it takes until the first of them expires.
    #[must_use]
    pub fn expire_in(&self) -> Option<Duration> {
        self.expires.map(|expires| Duration::from_secs(expires.saturating_sub(now()).max(1)))
    }

    /// Copies the `nth` page that may have this hash. Whether it has is for the caller to check.
    pub fn read(&self, hash: PageHash, nth: usize, copy: &mut [u8; PAGE_SIZE]) -> bool {
        let Some(page) = self.table.find(hash).nth(nth) else { return false };
        let after = self.files.partition_point(|kept| kept.first <= page);
        let Some(kept) = after.checked_sub(1).and_then(|at| self.files.get(at)) else {
            return false;
        };
        kept.copy.read(page - kept.first, copy)
    }
}
