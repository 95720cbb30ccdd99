//! Whether the guest of a process may still be arriving: then nobody but its own receiver reads its
//! memory.
//!
//! In postcopy QEMU discards pages (`MADV_DONTNEED`), and only later has missing ones faulted in
//! (userfaultfd, as it is told LISTEN). In between, whoever reads a missing page has the kernel put a
//! page of zeros there: it never faults, the guest reads zeros, and QEMU cannot place what arrives
//! (`EEXIST`). From then on, whoever reads a missing page by `process_vm_readv(2)` waits until it has
//! arrived, which it never does while the postcopy is paused.
//!
//! Once the answer is no it stays no, so that nothing happens between this look and a read. A QEMU
//! that was started without `-incoming` never receives. Where a virtual processor has run, LISTEN is
//! past: nothing is discarded any more, and the userfaultfd is open until the postcopy ends. So the
//! processors are looked at first.

use std::fmt;
use std::fs::{read_dir, read_link, read_to_string};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::command_line;

/// While it awaits a guest a virtual processor sleeps, but for what starting and resetting it takes:
/// in clock ticks (100 ms).
const RAN: u64 = 10;

/// Why a guest may be arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was to come by migration, and none of its processors has run.
    HasNotRun,
    /// It was to come by migration, and the threads do not tell which are its processors.
    Unnamed,
    /// Somebody serves faults of its memory.
    Postcopy,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HasNotRun => "its guest may be arriving: it has not run here yet",
            Self::Unnamed => {
                "its guest may be arriving: QEMU was started with -incoming, and its threads do not \
                 tell whether the guest has run; start it with -name NAME,debug-threads=on"
            }
            Self::Postcopy => "its guest may be arriving by postcopy: a userfaultfd is open",
        })
    }
}

/// Why the guest of process `pid` may be arriving; nothing once it cannot be any more.
///
/// # Errors
/// If there is no such process or it may not be looked at.
pub fn arrival(pid: u32) -> io::Result<Option<Arrival>> {
    if command_line::may_receive(pid) {
        match has_run(&threads(pid)?) {
            Some(true) => {}
            Some(false) => return Ok(Some(Arrival::HasNotRun)),
            None => return Ok(Some(Arrival::Unnamed)),
        }
    }
    Ok(serves_faults(pid)?.then_some(Arrival::Postcopy))
}

/// The `stat` of each thread.
fn threads(pid: u32) -> io::Result<Vec<String>> {
    each(&format!("/proc/{pid}/task"), |thread| read_to_string(thread.join("stat")))
}

fn serves_faults(pid: u32) -> io::Result<bool> {
    let open = each(&format!("/proc/{pid}/fd"), |file| read_link(file))?;
    Ok(open.iter().any(|file| file.as_os_str() == "anon_inode:[userfaultfd]"))
}

/// What `read` makes of the entries of a folder of `/proc`, without those that have gone meanwhile.
fn each<T>(folder: &str, read: impl Fn(&Path) -> io::Result<T>) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for entry in read_dir(folder)? {
        let path: PathBuf = entry?.path();
        match read(&path) {
            Ok(it) => found.push(it),
            // A thread that ends while its file is read is "no such process".
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::SRCH) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(found)
}

/// Whether one of the virtual processors among these threads has run; nothing where none is one.
fn has_run(stats: &[String]) -> Option<bool> {
    stats
        .iter()
        .filter_map(|stat| processor_ticks(stat))
        .map(|ticks| ticks >= RAN)
        .reduce(|a, b| a | b)
}

/// The clock ticks that a thread has run, if it is a virtual processor by its name.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    if !name.starts_with("CPU ") && !name.starts_with("ALL CPUs") {
        return None;
    }
    // Behind the name: utime and stime are the 14th and 15th of all fields.
    let mut times = fields.split_whitespace().skip(11).map_while(|time| time.parse::<u64>().ok());
    times.next()?.checked_add(times.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, utime: u64, stime: u64) -> String {
        format!("4711 ({name}) S 1 4711 4711 0 -1 4194368 77 0 9 0 {utime} {stime} 55 66 20 0 3 0")
    }

    #[test]
    fn a_virtual_processor_is_known_by_its_threads_name_and_its_time_is_that_behind_it() {
        for name in ["CPU 0/KVM", "CPU 12/TCG", "ALL CPUs/TCG", "CPU 1) R 9 (x/K"] {
            assert_eq!(processor_ticks(&stat(name, 3, 4)), Some(7), "{name}");
        }
        for name in ["qemu-system-x86", "IO mon_iothread", "vCPU 0", "CPU", "worker"] {
            assert_eq!(processor_ticks(&stat(name, 300, 400)), None, "{name}");
        }
        for broken in ["", "1 (CPU 0/KVM", "1 (CPU 0/KVM) S 1 2 3", "1 CPU 0/KVM) S"] {
            assert_eq!(processor_ticks(broken), None, "{broken}");
        }
    }

    #[test]
    fn one_processor_that_has_run_is_enough_and_other_threads_do_not_count() {
        let (busy, idle) = (stat("CPU 1/KVM", 4, 6), stat("CPU 0/KVM", 9, 0));
        let other = stat("qemu-system-x86", 1000, 1000);
        assert_eq!(has_run(&[other.clone(), idle.clone(), busy]), Some(true));
        assert_eq!(has_run(&[other.clone(), idle.clone(), idle]), Some(false));
        assert_eq!(has_run(&[other]), None);
    }

    #[test]
    fn a_process_that_is_not_qemus_is_not_arriving_and_one_that_is_not_there_is_an_error() {
        assert_eq!(arrival(std::process::id()).unwrap(), None);
        assert!(arrival(u32::MAX).is_err());
    }
}
