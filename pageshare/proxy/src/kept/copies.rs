//! The receiver's side: pages out of all copies of a scope in a directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pageshare_index::{PAGE_SIZE, PageHash, ScopeKey, Table, TableBuilder};
use tracing::{debug, info, warn};

use super::file::{HEADER_BYTES, Header, Refusal, SLOT_BYTES, Seal};
use super::{FINISHED, now};

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
    path: PathBuf,
    file: File,
    seal: Seal,
    /// Number of its first page in the table.
    first: u32,
    slots: u32,
    expires: u64,
}

impl Copies {
    /// Opens every copy of this scope in the directory. One that cannot be used is passed over,
    /// with a sentence in the log; one that has expired is removed.
    #[must_use]
    pub fn open(directory: &Path, scope: &ScopeKey) -> Self {
        let seen = listing(directory);
        let mut builder = TableBuilder::default();
        let (mut files, mut first) = (Vec::new(), 0_u32);
        for (path, _) in &seen {
            match Kept::open(path, scope, first, &mut builder) {
                Ok(kept) => {
                    first += kept.slots;
                    files.push(kept);
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
        let expires = files.iter().map(|kept| kept.expires).min();
        Self { table: builder.build(), files, seen, expires }
    }

    /// Whether the directory holds other copies than when this was opened, or one has expired.
    #[must_use]
    pub fn outdated(&self, directory: &Path) -> bool {
        self.expires.is_some_and(|expires| expires <= now()) || listing(directory) != self.seen
    }

    /// Copies the `nth` page that may have this hash. Whether it has is for the caller to check.
    pub fn read(&self, hash: PageHash, nth: usize, copy: &mut [u8; PAGE_SIZE]) -> bool {
        let Some(page) = self.table.find(hash).nth(nth) else { return false };
        let after = self.files.partition_point(|kept| kept.first <= page);
        let Some(kept) = after.checked_sub(1).and_then(|at| self.files.get(at)) else {
            return false;
        };
        kept.read(page - kept.first, copy).unwrap_or_else(|refusal| {
            warn!("a page of kept copy {} is not used: {refusal}", kept.path.display());
            false
        })
    }
}

impl Kept {
    fn open(
        path: &Path,
        scope: &ScopeKey,
        first: u32,
        builder: &mut TableBuilder,
    ) -> Result<Self, Refusal> {
        let unreadable = |error: io::Error| Refusal::Unreadable(error.to_string());
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let mut head = [0; HEADER_BYTES];
        file.read_exact_at(&mut head, 0).map_err(|_| Refusal::Magic)?;
        let header = Header::decode(&head)?;
        if !Header::is_of(&head, &scope.hash_key()) {
            return Err(Refusal::Foreign);
        }
        let slots_end = header
            .slots
            .checked_mul(SLOT_BYTES as u64)
            .and_then(|bytes| bytes.checked_add(HEADER_BYTES as u64))
            .ok_or(Refusal::Damaged)?;
        if slots_end.checked_add(header.table) != Some(length) {
            return Err(Refusal::Damaged);
        }
        let mut table = vec![0; usize::try_from(header.table).map_err(|_| Refusal::Damaged)?];
        file.read_exact_at(&mut table, slots_end).map_err(unreadable)?;
        let seal = Seal::new(scope, &header.salt);
        let (_, entries) = seal.open_table(&head, table)?;
        let age = now().checked_sub(header.expires);
        if let Some(past) = age {
            return Err(Refusal::Expired(past));
        }
        let slots = u32::try_from(entries.len()).map_err(|_| Refusal::Damaged)?;
        // The table numbers 2^32 pages: 16 TiB.
        first.checked_add(slots).ok_or(Refusal::Damaged)?;
        for (page, entry) in (first..).zip(&entries) {
            builder.insert(entry.hash, page);
        }
        Ok(Self { path: path.to_owned(), file, seal, first, slots, expires: header.expires })
    }

    fn read(&self, slot: u32, page: &mut [u8; PAGE_SIZE]) -> Result<bool, Refusal> {
        if slot >= self.slots {
            return Ok(false);
        }
        let mut sealed = [0; SLOT_BYTES];
        let at = HEADER_BYTES as u64 + u64::from(slot) * SLOT_BYTES as u64;
        let read = self.file.read_exact_at(&mut sealed, at);
        read.map_err(|error| Refusal::Unreadable(error.to_string()))?;
        self.seal.open_page(slot.into(), &mut sealed, page)?;
        Ok(true)
    }
}

/// The copies in a directory, with their times, in the order of their names.
fn listing(directory: &Path) -> Vec<(PathBuf, Option<SystemTime>)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == FINISHED))
        .map(|entry| (entry.path(), entry.metadata().and_then(|it| it.modified()).ok()))
        .collect();
    found.sort();
    found
}
