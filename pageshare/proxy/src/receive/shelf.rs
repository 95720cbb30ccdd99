//! The library that is current: built at the start, rebuilt now and then.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pageshare_index::HashKey;
use tracing::{info, warn};

use crate::error::Error;
use crate::sources::{Library, SourceSpec, scan};

/// Holds the library that a migration may ask in. Migrations keep the one they began with.
pub struct Shelf {
    origin: Origin,
    key: HashKey,
    current: Mutex<Current>,
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
    /// Indexes these sources now; with `refresh`, again that long after each indexing.
    ///
    /// # Errors
    /// If a source is not there or may not be read.
    pub fn scan(
        sources: Vec<SourceSpec>,
        key: HashKey,
        threads: usize,
        refresh: Option<Duration>,
    ) -> Result<Arc<Self>, Error> {
        let library = Arc::new(scan_once(&sources, &key, threads)?);
        let shelf = Arc::new(Self {
            origin: Origin::Sources { sources, threads },
            key,
            current: Mutex::new(Current { library, modified: None }),
        });
        if let Some(interval) = refresh {
            let shelf = Arc::downgrade(&shelf);
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(interval);
                    let Some(shelf) = shelf.upgrade() else { return };
                    shelf.rescan();
                }
            });
        }
        Ok(shelf)
    }

    /// Reads an index file now, and again at the start of a migration when it has changed.
    ///
    /// # Errors
    /// If it is no index of this scope.
    pub fn file(path: PathBuf, key: HashKey) -> Result<Arc<Self>, Error> {
        let modified = modified(&path);
        let library = Arc::new(Library::load(&path, key.clone())?);
        let current = Mutex::new(Current { library, modified });
        Ok(Arc::new(Self { origin: Origin::File(path), key, current }))
    }

    /// The library for a migration that begins now.
    pub(super) fn library(&self) -> Arc<Library> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn rescan(&self) {
        let Origin::Sources { sources, threads } = &self.origin else { return };
        match scan_once(sources, &self.key, *threads) {
            Ok(library) => {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                current.library = Arc::new(library);
            }
            Err(error) => warn!("{error}; going on with the index built before"),
        }
    }
}

fn scan_once(sources: &[SourceSpec], key: &HashKey, threads: usize) -> Result<Library, Error> {
    let scanned = scan(sources, key, threads)?;
    let (pages, mib) = (scanned.library.pages(), scanned.bytes >> 20);
    info!("indexed {pages} pages out of {mib} MiB in {:.2} s", scanned.seconds);
    Ok(scanned.library)
}

fn modified(path: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
