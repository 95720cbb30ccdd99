//! The library that is current: built at the start, rebuilt now and then.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use pageshare_index::{HashKey, ScopeKey};
use tracing::{info, warn};

use crate::error::Error;
use crate::kept::Copies;
use crate::sources::{Library, Scanned, SourceSpec, rescan, scan};
use crate::threads::start;

/// Holds what may be shared in one scope: a library, and kept copies. Migrations keep what they
/// began with.
pub struct Shelf {
    origin: Origin,
    key: HashKey,
    current: Mutex<Current>,
    /// Where copies of this scope are kept.
    kept: Option<(PathBuf, ScopeKey)>,
    copies: Mutex<Arc<Copies>>,
}

/// What a migration may ask in.
pub(super) struct Shared {
    pub(super) library: Arc<Library>,
    pub(super) kept: Arc<Copies>,
}

/// What the library is made from.
enum Origin {
    Sources { sources: Vec<SourceSpec>, threads: usize },
    File(PathBuf),
}

struct Current {
    library: Arc<Library>,
    /// Of the index file it was read from.
    modified: Option<SystemTime>,
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
        let origin = Origin::Sources { sources, threads };
        let shelf = Arc::new(Self::new(origin, kept, scope, library, None));
        if let Some(interval) = refresh {
            let shelf = Arc::downgrade(&shelf);
            start(move || {
                loop {
                    std::thread::sleep(interval);
                    let Some(shelf) = shelf.upgrade() else { return };
                    shelf.rescan();
                    // Removes what has expired.
                    drop(shelf.copies());
                }
            })?;
        }
        Ok(shelf)
    }

    /// Reads an index file now, and again at the start of a migration when it has changed.
    ///
    /// # Errors
    /// If it is no index of this scope.
    pub fn file(
        path: PathBuf,
        kept: Option<PathBuf>,
        scope: &ScopeKey,
    ) -> Result<Arc<Self>, Error> {
        let modified = modified(&path);
        let library = Library::load(&path, scope.hash_key())?;
        Ok(Arc::new(Self::new(Origin::File(path), kept, scope, library, modified)))
    }

    fn new(
        origin: Origin,
        kept: Option<PathBuf>,
        scope: &ScopeKey,
        library: Library,
        modified: Option<SystemTime>,
    ) -> Self {
        Self {
            origin,
            key: scope.hash_key(),
            current: Mutex::new(Current { library: Arc::new(library), modified }),
            kept: kept.map(|directory| (directory, scope.clone())),
            copies: Mutex::default(),
        }
    }

    /// What a migration may ask in that begins now.
    pub(super) fn shared(&self) -> Shared {
        Shared { library: self.library(), kept: self.copies() }
    }

    fn copies(&self) -> Arc<Copies> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((directory, scope)) = &self.kept
            && copies.outdated(directory)
        {
            *copies = Arc::new(Copies::open(directory, scope));
        }
        Arc::clone(&copies)
    }

    fn library(&self) -> Arc<Library> {
        let mut current = self.current();
        if let Origin::File(path) = &self.origin {
            let modified = modified(path);
            if modified != current.modified {
                match Library::load(path, self.key.clone()) {
                    Ok(library) => *current = Current { library: Arc::new(library), modified },
                    Err(error) => warn!("{error}; going on with the index read before"),
                }
            }
        }
        Arc::clone(&current.library)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Indexes the sources again, unless a migration uses the index: it keeps what it began with,
    /// and has better use for the processors.
    fn rescan(&self) {
        let Origin::Sources { sources, threads } = &self.origin else { return };
        let before = Arc::clone(&self.current().library);
        // The shelf itself holds one, and this another.
        if Arc::strong_count(&before) > 2 {
            return;
        }
        match rescan(&before, sources, &self.key, *threads) {
            Ok(scanned) => self.current().library = Arc::new(told(scanned)),
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
    use pageshare_index::PAGE_SIZE;

    use super::*;

    #[test]
    fn sources_are_indexed_again_when_no_migration_uses_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let (scope, sources) = (ScopeKey([1; 32]), vec![SourceSpec::Image(image.clone())]);
        std::fs::write(&image, [1; PAGE_SIZE]).unwrap();
        let shelf = Shelf::scan(sources, None, &scope, 1, None).unwrap();
        std::fs::write(&image, [[1; PAGE_SIZE], [2; PAGE_SIZE]].concat()).unwrap();
        let pages = || shelf.library().pages();
        let shared = shelf.shared();
        shelf.rescan();
        assert_eq!(pages(), 1);
        drop(shared);
        shelf.rescan();
        assert_eq!(pages(), 2);
    }
}
