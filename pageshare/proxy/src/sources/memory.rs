//! Pages of another process's memory.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use pageshare_index::PAGE_SIZE;

/// Pages in one call, at most: each may be a part of its own, of which the kernel takes 1024.
const TOGETHER: usize = 512;

/// Fewer are read by the file: before and after a call it is looked at, too.
const FEW: usize = 8;

/// A page's place among the copies, and its address.
pub type Wanted = (usize, u64);

/// A process's memory.
///
/// Pages that lie anywhere in it are read in one call by the process's number
/// (`process_vm_readv(2)`), which takes little more than half the time of a read of each through
/// `/proc/PID/mem`. That file stays what says whose memory it is: it ends with the process, while
/// the number may be another's by then.
#[derive(Debug)]
pub struct Memory {
    pid: Pid,
    file: File,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// If there is no such process or it may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).map_err(io::Error::other)?;
        Ok(Self { pid: Pid::from_raw(number), file: super::memory(pid)? })
    }

    /// Copies what there is from an address on. Returns how many bytes there were.
    ///
    /// # Errors
    /// If there is nothing, or the process has ended.
    pub(super) fn read(&self, address: u64, copy: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(copy, address)
    }

    /// Copies the page at an address; whether it is there.
    pub fn page(&self, address: u64, copy: &mut [u8; PAGE_SIZE]) -> bool {
        self.file.read_exact_at(copy, address).is_ok()
    }

    /// Copies pages, in the order of their places. Returns the places of those that were there.
    pub fn pages(&self, wanted: &[Wanted], copies: &mut [[u8; PAGE_SIZE]]) -> Vec<usize> {
        let mut copied = Vec::with_capacity(wanted.len());
        let mut rest = wanted;
        while !rest.is_empty() {
            let together = &rest[..rest.len().min(TOGETHER)];
            let there = if together.len() < FEW { 0 } else { self.at_once(together, copies) };
            copied.extend(together[..there].iter().map(|(at, _)| *at));
            rest = &rest[there..];
            // The first that was not: it is not there, or the kernel does not let us (a container's
            // filter of system calls).
            if there < together.len()
                && let Some(((at, address), others)) = rest.split_first()
            {
                if self.page(*address, &mut copies[*at]) {
                    copied.push(*at);
                }
                rest = others;
            }
        }
        copied
    }

    /// Copies the first of these pages, as far as they are there without a gap; how many.
    fn at_once(&self, wanted: &[Wanted], copies: &mut [[u8; PAGE_SIZE]]) -> usize {
        let mut remote: Vec<RemoteIoVec> = Vec::with_capacity(wanted.len());
        let mut local = Vec::with_capacity(wanted.len());
        let (mut copies, mut passed) = (copies.iter_mut(), 0);
        for (at, address) in wanted {
            let base = usize::try_from(*address).unwrap_or(usize::MAX);
            match remote.last_mut() {
                Some(last) if last.base.wrapping_add(last.len) == base => last.len += PAGE_SIZE,
                _ => remote.push(RemoteIoVec { base, len: PAGE_SIZE }),
            }
            local.extend(copies.nth(at - passed).map(|copy| IoSliceMut::new(copy)));
            passed = at + 1;
        }
        // Else the number may be another's by now, to which a guest is arriving (`arrival`): reading it
        // could be its end.
        let lives = |(_, address): &Wanted| matches!(self.file.read_at(&mut [0], *address), Ok(1));
        if !wanted.first().is_some_and(lives) {
            return 0;
        }
        let bytes = process_vm_readv(self.pid, &mut local, &remote).unwrap_or(0);
        // The process still lived behind the copying, so it was not another's memory.
        let read = &wanted[..bytes / PAGE_SIZE];
        if read.last().is_some_and(lives) { read.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which each page begins with its number, and the address of page 0.
    fn numbered(pages: usize) -> (Vec<u8>, u64) {
        let mut memory = vec![0; (pages + 1) * PAGE_SIZE];
        let from = memory.as_ptr().align_offset(PAGE_SIZE);
        for (number, page) in memory[from..].as_chunks_mut::<PAGE_SIZE>().0.iter_mut().enumerate() {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        let address = memory[from..].as_ptr() as u64;
        (memory, address)
    }

    #[test]
    fn pages_that_are_not_there_are_left_out_and_no_other_is() {
        let (_kept, from) = numbered(2000);
        let memory = Memory::open(std::process::id()).unwrap();
        let nowhere = [3, 4, 700, 1200];
        let wanted: Vec<Wanted> = (0..1400)
            .step_by(2)
            .chain([1401, 1402, 1403])
            .map(|at| {
                (at, if nowhere.contains(&(at / 2)) { 0x1000 } else { from + at as u64 * 4096 })
            })
            .collect();
        let mut copies = vec![[0xff; PAGE_SIZE]; 1404];
        assert_eq!(memory.at_once(&wanted[10..400], &mut copies), 390, "those in one call");
        copies.fill([0xff; PAGE_SIZE]);
        let copied = memory.pages(&wanted, &mut copies);
        let there = wanted.iter().filter(|(_, address)| *address >= from).map(|(at, _)| *at);
        assert_eq!(copied, there.collect::<Vec<_>>());
        for (at, copy) in copies.iter().enumerate() {
            let holds = if copied.contains(&at) { at.to_le_bytes() } else { [0xff; 8] };
            assert_eq!(copy[..8], holds, "{at}");
        }
    }

    #[test]
    fn a_process_that_has_anothers_number_is_not_read() {
        let (_kept, from) = numbered(2);
        let mut ended = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let file = super::super::memory(ended.id()).unwrap();
        ended.kill().unwrap();
        ended.wait().unwrap();
        let memory = Memory { pid: Pid::this(), file };
        let mut copies = [[0xff; PAGE_SIZE]; 2];
        assert!(memory.pages(&[(0, from), (1, from + 4096)], &mut copies).is_empty());
        assert!(copies == [[0xff; PAGE_SIZE]; 2], "not even to look at it");
    }

    #[test]
    fn where_no_page_may_be_read_by_the_number_the_file_is_read() {
        let (_kept, from) = numbered(3);
        let file = super::super::memory(std::process::id()).unwrap();
        // Nobody's number.
        let memory = Memory { pid: Pid::from_raw(i32::MAX), file };
        let mut copies = [[0; PAGE_SIZE]; 3];
        assert_eq!(memory.pages(&[(0, from), (2, from + 8192)], &mut copies), [0, 2]);
        assert_eq!(copies[2][..8], 2_usize.to_le_bytes());
    }
}
