//! The library that is current: built at the start, rebuilt now and then.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use pageshare_index::{HashKey, ScopeKey};
use tracing::{info, warn};

use crate::error::Error;
use crate::kept::Copies;
use crate::sources::{Library, Scanned, SourceSpec, rescan, scan};
use crate::threads::{locked, start};

/// How often it is looked whether kept copies have expired, or have gone: those that are open keep
/// their space on the disk.
const LOOK: Duration = Duration::from_secs(60);

/// Holds what may be shared in one scope: a library, and kept copies. Migrations keep what they
/// began with.
pub struct Shelf {
    origin: Origin,
    key: HashKey,
    /// Where copies of this scope are kept.
    kept: Option<(PathBuf, ScopeKey)>,
    copies: Mutex<Arc<Copies>>,
}

/// What a migration may ask in.
pub(super) struct Shared {
    pub(super) library: Option<Arc<Library>>,
    pub(super) kept: Arc<Copies>,
}

/// What the library is made from.
enum Origin {
    Sources {
        sources: Vec<SourceSpec>,
        threads: usize,
        current: Mutex<Arc<Library>>,
    },
    /// It is large, and there may be many receivers: only who migrates holds it.
    File {
        path: PathBuf,
        read: Mutex<(Weak<Library>, Option<SystemTime>)>,
    },
}

impl Shelf {
    /// Indexes these sources now; with `refresh`, again that long after each time, unless a
    /// migration uses the index. Copies that are `kept` in a directory need no indexing, and are
    /// looked at when a migration begins.
    ///
    /// # Errors
    /// If a source is not there or may not be read.
    pub fn scan(
        sources: Vec<SourceSpec>,
        kept: Option<PathBuf>,
        scope: &ScopeKey,
        threads: usize,
        refresh: Option<Duration>,
    ) -> Result<Arc<Self>, Error> {
        let library = told(scan(&sources, &scope.hash_key(), threads)?);
        let current = Mutex::new(Arc::new(library));
        Self::new(Origin::Sources { sources, threads, current }, kept, scope, refresh)
    }

    /// Takes what is in an index file as a migration begins.
    ///
    /// # Errors
    /// If it is no index of this scope now.
    pub fn file(
        path: PathBuf,
        kept: Option<PathBuf>,
        scope: &ScopeKey,
    ) -> Result<Arc<Self>, Error> {
        Library::load(&path, scope.hash_key())?;
        Self::new(Origin::File { path, read: Mutex::default() }, kept, scope, None)
    }

    fn new(
        origin: Origin,
        kept: Option<PathBuf>,
        scope: &ScopeKey,
        refresh: Option<Duration>,
    ) -> Result<Arc<Self>, Error> {
        let shelf = Arc::new(Self {
            origin,
            key: scope.hash_key(),
            kept: kept.map(|directory| (directory, scope.clone())),
            copies: Mutex::default(),
        });
        if let Some(interval) = refresh {
            let shelf = Arc::downgrade(&shelf);
            start(move || {
                loop {
                    std::thread::sleep(interval);
                    let Some(shelf) = shelf.upgrade() else { return };
                    shelf.rescan();
                }
            })?;
        }
        if shelf.kept.is_some() {
            let shelf = Arc::downgrade(&shelf);
            start(move || {
                while let Some(shelf) = shelf.upgrade() {
                    let left = shelf.copies().expire_in();
                    drop(shelf);
                    std::thread::sleep(left.map_or(LOOK, |left| left.min(LOOK)));
                }
            })?;
        }
        Ok(shelf)
    }

    /// What a migration may ask in that begins now.
    pub(super) fn shared(&self) -> Shared {
        Shared { library: self.library(), kept: self.copies() }
    }

    /// The kept copies as they are now; those that have expired are removed.
    fn copies(&self) -> Arc<Copies> {
        let mut copies = locked(&self.copies);
        if let Some((directory, scope)) = &self.kept
            && copies.outdated(directory)
        {
            *copies = Arc::new(Copies::open(directory, scope));
        }
        Arc::clone(&copies)
    }

    fn library(&self) -> Option<Arc<Library>> {
        let (path, read) = match &self.origin {
            Origin::Sources { current, .. } => return Some(Arc::clone(&locked(current))),
            Origin::File { path, read } => (path, read),
        };
        let (mut read, modified) = (locked(read), modified(path));
        let there = read.0.upgrade();
        if there.is_some() && modified == read.1 {
            return there;
        }
        match Library::load(path, self.key.clone()) {
            Ok(library) => {
                let library = Arc::new(library);
                *read = (Arc::downgrade(&library), modified);
                Some(library)
            }
            Err(error) => {
                warn!("{error}; going on with the index read before, where one is in use");
                there
            }
        }
    }

