//! Reading what an origin holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use pageshare_index::{Catalogue, Origin, PAGE_SIZE};

use super::process;
use super::qcow2::Compressed;

/// An origin, open.
pub(super) enum Reader {
    /// What lies there as it is.
    Plain(File),
    /// What has to be expanded.
    Compressed(Compressed),
}

/// What changes when a file is written to or another takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    file: (u64, u64),
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open file; what a device holds changes without one.
    ///
    /// # Errors
    /// If the file system does not say.
    pub(super) fn of(file: &File) -> io::Result<Option<Self>> {
        let it = file.metadata()?;
        Ok(it.is_file().then(|| Self {
            file: (it.dev(), it.ino()),
            bytes: it.len(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        }))
    }
}

impl Reader {
    /// Opens every origin that is still the one that it was; by number.
    pub(super) fn open_all(catalogue: &Catalogue) -> Vec<Option<Self>> {
        catalogue.origins().iter().map(Self::open).collect()
    }

    fn open(origin: &Origin) -> Option<Self> {
        match origin {
            Origin::Process { pid, started } => {
                let memory = process::memory(*pid).ok()?;
                (process::started(*pid).ok()? == *started).then_some(Self::Plain(memory))
            }
            Origin::File { path } => File::open(path).ok().map(Self::Plain),
            Origin::Compressed { path } => {
                let image = Compressed::open(File::open(path).ok()?);
                image.ok().map(Self::Compressed)
            }
        }
    }

    /// Copies what there is from `address` on. Returns how many bytes there were.
    ///
    /// # Errors
    /// If it can no longer be read.
    pub(super) fn read(&self, address: u64, copy: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read_at(copy, address),
            Self::Compressed(image) => image.read(address, copy).map(|()| copy.len()),
        }
    }

    /// Copies the pages from `address` on.
    ///
    /// # Errors
    /// If they can no longer be read.
    pub(super) fn pages(&self, address: u64, copies: &mut [[u8; PAGE_SIZE]]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.read_exact_at(copies.as_flattened_mut(), address),
            Self::Compressed(image) => {
                let addresses = (address..).step_by(PAGE_SIZE);
                addresses.zip(copies).try_for_each(|(address, copy)| image.page(address, copy))
            }
        }
    }
}
