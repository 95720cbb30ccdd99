//! Reading what an origin holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use pageshare_index::{Catalogue, Origin, PAGE_SIZE};

use super::arrival::arrival;
use super::memory::{Memory, Wanted};
use super::process;
use super::qcow2::Compressed;
use crate::files;

/// An origin, open.
pub(super) enum Reader {
    /// A process's memory.
    Process(Memory),
    /// A file that holds them as they are.
    File(File),
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

/// Opens an image. Something else may have taken its place: who may write there need not be who reads.
pub(super) fn open_image(path: &Path) -> io::Result<File> {
    let file = files::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(file);
    }
    Err(io::Error::other("it is neither a file nor a block device"))
}

impl Reader {
    /// Opens every origin that is still the one that it was, and no process to which a guest may be
    /// arriving; by number.
    pub(super) fn open_all(catalogue: &Catalogue) -> Vec<Option<Self>> {
        catalogue.origins().iter().map(Self::open).collect()
    }

    fn open(origin: &Origin) -> Option<Self> {
        match origin {
            Origin::Process { pid, started } => {
                let memory = Memory::open(*pid).ok()?;
                let same = process::started(*pid).ok()? == *started;
                (same && arrival(*pid).ok()?.is_none()).then_some(Self::Process(memory))
            }
            Origin::File { path } => open_image(path).ok().map(Self::File),
            Origin::Compressed { path } => {
                let image = Compressed::open(open_image(path).ok()?);
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
            Self::Process(memory) => memory.read(address, copy),
            Self::File(file) => file.read_at(copy, address),
            Self::Compressed(image) => image.read(address, copy).map(|()| copy.len()),
        }
    }

    /// Copies pages, in the order of their places. Returns the places of those that could be read.
    pub(super) fn pages(&self, wanted: &[Wanted], copies: &mut [[u8; PAGE_SIZE]]) -> Vec<usize> {
        match self {
            Self::Process(memory) => memory.pages(wanted, copies),
            Self::File(file) => pages(file, wanted, copies),
            Self::Compressed(image) => {
                let mut read =
                    |(at, address): &Wanted| image.page(*address, &mut copies[*at]).is_ok();
                wanted.iter().filter(|page| read(page)).map(|(at, _)| *at).collect()
            }
        }
    }
}

/// Those of a file: what lies there as they are wanted, one behind the other, in one read.
fn pages(file: &File, wanted: &[Wanted], copies: &mut [[u8; PAGE_SIZE]]) -> Vec<usize> {
    let follows =
        |(at, a): &Wanted, (next, b): &Wanted| at + 1 == *next && a + PAGE_SIZE as u64 == *b;
    let mut copied = Vec::with_capacity(wanted.len());
    let mut copy = |run: &[Wanted]| {
        let Some((at, address)) = run.first() else { return false };
        let copies = &mut copies[*at..at + run.len()];
        let there = file.read_exact_at(copies.as_flattened_mut(), *address).is_ok();
        if there {
            copied.extend(run.iter().map(|(at, _)| *at));
        }
        there
    };
    for run in wanted.chunk_by(follows) {
        if !copy(run) && run.len() > 1 {
            // Some of them may be there.
            for one in run.chunks(1) {
                copy(one);
            }
        }
    }
    copied
}
