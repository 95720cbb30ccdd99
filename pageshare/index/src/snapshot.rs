//! A table and its catalogue as bytes. The format is `docs/formats/pageshare-index.md`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::catalogue::{Catalogue, Origin};
use crate::hash::HashKey;
use crate::table::Table;

/// The first bytes of an index file.
pub const MAGIC: [u8; 4] = *b"PGSI";
/// What this program writes, and all that it reads. Version 1 had no compressed clusters.
pub const VERSION: u16 = 2;

const PROCESS: u8 = 1;
const FILE: u8 = 2;
const COMPRESSED: u8 = 3;
const CHECKSUM: usize = 32;

/// Why a file is not an index that can be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SnapshotError {
    /// It begins otherwise.
    #[error("it is not an index of pageshare")]
    Magic,
    /// Another version wrote it.
    #[error("it has version {0}, and this program reads version {VERSION}; build it again")]
    Version(u16),
    /// It was made with another scope's key.
    #[error("it was made with another scope's key")]
    Key,
    /// Its checksum does not match its content.
    #[error("it is damaged (checksum); build it again")]
    Damaged,
    /// Its checksum is right and its content is not.
    #[error("its {0} contradicts itself; build it again")]
    Malformed(&'static str),
}

/// Writes both to bytes.
#[must_use]
pub fn encode(key: &HashKey, catalogue: &Catalogue, table: &Table) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + table.len() * 12);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 2]);
    out.extend(key.fingerprint());
    let counts = [catalogue.origins().len(), catalogue.spans().len(), table.len()];
    for count in counts {
        out.extend((count as u64).to_le_bytes());
    }
    for origin in catalogue.origins() {
        match origin {
            Origin::Process { pid, started } => {
                out.push(PROCESS);
                out.extend(pid.to_le_bytes());
                out.extend(started.to_le_bytes());
            }
            Origin::File { path } => put_path(&mut out, FILE, path),
            Origin::Compressed { path } => put_path(&mut out, COMPRESSED, path),
        }
    }
    for span in catalogue.spans() {
        out.extend(span.origin.to_le_bytes());
        out.extend(span.pages.to_le_bytes());
        out.extend(span.address.to_le_bytes());
    }
    for (prefix, page) in table.entries() {
        out.extend(prefix.to_le_bytes());
        out.extend(page.to_le_bytes());
    }
    seal(&mut out);
    out
}

fn put_path(out: &mut Vec<u8>, kind: u8, path: &Path) {
    let path = path.as_os_str().as_bytes();
    out.push(kind);
    out.extend((path.len() as u64).to_le_bytes());
    out.extend(path);
}

/// Appends the checksum of what is there.
pub fn seal(content: &mut Vec<u8>) {
    let checksum = blake3::hash(content);
    content.extend(checksum.as_bytes());
}

/// Reads both back.
///
/// # Errors
/// Whenever the bytes are not exactly what [`encode`] writes with this key.
pub fn decode(key: &HashKey, bytes: &[u8]) -> Result<(Catalogue, Table), SnapshotError> {
    let mut fields = Fields(bytes);
    if fields.array::<4>("header")? != MAGIC {
        return Err(SnapshotError::Magic);
    }
    let version = u16::from_le_bytes(fields.array("header")?);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(SnapshotError::Damaged)?;
    if blake3::hash(content).as_bytes() != checksum {
        return Err(SnapshotError::Damaged);
    }
    if fields.array::<2>("header")? != [0; 2] {
        return Err(SnapshotError::Malformed("header"));
    }
    if fields.array::<16>("header")? != key.fingerprint() {
        return Err(SnapshotError::Key);
    }
    let (origins, spans, entries) =
        (fields.u64("header")?, fields.u64("header")?, fields.u64("header")?);

    let mut catalogue = Catalogue::default();
    for _ in 0..origins {
        let origin = match fields.array::<1>("origins")? {
            [PROCESS] => {
                Origin::Process { pid: fields.u32("origins")?, started: fields.u64("origins")? }
            }
            [FILE] => Origin::File { path: fields.path("origins")? },
            [COMPRESSED] => Origin::Compressed { path: fields.path("origins")? },
            _ => return Err(SnapshotError::Malformed("list of origins")),
        };
        catalogue.add_origin(origin);
    }
    for _ in 0..spans {
        let (origin, pages) = (fields.u32("spans")?, fields.u32("spans")?);
        let address = fields.u64("spans")?;
        catalogue
            .add_span(origin, address, pages)
            .ok_or(SnapshotError::Malformed("list of spans"))?;
    }
    let (mut prefixes, mut pages) = (Vec::new(), Vec::new());
    for _ in 0..entries {
        let (prefix, page) = (fields.u64("table")?, fields.u32("table")?);
        if prefixes.last().is_some_and(|last| *last > prefix) || page >= catalogue.pages() {
            return Err(SnapshotError::Malformed("table"));
        }
        prefixes.push(prefix);
        pages.push(page);
    }
    if fields.0.len() != CHECKSUM {
        return Err(SnapshotError::Malformed("length"));
    }
    Ok((catalogue, Table::from_sorted(prefixes, pages)))
}

/// What is still to be read, with the name of the part for the error.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64, part: &'static str) -> Result<&'a [u8], SnapshotError> {
        let malformed = SnapshotError::Malformed(part);
        let Ok(length) = usize::try_from(length) else { return Err(malformed) };
        let (taken, rest) = self.0.split_at_checked(length).ok_or(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], SnapshotError> {
        self.take(N as u64, part)?.try_into().map_err(|_| SnapshotError::Malformed(part))
    }

    fn u32(&mut self, part: &'static str) -> Result<u32, SnapshotError> {
        self.array(part).map(u32::from_le_bytes)
    }

    fn u64(&mut self, part: &'static str) -> Result<u64, SnapshotError> {
        self.array(part).map(u64::from_le_bytes)
    }

    fn path(&mut self, part: &'static str) -> Result<PathBuf, SnapshotError> {
        let length = self.u64(part)?;
        Ok(PathBuf::from(OsString::from_vec(self.take(length, part)?.to_vec())))
    }
}
