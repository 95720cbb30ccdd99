//! Writes one copy, in a thread of its own.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use pageshare_index::{HashKey, PAGE_SIZE, ScopeKey};
use tracing::warn;

use super::directory::{FINISHED, Finished, PARTIAL, clear, ours};
use super::file::{ENTRY, Entry, HEADER_BYTES, Header, SLOT_BYTES, Seal, label};
use super::keeper::{Holds, KeepIn, KeptPages, Order};
use super::now;
use super::quota::Quota;
use crate::blocks::BlockNames;
use crate::files;
use crate::handshake::random;
use crate::record::Account;

/// Bytes of a page in a copy, and of its line in the table.
const PER_PAGE: usize = SLOT_BYTES + ENTRY;
/// Bytes of the header and of the RAM blocks' names, rarely more.
const AROUND: usize = 4096;

/// A copy in the making.
pub(super) struct Writer {
    account: Arc<Account>,
    file: File,
    partial: PathBuf,
    place: KeepIn,
    label: String,
    quota: Quota,
    /// Pages for which it has room.
    room: usize,
    seal: Seal,
    key: HashKey,
    salt: [u8; 32],
    slots: HashMap<(u32, u64), u32>,
    entries: Vec<Entry>,
    counter: u64,
    /// Pages that the quota had no room for.
    left_out: u64,
}

impl Writer {
    /// Begins a copy's file.
    pub(super) fn create(
        place: &KeepIn,
        scope: &ScopeKey,
        account: Arc<Account>,
    ) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.directory)?;
        clear(&place.directory)?;
        let (salt, partial, file) = begin(&place.directory)?;
        let (label, key) = (label(&place.label), scope.hash_key());
        let vm = (label.clone(), key.clone());
        Ok(Self {
            account,
            file,
            quota: Quota::new(place.quota, &place.directory, &partial, vm),
            label,
            room: 0,
            partial,
            place: place.clone(),
            seal: Seal::new(scope, &salt),
            key,
            salt,
            slots: HashMap::new(),
            entries: Vec::new(),
            counter: 0,
            left_out: 0,
        })
    }

    /// Takes orders until the last one; returns the number of pages kept.
    pub(super) fn run(mut self, orders: &Receiver<Order>) -> u64 {
        let kept = self.obey(orders);
        match kept {
            Ok(Some(pages)) => return pages,
            Ok(None) => {}
            Err(error) => warn!(
                "the copy that was to be kept in {} is given up: {error}; the migration goes on",
                self.place.directory.display()
            ),
        }
        // It frees the space; what cannot be removed is removed by the next that keeps here.
        let _ = std::fs::remove_file(&self.partial);
        0
    }

    fn obey(&mut self, orders: &Receiver<Order>) -> io::Result<Option<u64>> {
        for order in orders {
            if self.account.forgoes_copy() {
                return Ok(None);
            }
            match order {
                Order::Pages(pages) => self.write(&pages)?,
                Order::Finish(blocks, holds) => return self.finish(&blocks, holds),
                Order::Discard => return Ok(None),
            }
        }
        Ok(None)
    }

    fn write(&mut self, pages: &KeptPages) -> io::Result<()> {
        self.take_room(pages)?;
        let contents = pages.contents.as_chunks::<PAGE_SIZE>().0;
        // New pages lie one behind the other: one write for all of a batch.
        let (begin, mut new) = (self.entries.len(), Vec::new());
        for ((block, offset, hash), content) in pages.pages.iter().zip(contents) {
            let hash = hash.unwrap_or_else(|| self.key.hash(content));
            let entry = Entry { hash, block: *block, offset: *offset };
            self.counter += 1;
            if let Some(slot) = self.slots.get(&(*block, *offset)) {
                let slot = *slot as usize;
                if self.entries[slot].hash == hash {
                    continue;
                }
                self.entries[slot] = entry;
                let mut sealed = Vec::with_capacity(SLOT_BYTES);
                self.seal.page(slot as u64, self.counter, content, &mut sealed);
                if slot >= begin {
                    // Its first version still waits in `new`.
                    new[(slot - begin) * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&sealed);
                } else {
                    self.file.write_all_at(&sealed, place(slot))?;
                }
            } else if self.entries.len() < self.room {
                let slot = self.entries.len();
                let Ok(number) = u32::try_from(slot) else { continue };
                self.slots.insert((*block, *offset), number);
                self.entries.push(entry);
                self.seal.page(slot as u64, self.counter, content, &mut new);
            } else {
                self.left_out += 1;
            }
        }
        self.file.write_all_at(&new, place(begin))?;
        self.account.copied(pages.contents.len());
        Ok(())
    }

    /// Takes room for those of these pages that are new. Once one had none, no other gets any.
    fn take_room(&mut self, pages: &KeptPages) -> io::Result<()> {
        let is_new =
            |(block, offset, _): &&(u32, u64, _)| !self.slots.contains_key(&(*block, *offset));
        let wanted = self.entries.len() + pages.pages.iter().filter(is_new).count();
        if self.left_out == 0 && wanted > self.room {
            let bytes = self.quota.take(&self.file, (wanted * PER_PAGE + AROUND) as u64)?;
            self.room =
                usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(AROUND) / PER_PAGE;
        }
        Ok(())
    }

    fn finish(&mut self, blocks: &BlockNames, holds: Holds) -> io::Result<Option<u64>> {
        let label = self.label.clone();
        let created = now();
        let expires = created.saturating_add(self.place.lifetime.as_secs());
        let header = Header { salt: self.salt, created, expires, slots: 0, table: 0, label };
        let (head, table) = self.seal.finish(header, blocks, &self.entries);
        let end = place(self.entries.len()) + table.len() as u64;
        if self.quota.take(&self.file, end)? < end {
            return Err(io::Error::other("--keep-quota has no room for its table"));
        }
        self.file.set_len(end)?;
        self.file.write_all_at(&table, place(self.entries.len()))?;
        self.file.write_all_at(&head, 0)?;
        let mut older = ours(&self.place.directory)?;
        older.retain(|copy| copy.is_of_vm(&self.label, &self.key));
        let pages = self.entries.len() as u64;
        let most = older.iter().filter_map(Finished::header).map(|header| header.slots).max();
        let lacks = holds == Holds::Some || self.left_out > 0;
        if pages == 0 || (lacks && most.is_some_and(|most| most > pages)) {
            let instead = most.map(|most| format!("; the older one stays, with {most}"));
            warn!(
                "no copy of this VM is kept, since only {pages} of its pages could be read, and \
                 written in time and within the quota{}",
                instead.unwrap_or_default()
            );
            return Ok(None);
        }
        if self.left_out > 0 {
            warn!(
                "the copy kept of this VM lacks pages: all copies in {} have reached --keep-quota",
                self.place.directory.display()
            );
        }
        std::fs::rename(&self.partial, self.partial.with_extension(FINISHED))?;
        for copy in older {
            // The newer copy of the same VM has all that is worth having.
            let _ = std::fs::remove_file(&copy.path);
        }
        Ok(Some(pages))
    }
}

/// A copy's salt, and the file named after it.
fn begin(directory: &Path) -> io::Result<([u8; 32], PathBuf, File)> {
    loop {
        let salt = random::<32>().map_err(|error| io::Error::other(error.to_string()))?;
        let name: String = salt[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let partial = directory.join(format!("{name}.{PARTIAL}"));
        if let Some(file) = files::begin(&partial)? {
            return Ok((salt, partial, file));
        }
    }
}

fn place(slot: usize) -> u64 {
    (HEADER_BYTES + slot * SLOT_BYTES) as u64
}
