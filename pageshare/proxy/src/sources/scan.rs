//! Reads sources and hashes their pages, in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pageshare_index::{Catalogue, HashKey, PAGE_SIZE, Span, TableBuilder};

use super::library::Library;
use super::list::list;
use super::reader::Reader;
use super::spec::SourceSpec;
use crate::error::Error;
use crate::threads::start_in;

/// Pages that one thread takes at a time: 1 MiB, at which `/proc/PID/mem` is fastest.
const STRETCH: u32 = 256;

/// A library and what it took to make it.
pub struct Scanned {
    /// The result.
    pub library: Library,
    /// Bytes read, zero pages included, and without what was known from before.
    pub bytes: u64,
    /// Time it took.
    pub seconds: f64,
}

/// Indexes these sources with `threads` threads. A process that ends or a file that cannot be
/// read while this goes on is left out, with a warning.
///
/// # Errors
/// If a source that was named is not there or may not be read.
pub fn scan(sources: &[SourceSpec], key: &HashKey, threads: usize) -> Result<Scanned, Error> {
    scan_after(None, sources, key, threads)
}

/// Like [`scan`], but the first images that have not changed since `before` was made are not read
/// again, and a process that was named has to be the one that it was: its number may be another's.
///
/// # Errors
/// If an image is not there or may not be read.
pub fn rescan(
    before: &Library,
    sources: &[SourceSpec],
    key: &HashKey,
    threads: usize,
) -> Result<Scanned, Error> {
    scan_after(Some(before), sources, key, threads)
}

fn scan_after(
    before: Option<&Library>,
    sources: &[SourceSpec],
    key: &HashKey,
    threads: usize,
) -> Result<Scanned, Error> {
    let begin = Instant::now();
    let (catalogue, stamps) = list(sources, before)?;
    let readers = Reader::open_all(&catalogue);
    let known = before.map_or(0, |before| before.unchanged(&catalogue, &stamps));
    let mut table = hash_all(&stretches(&catalogue, known), &readers, key, threads);
    if let Some(before) = before {
        before.hand_over(known, &mut table);
    }
    let bytes = u64::from(catalogue.pages() - known) * PAGE_SIZE as u64;
    let library = Library::new(catalogue, table.build(), readers, stamps, key.clone());
    Ok(Scanned { library, bytes, seconds: begin.elapsed().as_secs_f64() })
}

/// What is to be read of the pages from number `known` on, with which a span begins.
fn stretches(catalogue: &Catalogue, known: u32) -> Vec<Span> {
    let mut out = Vec::new();
    for span in catalogue.spans().iter().filter(|span| span.first >= known) {
        for from in (0..span.pages).step_by(STRETCH as usize) {
            out.push(Span {
                origin: span.origin,
                address: span.address + u64::from(from) * PAGE_SIZE as u64,
                first: span.first + from,
                pages: STRETCH.min(span.pages - from),
            });
        }
    }
    out
}

fn hash_all(
    stretches: &[Span],
    readers: &[Option<Reader>],
    key: &HashKey,
    threads: usize,
) -> TableBuilder {
    let next = AtomicUsize::new(0);
    let mut all = TableBuilder::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut found = TableBuilder::default();
            let mut buffer = vec![0; STRETCH as usize * PAGE_SIZE];
            while let Some(stretch) = stretches.get(next.fetch_add(1, Ordering::Relaxed)) {
                hash_stretch(stretch, readers, key, &mut buffer, &mut found);
            }
            found
        };
        // This thread works too: there may be no others to be had.
        let workers: Vec<_> = (1..threads).flat_map(|_| start_in(scope, work)).collect();
        all.append(work());
        for worker in workers {
            // A worker has no reason to panic; if one does, its pages are not indexed.
            all.append(worker.join().unwrap_or_default());
        }
    });
    all
}

fn hash_stretch(
    stretch: &Span,
    readers: &[Option<Reader>],
    key: &HashKey,
    buffer: &mut [u8],
    found: &mut TableBuilder,
) {
    let Some(Some(reader)) = readers.get(stretch.origin as usize) else { return };
    let wanted = &mut buffer[..stretch.pages as usize * PAGE_SIZE];
    // What cannot be read (a process that has just ended) is not indexed.
    let Ok(length) = reader.read(stretch.address, wanted) else { return };
    let pages = (stretch.first..).zip(wanted[..length].as_chunks().0);
    let (numbers, contents): (Vec<u32>, Vec<&[u8; PAGE_SIZE]>) =
        pages.filter(|(_, content)| **content != ZERO_PAGE).unzip();
    for (page, hash) in numbers.into_iter().zip(key.hash_pages(&contents)) {
        found.insert(hash, page);
    }
}

/// Zero pages travel as runs and are never asked for.
static ZERO_PAGE: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

#[cfg(test)]
mod tests {
    use pageshare_index::ScopeKey;

    use super::*;

    fn key() -> HashKey {
        ScopeKey([1; 32]).hash_key()
    }

