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

/// Seconds by which a clock may be set right without harm to copies that were just kept.
const SET_RIGHT: u64 = 60;

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
        if let Some(early @ SET_RIGHT..) = header.created.checked_sub(now()) {
            return Err(Refusal::Early(early));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_whose_age_cannot_be_told_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, scope) = (directory.path().join("copy"), ScopeKey([5; 32]));
        let open = |ahead: u64| {
            let (salt, created) = ([3; 32], now() + ahead);
            let expires = created + 3600;
            let header =
                Header { salt, created, expires, slots: 0, table: 0, label: String::new() };
            let blocks = BlockNames::from_iter([b"pc.ram".to_vec()]);
            let (head, table) = Seal::new(&scope, &salt).finish(header, &blocks, &[]);
            std::fs::write(&path, [&head[..], &table].concat()).unwrap();
            Opened::open(&path, &scope).map(drop)
        };
        assert_eq!(open(0), Ok(()));
        // As if the clock had been a day ahead when it was kept.
        assert!(matches!(open(86_400), Err(Refusal::Early(_))));
    }
}
