//! Writes a copy of what leaves or arrives, in a thread of its own.
//!
//! The migration never waits for it. What the disk does not take in time is not kept, which costs
//! savings on the way back and nothing else; at the first error the copy is given up.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash, ScopeKey};
use rustix::fs::{FlockOperation, flock};
use tracing::{info, warn};

use super::directory::{FINISHED, Finished, PARTIAL, bytes_beside, is_name, ours};
use super::file::{Entry, HEADER_BYTES, Header, SLOT_BYTES, Seal, cut};
use super::now;
use crate::blocks::BlockNames;
use crate::error::Error;
use crate::handshake::random;
use crate::scope::Scope;
use crate::threads;

/// Batches that may wait for the disk, of at most a segment each: 32 MiB.
const QUEUE: usize = 128;

/// Where, for how long, and how much.
#[derive(Debug, Clone)]
pub struct KeepIn {
    /// The directory; made if it is not there.
    pub directory: PathBuf,
    /// After this long a copy is refused and removed.
    pub lifetime: Duration,
    /// Bytes that all copies in the directory may take; the oldest give way.
    pub quota: u64,
    /// The VM's name: a newer copy of the same VM replaces the older.
    pub label: String,
}

/// Pages to keep.
#[derive(Debug, Default)]
pub struct KeptPages {
    /// Number of the RAM block, offset in it, and the hash if it is known.
    pub pages: Vec<(u32, u64, Option<PageHash>)>,
    /// Their contents, one behind the other.
    pub contents: Vec<u8>,
}

enum Order {
    Pages(KeptPages),
    /// The VM is where it was to go, and its RAM blocks have these names: finish the copy.
    Finish(BlockNames, Holds),
    /// It is not.
    Discard,
}

/// Whether a copy holds all of its VM's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Every page that travelled.
    All,
    /// Fewer: of some nothing could be read, or the disk did not take them in time.
    Some,
}

/// A copy in the making.
pub struct Keeper {
    orders: SyncSender<Order>,
    writer: Mutex<Option<JoinHandle<u64>>>,
}

impl Keeper {
    /// Begins a copy; removes what has expired, and what a killed process left unfinished.
    ///
    /// # Errors
    /// If the directory cannot be made or written to.
    pub fn begin(place: &KeepIn, scope: &Scope) -> Result<Self, Error> {
        let writer = Writer::create(place, &scope.key).map_err(|error| Error::File {
            what: "directory for kept copies",
            path: place.directory.display().to_string(),
            reason: error.to_string(),
        })?;
        let (orders, queue) = mpsc::sync_channel(QUEUE);
        let writer = Mutex::new(Some(threads::start(move || writer.run(&queue))?));
        Ok(Self { orders, writer })
    }

    /// Keeps these pages, if the disk keeps up; returns whether it does.
    #[must_use]
    pub fn keep(&self, pages: KeptPages) -> bool {
        self.orders.try_send(Order::Pages(pages)).is_ok()
    }

    /// Finishes the copy once what is queued is written: the VM is where it was to go, and its RAM
    /// blocks have these names. Returns the number of pages in it: 0 if it has none that is worth
    /// keeping, or fewer than an older copy of the same VM, which then stays.
    pub fn finish(&self, blocks: BlockNames, holds: Holds) -> u64 {
        self.end(Order::Finish(blocks, holds))
    }

    /// Removes the copy: the VM has stayed where it was.
    pub fn discard(&self) {
        self.end(Order::Discard);
    }

    fn end(&self, order: Order) -> u64 {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A copy that was given up has no pages; nor has one whose thread panicked.
        let _ = self.orders.send(order);
        writer.and_then(|writer| writer.join().ok()).unwrap_or(0)
    }
}

struct Writer {
    file: File,
    partial: PathBuf,
    place: KeepIn,
    seal: Seal,
    key: HashKey,
    salt: [u8; 32],
    slots: HashMap<(u32, u64), u32>,
    entries: Vec<Entry>,
    counter: u64,
    /// Bytes of the other copies in the directory, at the last look.
    others: u64,
    /// Pages that the quota had no room for.
    left_out: u64,
}

