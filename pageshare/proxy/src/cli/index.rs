//! `pageshare index`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tracing::{info, warn};

use super::args::IndexArgs;
use super::proxies::threads;
use crate::error::Error;
use crate::handshake::random;
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
    // A name that nobody can foresee: neither another `index` nor a link leads elsewhere.
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{:016x}.new", u64::from_be_bytes(random()?)));
    let new = PathBuf::from(new);
    let written = write_privately(&new, &bytes).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| {
        // A full disk has use for the space.
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

/// Writes a new file that only its owner can read: whoever has the scope's key can test an index for
/// pages.
fn write_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}
