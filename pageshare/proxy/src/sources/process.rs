//! Another process's memory, through `/proc/PID`: which pages are there, and what they hold.
//!
//! Only pages that the process has touched are ever read, as its page tables (`pagemap`) say:
//! reading an untouched page of a shared mapping would allocate it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Smaller mappings hold no guest's memory worth indexing.
const SMALLEST_MAPPING: u64 = 2 << 20;
const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Address of the first.
    pub address: u64,
    /// How many.
    pub pages: u32,
}

impl Run {
    /// Adds pages at the end; the last run grows where they follow it.
    pub(super) fn add(runs: &mut Vec<Run>, address: u64, pages: u32) {
        if let Some(last) = runs.last_mut()
            && last.address + u64::from(last.pages) * PAGE == address
            && let Some(sum) = last.pages.checked_add(pages)
        {
            last.pages = sum;
        } else {
            runs.push(Run { address, pages });
        }
    }
}

/// When a process started, in clock ticks since boot; together with its id, its identity.
pub(super) fn started(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    let started = fields.and_then(|mut fields| fields.nth(19)?.parse().ok());
    started.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has another form")))
}

/// Opens the memory of a process.
///
/// # Errors
/// If there is no such process or it may not be read.
pub fn memory(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}

/// All processes whose program is a QEMU system emulator; where that may not be looked at, as it seems:
/// whoever reads them finds out, and can say so.
pub(super) fn qemus() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if is_qemu(pid) || calls_itself_qemu(pid) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether process `pid` is a QEMU system emulator. One that is gone or not ours is none.
#[must_use]
pub fn is_qemu(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| names_qemu(&program))
}

/// Whether a process whose program may not be looked at has a QEMU's name.
fn calls_itself_qemu(pid: u32) -> bool {
    let closed = std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    closed
        && std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| names_qemu(Path::new(name.trim_end())))
}

fn names_qemu(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("qemu-system-") || name.starts_with("qemu-kvm")
}

/// Touched pages of the large mappings for data: anonymous memory and files.
///
/// # Errors
/// If there is no such process or it may not be read.
pub fn touched(pid: u32) -> io::Result<Vec<Run>> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut runs = Vec::new();
    for (from, to) in guest_mappings(pid)? {
        touched_in(&pagemap, from, to, &mut runs)?;
    }
    Ok(runs)
}

/// Bounds of the mappings that may be a guest's memory: large, writable, anonymous or of a file that is
/// no device.
///
/// # Errors
/// If there is no such process or it may not be read.
pub fn guest_mappings(pid: u32) -> io::Result<Vec<(u64, u64)>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps.lines().filter_map(guest_memory).collect())
}

/// The bounds of a line of `maps`, if it may be a guest's memory.
fn guest_memory(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    let writable = fields.next()?.starts_with("rw-");
    let path = fields.nth(3).unwrap_or_default();
    // QEMU maps a guest's memory from files in any folder, but from no device.
    let memory = match path.strip_prefix("/dev/") {
        Some(name) => ["zero", "shm/", "hugepages"].iter().any(|memory| name.starts_with(memory)),
        None => path.is_empty() || path.starts_with('/'),
    };
    (writable && memory && to - from >= SMALLEST_MAPPING).then_some((from, to))
}

fn touched_in(pagemap: &File, from: u64, to: u64, runs: &mut Vec<Run>) -> io::Result<()> {
    const ENTRIES: usize = 8192;
    let mut buffer = vec![0_u8; ENTRIES * 8];
    let mut address = from;
    while address < to {
        let entries = usize::try_from((to - address) / PAGE).unwrap_or(ENTRIES).min(ENTRIES);
        let length = pagemap.read_at(&mut buffer[..entries * 8], address / PAGE * 8)?;
        if length == 0 {
            break;
        }
        for entry in buffer[..length].chunks_exact(8) {
            let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
            if entry & PRESENT != 0 {
                Run::add(runs, address, 1);
            }
            address += PAGE;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_of_this_process_are_found_and_untouched_ones_are_not() {
        let mut memory = vec![0_u8; 64 << 20];
        memory[1 << 20] = 1;
        let at = &raw const memory[1 << 20] as u64;
        let pages = |at: u64| {
            let runs = touched(std::process::id()).unwrap();
            runs.iter()
                .any(|run| (run.address..run.address + u64::from(run.pages) * PAGE).contains(&at))
        };
        assert!(pages(at));
        assert!(!pages(at + (40 << 20)));
    }

    #[test]
    fn a_guests_memory_is_told_from_devices_wherever_its_file_lies() {
        let of =
            |path: &str| guest_memory(&format!("7f0000000000-7f0008000000 rw-s 0 fe:00 9 {path}"));
        for path in [
            "",
            "/memfd:pc.ram (deleted)",
            "/dev/zero (deleted)",
            "/dev/shm/qemu_back_mem.m.Xs3ng1 (deleted)",
            "/dev/hugepages/libvirt/qemu/1-web1/qemu_back_mem.m.Xs3ng1 (deleted)",
            "/dev/hugepages1G/pc.ram",
            "/mnt/huge/pc.ram",
            "/var/lib/libvirt/qemu/ram/1-web1/pc.ram",
        ] {
            assert_eq!(of(path), Some((0x7f00_0000_0000, 0x7f00_0800_0000)), "{path}");
        }
        for path in ["[heap]", "anon_inode:[vfio-device]", "/dev/vfio/12", "/dev/dri/renderD128"] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(started(u32::MAX).is_err());
        assert!(touched(u32::MAX).is_err());
    }
}
