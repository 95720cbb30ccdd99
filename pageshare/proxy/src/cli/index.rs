//! `pageshare index`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pageshare_index::snapshot::MAGIC;
use tracing::{debug, info, warn};

use super::args::IndexArgs;
use super::proxies::threads;
use crate::error::Error;
use crate::files::{self, is_number};
use crate::handshake::random;
use crate::scope::Scope;
use crate::sources::{Scanned, rescan, scan};

/// What the name of an index in the making ends with.
const NEW: &str = "new";

pub(super) fn run(arguments: IndexArgs) -> Result<ExitCode, Error> {
    let key = Scope::load(&arguments.scope)?.key.hash_key();
    let (sources, threads) = (&arguments.source, threads(arguments.threads));
    check(&arguments.out)?;
    if let Err(error) = clear(&arguments.out) {
        debug!("what others may have left beside {} stays: {error}", arguments.out.display());
    }
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

/// Only an index is replaced: a device, a pipe or a socket stays what it is, and so does an image or the
/// scope's file.
fn check(out: &Path) -> Result<(), Error> {
    let Ok(kind) = out.symlink_metadata().map(|there| there.file_type()) else { return Ok(()) };
    if !kind.is_file() && !kind.is_dir() && !kind.is_symlink() {
        return Err(unwritten(out)(io::Error::other("what is there is no file, and stays")));
    }
    let mut head = Vec::new();
    let mut read = || files::open(out)?.take(4).read_to_end(&mut head);
    if kind.is_file() && read().is_ok_and(|read| read > 0) && head != MAGIC {
        return Err(unwritten(out)(io::Error::other("what is there is no index, and stays")));
    }
    Ok(())
}

fn unwritten(out: &Path) -> impl Fn(io::Error) -> Error {
    let path = out.display().to_string();
    move |error| Error::File { what: "index", path: path.clone(), reason: error.to_string() }
}

/// Removes what was left beside `out` by those that were killed.
fn clear(out: &Path) -> io::Result<()> {
    let directory = out.parent().filter(|it| !it.as_os_str().is_empty());
    let is_one = |path: &Path| {
        let before = path.file_stem().map(Path::new);
        path.extension().is_some_and(|it| it == NEW)
            && before.is_some_and(|it| it.file_stem() == out.file_name())
            && before.and_then(Path::extension).is_some_and(is_number)
    };
    files::clear(directory.unwrap_or(Path::new(".")), is_one)
}

/// A new file beside `out`, that only its owner can read: whoever has the scope's key can test an index
/// for pages. Nobody can foresee its name: neither another `index` nor a link leads elsewhere.
fn begin(out: &Path) -> Result<(PathBuf, File), Error> {
    loop {
        let mut new = out.as_os_str().to_owned();
        new.push(format!(".{:016x}.{NEW}", u64::from_be_bytes(random()?)));
        let new = PathBuf::from(new);
        if let Some(file) = files::begin(&new).map_err(unwritten(out))? {
            return Ok((new, file));
        }
    }
}

fn replace(out: &Path, scanned: &Scanned) -> Result<(), Error> {
    let bytes = scanned.library.encode();
    let (new, mut file) = begin(out)?;
    let written = file.write_all(&bytes).and_then(|()| std::fs::rename(&new, out));
    written.map_err(|error| {
        // A full disk has use for the space.
        let _ = std::fs::remove_file(&new);
        unwritten(out)(error)
    })?;
    info!(
        "{}: {} pages, {} MiB of them read in {:.2} s, {} KiB",
        out.display(),
        scanned.library.pages(),
        scanned.bytes >> 20,
        scanned.seconds,
        bytes.len() >> 10
    );
    Ok(())
}
