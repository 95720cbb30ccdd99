//! Files in directories where others may put something, too: a pipe, or one that is in the making.
//!
//! One in the making lies beside what it is to become, and is locked for as long as it is open, so that
//! what was left by a process that was killed is told from what another one is at.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

/// Opens a file to read. A pipe would else be waited for until somebody writes to it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(at_once).open(path)
}

/// Begins a file that only its owner can read; nothing, where one who clears the directory has removed it
/// before it was locked.
pub(crate) fn begin(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Where the file system locks nothing, nobody can clear.
    let _ = flock(&file, FlockOperation::LockExclusive);
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

/// Removes what nobody writes any more, of the files of a directory that `is_one` says are such.
pub(crate) fn clear(directory: &Path, is_one: impl Fn(&Path) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !is_one(&path) || !path.symlink_metadata().is_ok_and(|it| it.is_file()) {
            continue;
        }
        let Ok(file) = open(&path) else { continue };
        // Locked until it is removed: who has just begun to write it, then knows that it is gone.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

/// Whether this is one of the numbers by which such files are told apart: 16 hexadecimal digits.
pub(crate) fn is_number(text: &OsStr) -> bool {
    let digits = text.as_encoded_bytes();
    digits.len() == 16 && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