    /// Indexes the sources again, unless a migration uses the index: it keeps what it began with,
    /// and has better use for the processors.
    fn rescan(&self) {
        let Origin::Sources { sources, threads, current } = &self.origin else { return };
        let before = Arc::clone(&locked(current));
        // The shelf itself holds one, and this another.
        if Arc::strong_count(&before) > 2 {
            return;
        }
        match rescan(&before, sources, &self.key, *threads) {
            Ok(scanned) => *locked(current) = Arc::new(told(scanned)),
            Err(error) => warn!("{error}; going on with the index built before"),
        }
    }
}

/// The library, after telling what it took.
fn told(scanned: Scanned) -> Library {
    let (pages, mib) = (scanned.library.pages(), scanned.bytes >> 20);
    info!("indexed {pages} pages, {mib} MiB of them read in {:.2} s", scanned.seconds);
    scanned.library
}

fn modified(path: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pageshare_index::PAGE_SIZE;

    use super::*;
    use crate::blocks::BlockNames;
    use crate::kept::{Holds, KeepIn, Keeper, KeptPages};
    use crate::record::Account;
    use crate::scope::Scope;

    /// An index of one page.
    fn index(directory: &Path, scope: &ScopeKey, byte: u8) -> PathBuf {
        let (image, index) = (directory.join("image"), directory.join("index"));
        std::fs::write(&image, [byte; PAGE_SIZE]).unwrap();
        let scanned = scan(&[SourceSpec::Image(image)], &scope.hash_key(), 1).unwrap();
        std::fs::write(&index, scanned.library.encode()).unwrap();
        index
    }

    #[test]
    fn an_index_is_in_memory_only_while_a_migration_uses_it() {
        let (directory, scope) = (tempfile::tempdir().unwrap(), ScopeKey([1; 32]));
        let index = index(directory.path(), &scope, 1);
        let shelf = Shelf::file(index.clone(), None, &scope).unwrap();
        let held = || {
            let Origin::File { read, .. } = &shelf.origin else { panic!("it was made of a file") };
            locked(read).0.strong_count()
        };
        assert_eq!(held(), 0);
        let [one, other] = [shelf.shared(), shelf.shared()];
        assert_eq!(held(), 2, "two migrations share it");
        drop((one, other));
        assert_eq!(held(), 0);
        std::fs::remove_file(index).unwrap();
        assert!(shelf.shared().library.is_none(), "a migration goes on without it");
    }

    #[test]
    fn a_copy_that_has_expired_is_removed_though_nobody_migrates() {
        let directory = tempfile::tempdir().unwrap();
        let scope = Scope::generate("tenant").unwrap();
        let place = KeepIn {
            directory: directory.path().join("kept"),
            lifetime: Duration::from_secs(1),
            quota: 1 << 20,
            label: String::new(),
        };
        let account = Arc::new(Account::begin("send", [0; 16]));
        let keeper = Keeper::begin(&place, &scope, account).unwrap();
        let pages = vec![(0, 0, None)];
        assert!(keeper.keep(KeptPages { pages, contents: vec![1; PAGE_SIZE] }));
        assert_eq!(keeper.finish(BlockNames::from_iter([b"pc.ram".to_vec()]), Holds::All), 1);
        let index = index(directory.path(), &scope.key, 1);
        let _shelf = Shelf::file(index, Some(place.directory.clone()), &scope.key).unwrap();
        let began = std::time::Instant::now();
        while std::fs::read_dir(&place.directory).unwrap().count() > 0 {
            assert!(began.elapsed() < LOOK / 2, "it is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn sources_are_indexed_again_when_no_migration_uses_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let (scope, sources) = (ScopeKey([1; 32]), vec![SourceSpec::Image(image.clone())]);
        std::fs::write(&image, [1; PAGE_SIZE]).unwrap();
        let shelf = Shelf::scan(sources, None, &scope, 1, None).unwrap();
        std::fs::write(&image, [[1; PAGE_SIZE], [2; PAGE_SIZE]].concat()).unwrap();
        let pages = || shelf.library().unwrap().pages();
        let shared = shelf.shared();
        shelf.rescan();
        assert_eq!(pages(), 1);
        drop(shared);
        shelf.rescan();
        assert_eq!(pages(), 2);
    }
}