impl Writer {
    fn create(place: &KeepIn, scope: &ScopeKey) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.directory)?;
        clear(&place.directory)?;
        let salt = random::<32>().map_err(|error| io::Error::other(error.to_string()))?;
        let name: String = salt[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let partial = place.directory.join(format!("{name}.{PARTIAL}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        // Held for as long as the file is open: others know that it is in use.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self {
            file,
            partial,
            place: place.clone(),
            seal: Seal::new(scope, &salt),
            key: scope.hash_key(),
            salt,
            slots: HashMap::new(),
            entries: Vec::new(),
            counter: 0,
            others: 0,
            left_out: 0,
        })
    }

    /// Takes orders until the last one; returns the number of pages kept.
    fn run(mut self, orders: &Receiver<Order>) -> u64 {
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
            match order {
                Order::Pages(pages) => self.write(&pages)?,
                Order::Finish(blocks, holds) => return self.finish(&blocks, holds),
                Order::Discard => return Ok(None),
            }
        }
        Ok(None)
    }

    fn write(&mut self, pages: &KeptPages) -> io::Result<()> {
        // Other migrations may be keeping copies there too.
        self.others = self.bytes_of_others()?;
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
                if slot >= begin {
                    // Its first version still waits in `new`.
                    let mut sealed = Vec::with_capacity(SLOT_BYTES);
                    self.seal.page(slot as u64, self.counter, content, &mut sealed);
                    new[(slot - begin) * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&sealed);
                } else {
                    let mut sealed = Vec::with_capacity(SLOT_BYTES);
                    self.seal.page(slot as u64, self.counter, content, &mut sealed);
                    self.file.write_all_at(&sealed, place(slot))?;
                }
            } else if self.has_room() {
                let slot = self.entries.len();
                let Ok(number) = u32::try_from(slot) else { continue };
                self.slots.insert((*block, *offset), number);
                self.entries.push(entry);
                self.seal.page(slot as u64, self.counter, content, &mut new);
            } else {
                self.left_out += 1;
            }
        }
        self.file.write_all_at(&new, place(begin))
    }

    /// Whether one more page fits the quota; older copies give way for it. Once one did not, none
    /// does.
    fn has_room(&mut self) -> bool {
        // Page and line of the table.
        let mine = (self.entries.len() as u64 + 1) * (SLOT_BYTES as u64 + 32) + 4096;
        while self.left_out == 0 && mine + self.others > self.place.quota && self.others > 0 {
            let Ok(mut copies) = ours(&self.place.directory) else { return false };
            copies.sort_by_key(|copy| copy.modified);
            let Some(oldest) = copies.first() else { break };
            info!("kept copy {} gives way to a newer one", oldest.path.display());
            if std::fs::remove_file(&oldest.path).is_err() {
                return false;
            }
            let Ok(others) = self.bytes_of_others() else { return false };
            self.others = others;
        }
        self.left_out == 0 && mine + self.others <= self.place.quota
    }

    fn bytes_of_others(&self) -> io::Result<u64> {
        bytes_beside(&self.partial, &self.place.directory)
    }

    fn finish(&mut self, blocks: &BlockNames, holds: Holds) -> io::Result<Option<u64>> {
        let label = cut(&self.place.label).to_owned();
        let created = now();
        let expires = created.saturating_add(self.place.lifetime.as_secs());
        let header =
            Header { salt: self.salt, created, expires, slots: 0, table: 0, label: label.clone() };
        let (head, table) = self.seal.finish(header, blocks, &self.entries);
        self.file.write_all_at(&table, place(self.entries.len()))?;
        self.file.write_all_at(&head, 0)?;
        let mut older = ours(&self.place.directory)?;
        older.retain(|copy| !label.is_empty() && copy.is_of(&label, &self.key));
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

fn place(slot: usize) -> u64 {
    (HEADER_BYTES + slot * SLOT_BYTES) as u64
}

/// Removes what has expired, and what nobody writes any more. What has another name than a copy is
/// somebody else's.
fn clear(directory: &Path) -> io::Result<()> {
    for copy in ours(directory)? {
        if copy.header().is_some_and(|header| header.expires <= now()) {
            info!("kept copy {} has expired and is removed", copy.path.display());
            let _ = std::fs::remove_file(&copy.path);
        }
    }
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let abandoned = is_name(&path, PARTIAL)
            && File::open(&path)
                .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if abandoned {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &Path, quota: u64, label: &str) -> KeepIn {
        let lifetime = Duration::from_secs(3600);
        KeepIn { directory: directory.to_owned(), lifetime, quota, label: label.into() }
    }

    /// Ends a copy of so many pages of a VM; returns how many are kept.
    fn keep_of(vm: &str, directory: &Path, scope: &Scope, pages: u64, holds: Holds) -> u64 {
        let keeper = Keeper::begin(&place(directory, 1 << 20, vm), scope).unwrap();
        for page in 0..pages {
            let pages = vec![(0, page << 12, None)];
            assert!(keeper.keep(KeptPages { pages, contents: vec![1; PAGE_SIZE] }));
        }
        keeper.finish([b"pc.ram".to_vec()].into_iter().collect(), holds)
    }

    #[test]
    fn copies_that_are_written_at_once_share_the_quota() {
        const QUOTA: u64 = 100_000;
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        let keepers = ["web1", "web2", "web3"]
            .map(|vm| Keeper::begin(&place(directory.path(), QUOTA, vm), &scope).unwrap());
        for page in 0..20 {
            for keeper in &keepers {
                let pages = vec![(0, page << 12, None)];
                assert!(keeper.keep(KeptPages { pages, contents: vec![1; PAGE_SIZE] }));
            }
        }
        let blocks: BlockNames = [b"pc.ram".to_vec()].into_iter().collect();
        for keeper in keepers {
            keeper.finish(blocks.clone(), Holds::All);
        }
        let bytes = bytes_beside(Path::new(""), directory.path()).unwrap();
        // Each may have written a page before it saw the others' last one; alone, each would have kept
        // all of its pages, which are more than twice the quota.
        assert!(bytes <= QUOTA * 3 / 2, "{bytes}");
    }

    #[test]
    fn a_copy_that_lacks_pages_does_not_replace_a_better_one() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        let keep = |pages, holds| {
            let kept = keep_of("web1", directory.path(), &scope, pages, holds);
            let mut copies = ours(directory.path()).unwrap();
            assert!(copies.len() == 1, "{} copies", copies.len());
            (kept, copies.remove(0).header().unwrap().slots)
        };
        assert_eq!(keep(3, Holds::All), (3, 3));
        assert_eq!(keep(0, Holds::Some), (0, 3));
        assert_eq!(keep(2, Holds::Some), (0, 3));
        assert_eq!(keep(4, Holds::Some), (4, 4));
        assert_eq!(keep(1, Holds::All), (1, 1));
    }

    /// Keeps a page in a directory that has room for one copy of one page.
    fn keep(directory: &Path, scope: &Scope) {
        let keeper = Keeper::begin(&place(directory, 10_000, ""), scope).unwrap();
        assert!(keeper.keep(KeptPages { pages: vec![(0, 0, None)], contents: vec![1; PAGE_SIZE] }));
        assert_eq!(keeper.finish([b"pc.ram".to_vec()].into_iter().collect(), Holds::All), 1);
    }

    #[test]
    fn nothing_gives_way_or_is_cleared_but_copies() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let scope = Scope::generate("tenant").unwrap();
        keep(directory.path(), &scope);
        let mut copy = ours(directory.path()).unwrap().remove(0).path;
        let content = std::fs::read(&copy).unwrap();
        // Names of others, and a name of ours on what is none.
        let foreign: [(&str, &[u8]); 5] = [
            ("disk.partial", b"something"),
            ("0123456789abcde.partial", b"something"),
            ("0123456789ABCDEF.partial", b"something"),
            ("disk.kept", &content),
            ("0123456789abcdef.kept", b"something"),
        ];
        for (name, bytes) in foreign {
            std::fs::write(at(name), bytes).unwrap();
        }
        std::fs::write(at("fedcba9876543210.partial"), "left by a keeper that was killed").unwrap();
        for _ in 0..2 {
            keep(directory.path(), &scope);
            assert!(!copy.exists(), "the older one gives way");
            copy = ours(directory.path()).unwrap().remove(0).path;
        }
        assert!(!at("fedcba9876543210.partial").exists());
        for (name, _) in foreign {
            assert!(at(name).exists(), "{name}");
        }
    }
}
