//! What lies in a directory of copies.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pageshare_index::HashKey;
use tracing::info;

use super::file::{HEADER_BYTES, Header};
use super::now;
use crate::files::{self, is_number};

/// What a finished copy's name ends with.
pub(super) const FINISHED: &str = "kept";
/// A copy that is being written.
pub(super) const PARTIAL: &str = "partial";

/// A finished copy, of whatever scope. Nothing here is proven: who opens the copy proves it.
pub(super) struct Finished {
    pub(super) path: PathBuf,
    pub(super) modified: Option<SystemTime>,
    head: Option<[u8; HEADER_BYTES]>,
}

impl Finished {
    /// What its header says, if it can be read.
    pub(super) fn header(&self) -> Option<Header> {
        Header::decode(self.head.as_ref()?).ok()
    }

    /// Whether it says that it is of the VM with this name, in the scope of this key.
    pub(super) fn is_of(&self, label: &str, key: &HashKey) -> bool {
        self.head.as_ref().is_some_and(|head| Header::is_of(head, key))
            && self.header().is_some_and(|header| header.label == label)
    }

    /// The same, but that copies without a name are of nobody knows which VMs.
    pub(super) fn is_of_vm(&self, label: &str, key: &HashKey) -> bool {
        !label.is_empty() && self.is_of(label, key)
    }
}

/// Whether a copy has a name that ends so: 16 hexadecimal digits, and the end.
pub(super) fn is_name(path: &Path, end: &str) -> bool {
    path.file_stem().is_some_and(is_number) && path.extension().is_some_and(|it| it == end)
}

/// Those of the finished copies that a keeper has made, by their names and by how they begin: the
/// others are not for it to remove.
pub(super) fn ours(directory: &Path) -> io::Result<Vec<Finished>> {
    let mut copies = finished(directory)?;
    copies.retain(|copy| {
        is_name(&copy.path, FINISHED) && copy.head.as_ref().is_some_and(Header::is_one)
    });
    Ok(copies)
}

/// Bytes of all copies in a directory, finished or being written, but for one.
pub(super) fn bytes_beside(own: &Path, directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path != own && (is_name(&path, FINISHED) || is_name(&path, PARTIAL)) {
            // Another process may just have removed it.
            bytes += path.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    Ok(bytes)
}

/// Where the finished copies of a directory are, and when they were written, in the order of their names.
pub(super) fn listing(directory: &Path) -> io::Result<Vec<(PathBuf, Option<SystemTime>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        // Another process may just have removed it.
        if path.extension().is_some_and(|end| end == FINISHED)
            && let Ok(metadata) = path.metadata()
        {
            found.push((path, metadata.modified().ok()));
        }
    }
    found.sort();
    Ok(found)
}

/// All finished copies of a directory.
pub(super) fn finished(directory: &Path) -> io::Result<Vec<Finished>> {
    let with_head = |(path, modified): (PathBuf, Option<SystemTime>)| {
        let head = File::open(&path).ok().and_then(|file| {
            let mut head = [0; HEADER_BYTES];
            file.read_exact_at(&mut head, 0).ok().map(|()| head)
        });
        Finished { path, modified, head }
    };
    Ok(listing(directory)?.into_iter().map(with_head).collect())
}

/// Removes what has expired, and what nobody writes any more. What has another name than a copy is
/// somebody else's.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    for copy in ours(directory)? {
        if copy.header().is_some_and(|header| header.expires <= now()) {
            info!("kept copy {} has expired and is removed", copy.path.display());
            let _ = std::fs::remove_file(&copy.path);
        }
    }
    files::clear(directory, |path| is_name(path, PARTIAL))
}
