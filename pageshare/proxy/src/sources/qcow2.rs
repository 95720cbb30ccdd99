//! The compressed clusters of a qcow2 image. The others lie in it as they are, and are found as those
//! of a raw image.
//!
//! The image alone is ever opened, neither a backing file nor a data file that its header may name:
//! whoever could write into a raw image may have made it look like this.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use imago::file::File as Storage;
use imago::qcow2::Qcow2;
use imago::{FormatAccess, Mapping};
use pageshare_index::PAGE_SIZE;

use super::process::Run;
use crate::threads::locked;

const MAGIC: [u8; 4] = *b"QFI\xfb";
const CLUSTER_BITS_AT: u64 = 20;
/// Of which the kernel counts what a file takes.
const BLOCK: u64 = 512;
const PAGE: u64 = PAGE_SIZE as u64;
/// A header may claim a disk of any size, and looking through it takes time by its size.
const LARGEST: u64 = PAGE * u32::MAX as u64;
/// What an image may claim to hold, for each byte that it takes on its own disk. All of its clusters may
/// be one: a few MiB could claim 16 TiB, to be expanded, hashed and indexed.
const EXPANDS: u64 = 16;
/// So much it may claim in any case.
const SMALL: u64 = 16 << 20;
/// What a step over a hole counts as, for it takes time as well.
const STEP: u64 = 512;
/// What is expanded at least for one page, where clusters are smaller.
const LEAST: u64 = 64 << 10;
/// Memory for clusters that have been expanded: the pages of a file lie side by side in a guest's
/// memory as on its disk, and are asked for together.
const EXPANDED: usize = 8 << 20;

/// Whether this file begins as a qcow2 image does.
pub(super) fn is_one(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

/// The disk in an image that has compressed clusters.
pub(super) struct Compressed {
    disk: FormatAccess<Storage>,
    /// What is expanded at a time: a cluster, or some.
    stretch: u64,
    /// Bytes that the disk may hold.
    most: u64,
    expanded: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
}

impl Compressed {
    /// Opens the disk in an image.
    ///
    /// # Errors
    /// If it is none that can be read: damaged, encrypted, compressed with zstd, larger
    /// than an index holds, or of clusters smaller than a page.
    pub(super) fn open(mut image: File) -> io::Result<Self> {
        let mut bits = [0; 4];
        image.read_exact_at(&mut bits, CLUSTER_BITS_AT)?;
        let (metadata, length) = (image.metadata()?, image.seek(SeekFrom::End(0))?);
        // A device has no holes, and no blocks that are counted.
        let holds =
            if metadata.is_file() { metadata.blocks().saturating_mul(BLOCK) } else { length };
        let takes = length.min(holds);
        let most = takes.saturating_mul(EXPANDS).max(SMALL);
        let mut image = Qcow2::<Storage>::open_image(Storage::try_from(image)?, false)?;
        image.set_backing(None);
        image.set_data_file(None);
        let disk = FormatAccess::new(image);
        let cluster = 1_u64.checked_shl(u32::from_be_bytes(bits)).unwrap_or_default();
        if cluster < PAGE {
            return Err(io::Error::other("its clusters are smaller than a page"));
        }
        if disk.size() > LARGEST {
            return Err(io::Error::other("its disk is larger than an index holds, 16 TiB"));
        }
        Ok(Self { disk, stretch: cluster.max(LEAST), most, expanded: Mutex::default() })
    }

    /// Where whole pages are compressed.
    ///
    /// # Errors
    /// If the image contradicts itself, or claims to hold more than one of its size does.
    pub(super) fn runs(&self) -> io::Result<Vec<Run>> {
        let (mut at, mut runs, mut left) = (0, Vec::new(), self.most);
        while at < self.disk.size() {
            let (mapping, length) = self.disk.get_mapping(at, self.disk.size() - at)?;
            if length == 0 {
                break;
            }
            let holds = matches!(mapping, Mapping::Special { .. } | Mapping::Raw { .. });
            left = left.checked_sub(if holds { length } else { STEP }).ok_or_else(|| {
                io::Error::other(format!(
                    "it claims to hold more than {EXPANDS} times what it takes on its disk"
                ))
            })?;
            if matches!(mapping, Mapping::Special { .. }) {
                let first = at.next_multiple_of(PAGE);
                let pages = (at + length).saturating_sub(first) / PAGE;
                if pages > 0 {
                    Run::add(&mut runs, first, u32::try_from(pages).map_err(io::Error::other)?);
                }
            }
            at += length;
        }
        Ok(runs)
    }

    /// Copies what the disk holds from `address` on; zeros beyond its end.
    ///
    /// # Errors
    /// If the image cannot be read or expanded.
    pub(super) fn read(&self, address: u64, copy: &mut [u8]) -> io::Result<()> {
        self.disk.read(copy, address)
    }

    /// Copies one page; keeps what had to be expanded around it.
    ///
    /// # Errors
    /// If the image cannot be read or expanded.
    pub(super) fn page(&self, address: u64, copy: &mut [u8; PAGE_SIZE]) -> io::Result<()> {
        let within = address % self.stretch;
        let stretch = self.stretch_at(address - within)?;
        let within = usize::try_from(within).map_err(io::Error::other)?;
        let page = stretch.get(within..within + PAGE_SIZE);
        copy.copy_from_slice(page.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn stretch_at(&self, begin: u64) -> io::Result<Arc<[u8]>> {
        let kept = || locked(&self.expanded);
        if let Some((_, found)) = kept().iter().find(|(at, _)| *at == begin) {
            return Ok(Arc::clone(found));
        }
        let mut stretch = vec![0; usize::try_from(self.stretch).map_err(io::Error::other)?];
        self.read(begin, &mut stretch)?;
        let stretch = Arc::<[u8]>::from(stretch);
        let mut kept = kept();
        if kept.len() * stretch.len() >= EXPANDED {
            kept.pop_front();
        }
        kept.push_back((begin, Arc::clone(&stretch)));
        Ok(stretch)
    }
}
