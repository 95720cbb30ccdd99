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

/// QEMU aligns a guest's memory to this.
const ALIGNMENT: u64 = 2 << 20;
/// Places at which a block may lie that are looked at.
const MOST_PLACES: usize = 4096;

/// Looks at the memory of one QEMU process.
pub struct Ksm {
    pid: u32,
    memory: File,
    pagemap: File,
    flags: File,
}

/// Where a guest's RAM blocks lie in their process: places that are possible by size, of which
/// those are struck out where a page of the stream does not stand.
#[derive(Debug, Default)]
pub struct Layout(HashMap<Vec<u8>, Vec<u64>>);

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
        Ok(Self {
            pid,
            memory: open(format!("/proc/{pid}/mem"))?,
            pagemap: open(format!("/proc/{pid}/pagemap"))?,
            flags: open("/proc/kpageflags".into())?,
        })
    }

    /// The places where the blocks may lie.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn layout(&self, blocks: &[RamBlock]) -> io::Result<Layout> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let mappings: Vec<(u64, u64)> = maps.lines().filter_map(data).collect();
        let places = blocks.iter().map(|block| {
            let places = mappings.iter().flat_map(|(from, to)| places(*from, *to, block.bytes));
            (block.name.clone().into_bytes(), places.take(MOST_PLACES).collect())
        });
        Ok(Layout(places.collect()))
    }

    /// Whether KSM has merged this page of the guest. As long as it is not certain where the block
    /// lies, the answer is no, and the content tells more.
    #[must_use]
    pub fn merged(&self, layout: &mut Layout, block: &[u8], offset: u64, content: &[u8]) -> bool {
        let Some(places) = layout.0.get_mut(block) else { return false };
        if places.len() > 1 {
            let fits: Vec<u64> =
                places.iter().copied().filter(|at| self.holds(at + offset, content)).collect();
            // A page that fits nowhere has been written to since.
            if !fits.is_empty() {
                *places = fits;
            }
        }
        let [place] = places[..] else { return false };
        let entry = word(&self.pagemap, (place + offset) / PAGE_SIZE as u64);
        entry & PRESENT != 0 && word(&self.flags, entry & FRAME) & MERGED != 0
    }

    fn holds(&self, address: u64, content: &[u8]) -> bool {
        let mut there = [0; PAGE_SIZE];
        self.memory.read_exact_at(&mut there, address).is_ok() && there == content
    }
}

/// Where `bytes` may lie between these bounds.
fn places(from: u64, to: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let aligned = from.next_multiple_of(ALIGNMENT);
    let first = (from != aligned).then_some(from);
    let steps = (aligned..to).step_by(usize::try_from(ALIGNMENT).unwrap_or(usize::MAX));
    first.into_iter().chain(steps).take_while(move |at| to - at >= bytes)
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