    fn page(byte: u8) -> [u8; PAGE_SIZE] {
        [byte; PAGE_SIZE]
    }

    #[test]
    fn pages_of_an_image_are_found_until_the_image_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.raw");
        let mut content = vec![0; 3 * PAGE_SIZE];
        content[PAGE_SIZE..2 * PAGE_SIZE].copy_from_slice(&page(7));
        std::fs::write(&path, &content).unwrap();
        let scanned = scan(&[SourceSpec::Image(path.clone())], &key(), 2).unwrap();
        assert_eq!(scanned.bytes, 3 * PAGE_SIZE as u64);
        assert_eq!(scanned.library.pages(), 1, "zero pages are not indexed");

        let mut copy = page(0);
        assert!(scanned.library.copy(key().hash(&page(7)), &mut copy));
        assert_eq!(copy, page(7));
        assert!(!scanned.library.copy(key().hash(&page(8)), &mut copy));

        content[PAGE_SIZE] = 9;
        std::fs::write(&path, &content).unwrap();
        assert!(!scanned.library.copy(key().hash(&page(7)), &mut copy), "the copy is hashed again");
    }

    #[test]
    fn pages_of_a_live_process_are_found() {
        let mut memory = vec![0_u8; 8 << 20];
        let at = (4096 - (memory.as_ptr() as usize) % 4096) % 4096;
        memory[at..at + PAGE_SIZE].copy_from_slice(&page(0xa5));
        let scanned = scan(&[SourceSpec::Pid(std::process::id())], &key(), 1).unwrap();
        let mut copy = page(0);
        assert!(scanned.library.copy(key().hash(&page(0xa5)), &mut copy));
        assert_eq!(copy[..], memory[at..at + PAGE_SIZE]);
    }

    #[test]
    fn a_process_that_has_ended_or_whose_number_is_anothers_is_left_out_and_keeps_no_other_out() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::write(&image, page(3)).unwrap();
        let image = SourceSpec::Image(image);
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let sources = [image.clone(), SourceSpec::Pid(process.id())];
        let before = scan(&sources, &key(), 1);
        process.kill().unwrap();
        process.wait().unwrap();
        let after = rescan(&before.unwrap().library, &sources, &key(), 1).unwrap();
        assert_eq!(after.library.pages(), 1);

        // As if it had been another process that had this one's number then.
        let memory = vec![0xa5_u8; 8 << 20];
        let sources = [image, SourceSpec::Pid(std::process::id())];
        let after = rescan(&after.library, &sources, &key(), 1).unwrap();
        assert_eq!(after.library.pages(), 1);
        drop(memory);
    }

    #[test]
    fn what_has_not_changed_is_not_read_again_and_the_index_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // Pages alike in and between the images: of those a table keeps only some.
        let write = |name: &str, fills: &[u8]| {
            std::fs::write(at(name), fills.iter().flat_map(|fill| page(*fill)).collect::<Vec<_>>())
        };
        write("first", &[1, 2, 2, 2, 3]).unwrap();
        write("second", &[2, 3, 3, 4]).unwrap();
        let sources = [SourceSpec::Image(at("first")), SourceSpec::Image(at("second"))];
        let read = |scanned: &Scanned| scanned.bytes / PAGE_SIZE as u64;
        let whole = scan(&sources, &key(), 1).unwrap();
        assert_eq!(read(&whole), 9);

        let same = rescan(&whole.library, &sources, &key(), 1).unwrap();
        assert_eq!(read(&same), 0);
        assert_eq!(same.library.encode(), whole.library.encode());

        write("second", &[5, 2, 3, 4, 4]).unwrap();
        let later = rescan(&same.library, &sources, &key(), 1).unwrap();
        assert_eq!(read(&later), 5, "the first has not changed");
        assert_eq!(later.library.encode(), scan(&sources, &key(), 1).unwrap().library.encode());

        write("first", &[3, 1]).unwrap();
        let last = rescan(&later.library, &sources, &key(), 1).unwrap();
        assert_eq!(read(&last), 7, "what lies behind the first has other numbers");
        assert_eq!(last.library.encode(), scan(&sources, &key(), 1).unwrap().library.encode());
    }

    #[test]
    fn a_library_is_written_to_a_file_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let (image, index) = (directory.path().join("image"), directory.path().join("index"));
        std::fs::write(&image, page(3)).unwrap();
        let scanned = scan(&[SourceSpec::Image(image)], &key(), 1).unwrap();
        std::fs::write(&index, scanned.library.encode()).unwrap();
        let read = Library::load(&index, key()).unwrap();
        assert!(read.copy(key().hash(&page(3)), &mut page(0)));
        let other = ScopeKey([2; 32]).hash_key();
        assert!(Library::load(&index, other).is_err());
    }

    #[test]
    fn a_source_that_is_not_there_is_an_error_that_names_it() {
        let missing = SourceSpec::Image("/nowhere/image".into());
        let error = scan(&[missing], &key(), 1).err().unwrap().to_string();
        assert!(error.contains("/nowhere/image"), "{error}");
    }
}
