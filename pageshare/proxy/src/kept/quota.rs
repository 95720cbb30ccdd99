//! What all copies of a directory may take: a copy's file is made longer before it is written, so
//! that others see what is taken.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use pageshare_index::HashKey;
use rustix::fs::{FlockOperation, flock};
use tracing::info;

use super::directory::{bytes_beside, ours};

/// A copy's part of its directory's quota.
pub(super) struct Quota {
    bytes: u64,
    directory: PathBuf,
    own: PathBuf,
    /// The VM's name as copies have it, and their scope's.
    vm: (String, HashKey),
}

impl Quota {
    /// The copy at `own`, and all others in the directory, may take so many bytes.
    pub(super) fn new(bytes: u64, directory: &Path, own: &Path, vm: (String, HashKey)) -> Self {
        Self { bytes, directory: directory.to_owned(), own: own.to_owned(), vm }
    }

    /// Makes the copy's file so long, or as long as there is room; older copies give way for it, but for
    /// those of the same VM: nobody knows yet whether this one will be finished.
    /// Returns how long it may be.
    pub(super) fn take(&self, file: &File, wanted: u64) -> io::Result<u64> {
        // Other processes keep copies there too. Where the file system locks no directory, they may
        // exceed the quota by what each takes at once.
        let directory = File::open(&self.directory)?;
        let _locked = flock(&directory, FlockOperation::LockExclusive);
        let mut others = bytes_beside(&self.own, &self.directory)?;
        while wanted + others > self.bytes && self.give_way()? {
            others = bytes_beside(&self.own, &self.directory)?;
        }
        let room = wanted.min(self.bytes.saturating_sub(others));
        if room > file.metadata()?.len() {
            file.set_len(room)?;
        }
        Ok(room)
    }

    /// Removes the oldest of the other VMs' finished copies, if there is one.
    fn give_way(&self) -> io::Result<bool> {
        let (label, key) = &self.vm;
        let mut others = ours(&self.directory)?;
        others.retain(|copy| !copy.is_of_vm(label, key));
        let Some(oldest) = others.into_iter().min_by_key(|copy| copy.modified) else {
            return Ok(false);
        };
        info!("kept copy {} gives way to a newer one", oldest.path.display());
        // Another process may just have removed it; one that cannot be removed stays.
        let removed = std::fs::remove_file(&oldest.path);
        Ok(removed.map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true))
    }
}
