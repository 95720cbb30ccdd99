//! `pageshare index`.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tracing::{info, warn};

use super::args::IndexArgs;
use super::proxies::threads;
use crate::error::Error;
use crate::scope::Scope;
use crate::sources::{Scanned, rescan, scan};

pub(super) fn run(arguments: IndexArgs) -> Result<ExitCode, Error> {
    let key = Scope::load(&arguments.scope)?.key.hash_key();
    let (sources, threads) = (&arguments.source, threads(arguments.threads));
    let mut scanned = scan(sources, &key, threads)?;
    replace(&arguments.out, &scanned)?;
    let Some(seconds) = arguments.every else { return Ok(ExitCode::SUCCESS) };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        // An image may be away while it is replaced, a disk full until somebody makes room.
        let again = rescan(&scanned.library, sources, &key, threads);
        match again.and_then(|new| replace(&arguments.out, &new).map(|()| new)) {
            Ok(new) => scanned = new,
            Err(error) => warn!("{error}; the index written before stays"),
        }
    }
}

fn replace(path: &Path, scanned: &Scanned) -> Result<(), Error> {
    let bytes = scanned.library.encode();
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = write_privately(&new, &bytes).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| {
        // A full disk has use for the space; if it stays, the next index takes its place.
        let _ = std::fs::remove_file(&new);
        Error::File { what: "index", path: path.display().to_string(), reason: error.to_string() }
    })?;
    info!(
        "{}: {} pages, {} MiB of them read in {:.2} s, {} KiB",
        path.display(),
        scanned.library.pages(),
        scanned.bytes >> 20,
        scanned.seconds,
        bytes.len() >> 10
    );
    Ok(())
}

/// Writes a file that only its owner can read: whoever has the scope's key can test an index for
/// pages.
fn write_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    const OWNER: u32 = 0o600;
    let mut new = OpenOptions::new();
    let mut file = new.write(true).create(true).truncate(true).mode(OWNER).open(path)?;
    // What a killed process left there may have another mode.
    file.set_permissions(Permissions::from_mode(OWNER))?;
    file.write_all(bytes)
}
