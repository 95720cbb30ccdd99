//! One finished copy, open for reading.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pageshare_index::{PAGE_SIZE, ScopeKey};
use tracing::warn;

use super::file::{Entry, HEADER_BYTES, Header, Refusal, SLOT_BYTES, Seal};
use super::now;
use crate::blocks::BlockNames;

/// Reads the pages of one copy; goes on doing so if the file is removed meanwhile.
pub(super) struct Opened {
    path: PathBuf,
    file: File,
    seal: Seal,
    slots: u32,
    /// Seconds since 1970.
    pub(super) expires: u64,
}

/// What a copy holds: the names of the RAM blocks, and for each slot what lies in it.
pub(super) struct Contents {
    pub(super) blocks: BlockNames,
    pub(super) entries: Vec<Entry>,
}

impl Opened {
    /// Opens a copy of this scope.
    ///
    /// # Errors
    /// If it is none, damaged, or its time has passed.
    pub(super) fn open(path: &Path, scope: &ScopeKey) -> Result<(Self, Contents), Refusal> {
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
        let (blocks, entries) = seal.open_table(&head, table)?;
        if let Some(past) = now().checked_sub(header.expires) {
            return Err(Refusal::Expired(past));
        }
        let slots = u32::try_from(entries.len()).map_err(|_| Refusal::Damaged)?;
        let opened = Self { path: path.to_owned(), file, seal, slots, expires: header.expires };
        Ok((opened, Contents { blocks, entries }))
    }

    /// How many pages it has.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Copies the page in a slot; returns whether there is one. A page that is damaged is none,
    /// with a sentence in the log.
    pub(super) fn read(&self, slot: u32, page: &mut [u8; PAGE_SIZE]) -> bool {
        if slot >= self.slots {
            return false;
        }
        let found = self.decrypt(slot, page);
        if let Err(refusal) = &found {
            warn!("a page of kept copy {} is not used: {refusal}", self.path.display());
        }
        found.is_ok()
    }

    fn decrypt(&self, slot: u32, page: &mut [u8; PAGE_SIZE]) -> Result<(), Refusal> {
        let mut sealed = [0; SLOT_BYTES];
        let at = HEADER_BYTES as u64 + u64::from(slot) * SLOT_BYTES as u64;
        let read = self.file.read_exact_at(&mut sealed, at);
        read.map_err(|error| Refusal::Unreadable(error.to_string()))?;
        self.seal.open_page(slot.into(), &mut sealed, page)
    }
}
