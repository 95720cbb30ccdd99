//! Pages that have arrived, in the memory of the QEMU that they arrived in.
//!
//! Guests hold many pages twice, and write pages that they hold already. What has been asked for
//! once is remembered by its hash and its address; when it is asked for again, the destination
//! QEMU's own memory has it, as long as the guest's later pages have not replaced it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use pageshare_stream::RamBlock;
use tracing::{debug, info};

use crate::guest_memory::GuestMemory;

/// Where pages that arrived have been put. At most 40 bytes a page: 1 % of the guest's memory.
#[derive(Default)]
pub(super) struct Received {
    memory: Option<GuestMemory>,
    /// By the first half of the hash: number of the block, and page in it.
    places: HashMap<u64, (u32, u32), BuildHasherDefault<Prefix>>,
    blocks: Vec<Vec<u8>>,
    /// Pages of the guest: no more places than twice that are kept.
    pages: usize,
}

/// A keyed hash is as good as any other.
#[derive(Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, prefix: u64) {
        self.0 = prefix;
    }
}

impl Received {
    /// The guest arrives in this process.
    pub(super) fn arrives_in(&mut self, pid: Option<u32>) {
        let Some(pid) = pid.filter(|_| self.memory.is_none()) else { return };
        match GuestMemory::open(pid) {
            Ok(memory) => self.memory = Some(memory),
            Err(error) => info!(
                "the memory of the destination QEMU (process {pid}) cannot be read: {error}; \
                 pages that arrive twice are found only among the latest"
            ),
        }
    }

    /// The guest has these RAM blocks.
    pub(super) fn learn(&mut self, blocks: &[RamBlock]) {
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        self.pages = usize::try_from(bytes / PAGE_SIZE as u64).unwrap_or(usize::MAX);
        if let Some(Err(error)) = self.memory.as_mut().map(|memory| memory.learn(blocks)) {
            debug!("the destination QEMU's mappings cannot be read: {error}");
            self.memory = None;
        }
    }

    /// A page with this hash is on its way to QEMU.
    pub(super) fn note(&mut self, hash: PageHash, block: &[u8], offset: u64) {
        if self.memory.is_none() {
            return;
        }
        let known = self.blocks.iter().position(|known| known == block);
        let block = known.unwrap_or_else(|| {
            self.blocks.push(block.to_vec());
            self.blocks.len() - 1
        });
        let page = u32::try_from(offset / PAGE_SIZE as u64);
        let (Ok(block), Ok(page)) = (u32::try_from(block), page) else { return };
        // A guest that writes new pages for hours.
        if self.places.len() >= self.pages.saturating_mul(2) {
            self.places.clear();
        }
        self.places.insert(hash.prefix(), (block, page));
    }

    /// Copies a page that may have this hash. Whether it has is for the caller to check.
    pub(super) fn read(
        &mut self,
        hash: PageHash,
        key: &HashKey,
        copy: &mut [u8; PAGE_SIZE],
    ) -> bool {
        let Some((block, page)) = self.places.get(&hash.prefix()) else { return false };
        let (Some(memory), Some(name)) = (&mut self.memory, self.blocks.get(*block as usize))
        else {
            return false;
        };
        let offset = u64::from(*page) * PAGE_SIZE as u64;
        let place = memory.place(name, offset, |content| key.hash(content) == hash);
        place.is_some_and(|address| memory.read(address, copy))
    }
}
