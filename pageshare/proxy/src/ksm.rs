//! The paper's candidates: pages of the source VM that KSM has merged, as the kernel reports them
//! through `/proc/PID/pagemap` and `/proc/kpageflags`. What is shared here is likely to be there.
//!
//! Only root sees them. The flags are a hint: a page merged or split a moment later is asked for,
//! or not, and arrives either way.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pageshare_stream::{PAGE_SIZE, RamBlock};

use crate::error::Error;

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// `KPF_KSM` of the kernel's `include/uapi/linux/kernel-page-flags.h`.
const MERGED: u64 = 1 << 21;

/// Looks at the memory of one QEMU process.
pub struct Ksm {
    pid: u32,
    pagemap: File,
    flags: File,
}

/// Where a guest's RAM blocks lie in their process.
#[derive(Debug, Default)]
pub struct Layout(HashMap<Vec<u8>, u64>);

impl Ksm {
    /// Opens what the kernel shows of process `pid`.
    ///
    /// # Errors
    /// If there is no such process, or we are not root.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let open = |path: String| {
            File::open(&path).map_err(|error| Error::File {
                what: "KSM's verdict",
                path,
                reason: format!("{error} (candidates by KSM take root)"),
            })
        };
        let pagemap = open(format!("/proc/{pid}/pagemap"))?;
        Ok(Self { pid, pagemap, flags: open("/proc/kpageflags".into())? })
    }

    /// Finds the blocks by their sizes: QEMU maps each by itself. Blocks of one size, or mapped
    /// otherwise, are not found, and their pages are no candidates.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn layout(&self, blocks: &[RamBlock]) -> io::Result<Layout> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let mappings: Vec<(u64, u64)> = maps.lines().filter_map(data).collect();
        let alone =
            |block: &&RamBlock| blocks.iter().filter(|it| it.bytes == block.bytes).count() == 1;
        let found = blocks.iter().filter(alone).filter_map(|block| {
            let mut fitting = mappings.iter().filter(|(from, to)| to - from == block.bytes);
            let (from, _) = fitting.next()?;
            fitting.next().is_none().then(|| (block.name.clone().into_bytes(), *from))
        });
        Ok(Layout(found.collect()))
    }

    /// Whether KSM has merged this page of the guest.
    #[must_use]
    pub fn merged(&self, layout: &Layout, block: &[u8], offset: u64) -> bool {
        let Some(base) = layout.0.get(block) else { return false };
        let entry = word(&self.pagemap, (base + offset) / PAGE_SIZE as u64);
        entry & PRESENT != 0 && word(&self.flags, entry & FRAME) & MERGED != 0
    }
}

/// The bounds of a line of `maps`, if it is data without a file.
fn data(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let plain = fields.next()?.starts_with("rw-") && fields.nth(3).is_none();
    let bounds = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    plain.then_some(bounds)
}

/// The `number`th word of a file of the kernel's; zero where there is none.
fn word(file: &File, number: u64) -> u64 {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, number.wrapping_mul(8)) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}
