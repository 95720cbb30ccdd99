//! The paper's candidates: pages of the source VM that KSM has merged, as the kernel reports them
//! through `/proc/PID/pagemap` and `/proc/kpageflags`. What is shared here is likely to be there.
//!
//! Only root sees them. The flags are a hint: a page merged or split a moment later is asked for,
//! or not, and arrives either way.

use std::fs::File;
use std::os::unix::fs::FileExt;

use pageshare_stream::{PAGE_SIZE, RamBlock};
use tracing::warn;

use crate::error::Error;
use crate::guest_memory::GuestMemory;

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// `KPF_KSM` of the kernel's `include/uapi/linux/kernel-page-flags.h`.
const MERGED: u64 = 1 << 21;

/// Looks at the memory of one QEMU process.
pub struct Ksm {
    memory: GuestMemory,
    pagemap: Ahead,
    flags: File,
}

impl Ksm {
    /// Opens what the kernel shows of process `pid`.
    ///
    /// # Errors
    /// If there is no such process, or we are not root.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let unusable = |path: &str, error: &std::io::Error| Error::File {
            what: "KSM's verdict",
            path: path.to_owned(),
            reason: format!("{error} (candidates by KSM take root)"),
        };
        let open = |path: String| File::open(&path).map_err(|error| unusable(&path, &error));
        Ok(Self {
            memory: GuestMemory::open(pid)
                .map_err(|error| unusable(&format!("/proc/{pid}/mem"), &error))?,
            pagemap: Ahead::new(open(format!("/proc/{pid}/pagemap"))?),
            flags: open("/proc/kpageflags".into())?,
        })
    }

    /// The guest has these RAM blocks.
    pub fn learn(&mut self, blocks: &[RamBlock]) {
        if let Err(error) = self.memory.learn(blocks) {
            warn!("the source QEMU's memory is not found: {error}");
        }
    }

    /// Whether KSM has merged this page of the guest. As long as it is not certain where the block
    /// lies, the answer is no, and the content tells more.
    #[must_use]
    pub fn merged(&mut self, block: &[u8], offset: u64, content: &[u8]) -> bool {
        let address = self.memory.place(block, offset, |there| there == content);
        address.is_some_and(|address| {
            let entry = self.pagemap.word(address / PAGE_SIZE as u64);
            entry & PRESENT != 0 && word(&self.flags, entry & FRAME) & MERGED != 0
        })
    }
}

/// Words of a file of the kernel's, some of them read ahead: pages are looked at in the order of
/// their addresses. Each is used once; by the next time it may have changed.
struct Ahead {
    file: File,
    words: Vec<u64>,
    /// The number of the first of `words`, and of the next that has not been used.
    first: u64,
    next: u64,
}

impl Ahead {
    const WORDS: usize = 64;

    fn new(file: File) -> Self {
        Self { file, words: Vec::new(), first: 0, next: 0 }
    }

    /// The `number`th word; zero where there is none.
    fn word(&mut self, number: u64) -> u64 {
        if number < self.next || number - self.first >= self.words.len() as u64 {
            let mut bytes = [0; 8 * Self::WORDS];
            let length = self.file.read_at(&mut bytes, number.wrapping_mul(8)).unwrap_or(0);
            let words = bytes[..length].as_chunks().0.iter();
            self.words = words.map(|word| u64::from_ne_bytes(*word)).collect();
            self.first = number;
        }
        self.next = number + 1;
        let index = usize::try_from(number - self.first).ok();
        index.and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }
}

/// The `number`th word of a file of the kernel's; zero where there is none.
fn word(file: &File, number: u64) -> u64 {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, number.wrapping_mul(8)) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_ahead_are_those_of_the_file_and_are_not_used_twice() {
        let file = tempfile::tempfile().unwrap();
        let write = |add: u64| {
            let bytes: Vec<u8> = (0_u64..200).flat_map(|i| (i + add).to_ne_bytes()).collect();
            file.write_all_at(&bytes, 0).unwrap();
        };
        write(0);
        let mut ahead = Ahead::new(file.try_clone().unwrap());
        for number in (0..200).chain([3, 150, 151, 7]) {
            assert_eq!(ahead.word(number), number);
        }
        assert_eq!(ahead.word(200), 0, "past the end");
        assert_eq!(ahead.word(20), 20);
        write(1000);
        assert_eq!(ahead.word(20), 1020, "looked at again");
    }
}
