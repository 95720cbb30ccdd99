//! The new sender's side: what pages held when the VM came here, or left here, the last time.
//!
//! The host that the VM goes to may hold the same versions in a copy of its own; then a page that
//! has changed since can travel as the difference.

use std::path::PathBuf;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use tracing::{debug, warn};

use super::directory::finished;
use super::file::{Entry, label};
use super::opened::Opened;
use crate::blocks::BlockNames;
use crate::scope::Scope;

/// Where to look for the copy of a VM.
#[derive(Debug, Clone)]
pub struct KeptIn {
    /// The directory.
    pub directory: PathBuf,
    /// The VM's name; empty for a copy that was kept without one.
    pub label: String,
}

/// The newest copy of one VM, by address. Takes 40 bytes of memory a page: 1 % of the copy.
pub struct Earlier {
    copy: Opened,
    key: HashKey,
    blocks: BlockNames,
    /// What the copy holds and in which slot, by ascending address.
    pages: Vec<(Entry, u32)>,
}

/// One page of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its hash, which its content must have.
    pub hash: PageHash,
    slot: u32,
}

impl Earlier {
    /// Opens the newest copy of the VM in this scope; nothing if there is none that can be used,
    /// with a sentence in the log for each that cannot.
    #[must_use]
    pub fn open(place: &KeptIn, scope: &Scope) -> Option<Self> {
        let key = scope.key.hash_key();
        let label = label(&place.label);
        // A directory that is not there yet holds none.
        let mut copies = finished(&place.directory).unwrap_or_default();
        copies.retain(|copy| copy.is_of(&label, &key));
        let age = |copy: &super::directory::Finished| {
            (copy.header().map(|header| header.created), copy.modified)
        };
        copies.sort_by_key(|copy| std::cmp::Reverse(age(copy)));
        for found in copies {
            match Opened::open(&found.path, &scope.key) {
                Ok((copy, contents)) => {
                    let mut pages: Vec<(Entry, u32)> =
                        contents.entries.into_iter().zip(0..).collect();
                    pages.sort_unstable_by_key(|(entry, _)| (entry.block, entry.offset));
                    debug!("differences to the {} pages of {}", pages.len(), found.path.display());
                    return Some(Self { copy, key, blocks: contents.blocks, pages });
                }
                Err(refusal) => {
                    warn!("kept copy {} is passed over: {refusal}", found.path.display());
                }
            }
        }
        None
    }

    /// The names by which the copy numbers RAM blocks.
    #[must_use]
    pub fn blocks(&self) -> &BlockNames {
        &self.blocks
    }

    /// What the page at this address held: of the block with this number, at this offset.
    #[must_use]
    pub fn find(&self, (block, offset): (u32, u64)) -> Option<Version> {
        let place = |(entry, _): &(Entry, u32)| (entry.block, entry.offset);
        let at = self.pages.binary_search_by_key(&(block, offset), place).ok()?;
        let (entry, slot) = self.pages[at];
        Some(Version { hash: entry.hash, slot })
    }

    /// The content of a version, hashed again: the file may be damaged, or hold another one.
    #[must_use]
    pub fn read(&self, version: Version) -> Option<[u8; PAGE_SIZE]> {
        let mut page = [0; PAGE_SIZE];
        let sound = self.copy.read(version.slot, &mut page) && self.key.hash(&page) == version.hash;
        sound.then_some(page)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::kept::{Holds, KeepIn, Keeper, KeptPages};
    use crate::record::Account;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn keep(directory: &Path, scope: &Scope, label: &str, pages: &[(u64, u8)]) {
        let place = KeepIn {
            directory: directory.to_owned(),
            lifetime: Duration::from_secs(3600),
            quota: 1 << 30,
            label: label.into(),
        };
        let account = Arc::new(Account::begin("send", [0; 16]));
        let keeper = Keeper::begin(&place, scope, account).unwrap();
        // One batch a page: a page that comes again is written in the place of its first version.
        for (offset, byte) in pages {
            let pages = vec![(1, *offset, None)];
            assert!(keeper.keep(KeptPages { pages, contents: vec![*byte; PAGE_SIZE] }));
        }
        let blocks = [b"vga".to_vec(), b"pc.ram".to_vec()];
        assert!(keeper.finish(blocks.into_iter().collect(), Holds::All) > 0);
    }

    fn open(directory: &Path, scope: &Scope, label: &str) -> Option<Earlier> {
        let place = KeptIn { directory: directory.to_owned(), label: label.into() };
        Earlier::open(&place, scope)
    }

    /// The byte that fills the page at an offset.
    fn held(earlier: &Earlier, offset: u64) -> Option<u8> {
        earlier.read(earlier.find((1, offset))?).map(|page| page[0])
    }

    #[test]
    fn a_page_is_found_at_its_address_in_its_last_version() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        keep(directory.path(), &scope, "web1", &[(7 * PAGE, 7), (0, 1), (3 * PAGE, 3), (0, 2)]);
        let earlier = open(directory.path(), &scope, "web1").unwrap();
        let mut names = earlier.blocks().clone();
        assert_eq!(names.number(b"pc.ram"), 1);
        assert_eq!(held(&earlier, 0), Some(2));
        assert_eq!(held(&earlier, 3 * PAGE), Some(3));
        assert_eq!(held(&earlier, 7 * PAGE), Some(7));
        assert_eq!(earlier.find((1, PAGE)), None);
        assert_eq!(earlier.find((0, 0)), None, "another block");
        assert_eq!(earlier.find((1, 0)).unwrap().hash, scope.key.hash_key().hash(&[2; PAGE_SIZE]));
    }

    #[test]
    fn only_a_copy_of_the_same_vm_in_the_same_scope_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        keep(directory.path(), &scope, "web1", &[(0, 1)]);
        keep(directory.path(), &scope, "web2", &[(0, 2)]);
        let [one, other] = ["01", "02"].map(|vm| format!("production-eu-west-1-web-{vm}"));
        keep(directory.path(), &scope, &one, &[(0, 3)]);
        keep(directory.path(), &scope, &other, &[(0, 4)]);
        assert_eq!(held(&open(directory.path(), &scope, &one).unwrap(), 0), Some(3));
        assert_eq!(held(&open(directory.path(), &scope, "web1").unwrap(), 0), Some(1));
        assert!(open(directory.path(), &scope, "").is_none());
        assert!(open(directory.path(), &Scope::generate("tenant").unwrap(), "web1").is_none());
        assert!(open(&directory.path().join("missing"), &scope, "web1").is_none());
    }

    #[test]
    fn a_page_without_the_hash_that_the_table_names_is_not_handed_out() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        keep(directory.path(), &scope, "web1", &[(0, 1), (PAGE, 2)]);
        let mut earlier = open(directory.path(), &scope, "web1").unwrap();
        let version = earlier.find((1, 0)).unwrap();
        // As if a slot held what an older one of the same page had held.
        earlier.pages[0].0.hash = PageHash([9; 16]);
        assert!(earlier.read(version).is_some());
        assert!(earlier.read(earlier.find((1, 0)).unwrap()).is_none());
    }
}
