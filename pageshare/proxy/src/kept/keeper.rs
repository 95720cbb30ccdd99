//! Takes what is to be copied of what leaves or arrives, for a thread that writes it.
//!
//! The migration never waits for it. What the disk does not take in time is not kept, which costs
//! savings on the way back and nothing else; at the first error the copy is given up.

use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pageshare_index::PageHash;

use super::writer::Writer;
use crate::blocks::BlockNames;
use crate::error::Error;
use crate::record::Account;
use crate::scope::Scope;
use crate::threads::{self, locked};

/// Batches that may wait for the disk, of at most a segment each: 32 MiB.
const QUEUE: usize = 128;

/// Where, for how long, and how much.
#[derive(Debug, Clone)]
pub struct KeepIn {
    /// The directory; made if it is not there.
    pub directory: PathBuf,
    /// After this long a copy is refused and removed.
    pub lifetime: Duration,
    /// Bytes that all copies in the directory may take; the oldest of other VMs give way.
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

pub(super) enum Order {
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
    pub fn begin(place: &KeepIn, scope: &Scope, account: Arc<Account>) -> Result<Self, Error> {
        let writer = Writer::create(place, &scope.key, account).map_err(|error| Error::File {
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
        let writer = locked(&self.writer).take();
        // A copy that was given up has no pages; nor has one whose thread panicked.
        let _ = self.orders.send(order);
        writer.and_then(|writer| writer.join().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pageshare_index::PAGE_SIZE;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::kept::directory::{bytes_beside, ours};

    /// Begins to copy a VM to a directory.
    fn begin(place: &KeepIn, scope: &Scope) -> Keeper {
        Keeper::begin(place, scope, Arc::new(Account::begin("send", [0; 16]))).unwrap()
    }

    fn place(directory: &Path, quota: u64, label: &str) -> KeepIn {
        let lifetime = Duration::from_secs(3600);
        KeepIn { directory: directory.to_owned(), lifetime, quota, label: label.into() }
    }

    /// Ends a copy of so many pages of a VM; returns how many are kept.
    fn keep_of(vm: &str, directory: &Path, scope: &Scope, pages: u64, holds: Holds) -> u64 {
        let keeper = begin(&place(directory, 1 << 20, vm), scope);
        for page in 0..pages {
            let pages = vec![(0, page << 12, None)];
            assert!(keeper.keep(KeptPages { pages, contents: vec![1; PAGE_SIZE] }));
        }
        keeper.finish([b"pc.ram".to_vec()].into_iter().collect(), holds)
    }

    #[test]
    fn copies_that_are_written_at_once_share_the_quota() {
        const BATCH: u64 = 256;
        const QUOTA: u64 = 3 << 20;
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        let keepers: Vec<Keeper> = (0..4)
            .map(|vm| place(directory.path(), QUOTA, &format!("web{vm}")))
            .map(|place| begin(&place, &scope))
            .collect();
        for batch in 0..4 {
            for keeper in &keepers {
                let pages = (batch * BATCH..(batch + 1) * BATCH).map(|page| (0, page << 12, None));
                let contents = [1; PAGE_SIZE].repeat(256);
                assert!(keeper.keep(KeptPages { pages: pages.collect(), contents }));
            }
        }
        let bytes = || bytes_beside(Path::new(""), directory.path()).unwrap();
        let blocks: BlockNames = [b"pc.ram".to_vec()].into_iter().collect();
        for keeper in keepers {
            assert!(bytes() <= QUOTA, "{}", bytes());
            keeper.finish(blocks.clone(), Holds::All);
        }
        // Alone, each would have kept all of its pages, which are more than all of the quota.
        assert!((QUOTA / 2..=QUOTA).contains(&bytes()), "{}", bytes());
    }

    #[test]
    fn copies_that_begin_at_once_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        std::thread::scope(|threads| {
            for vm in 0..4 {
                let (directory, scope, vm) = (directory.path(), &scope, format!("web{vm}"));
                threads.spawn(move || {
                    for _ in 0..500 {
                        assert_eq!(keep_of(&vm, directory, scope, 1, Holds::All), 1);
                    }
                });
            }
        });
    }

    #[test]
    fn names_for_which_the_quota_has_no_room_leave_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        let keeper = begin(&place(directory.path(), 10_000, "web1"), &scope);
        assert!(keeper.keep(KeptPages { pages: vec![(0, 0, None)], contents: vec![1; PAGE_SIZE] }));
        let names = (0..100_u8).map(|name| vec![name; 200]);
        assert_eq!(keeper.finish(names.collect(), Holds::All), 0);
        assert_eq!(bytes_beside(Path::new(""), directory.path()).unwrap(), 0);
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

    #[test]
    fn a_copy_that_is_not_finished_replaces_none_of_the_same_vm() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        assert_eq!(keep_of("web2", directory.path(), &scope, 3, Holds::All), 3);
        assert_eq!(keep_of("web1", directory.path(), &scope, 3, Holds::All), 3);
        let copies = || -> Vec<String> {
            let copies = ours(directory.path()).unwrap();
            copies.iter().map(|copy| copy.header().unwrap().label).collect()
        };
        // Room for one copy more if the other VM's, though it is newer, gives way.
        assert_eq!(keep_of("web2", directory.path(), &scope, 3, Holds::All), 3);
        let keeper = begin(&place(directory.path(), 30_000, "web1"), &scope);
        for page in 0..8 {
            let pages = vec![(0, page << 12, None)];
            assert!(keeper.keep(KeptPages { pages, contents: vec![2; PAGE_SIZE] }));
        }
        keeper.discard();
        assert_eq!(copies(), ["web1"]);
    }

    /// Keeps a page in a directory that has room for one copy of one page.
    fn keep(directory: &Path, scope: &Scope) {
        let keeper = begin(&place(directory, 10_000, ""), scope);
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
        let pipe = "eeeeeeeeeeeeeeee.partial";
        mknodat(CWD, at(pipe), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for _ in 0..2 {
            keep(directory.path(), &scope);
            assert!(!copy.exists(), "the older one gives way");
            copy = ours(directory.path()).unwrap().remove(0).path;
        }
        assert!(!at("fedcba9876543210.partial").exists());
        for name in foreign.map(|(name, _)| name).into_iter().chain([pipe]) {
            assert!(at(name).exists(), "{name}");
        }
    }
}
