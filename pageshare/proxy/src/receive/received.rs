//! Pages that have arrived, in the memory of the QEMU that they arrived in.
//!
//! Guests hold many pages twice, and write pages that they hold already. What has been asked for
//! once is remembered by its hash and its address; when it is asked for again, the destination
//! QEMU's own memory has it, as long as the guest's later pages have not replaced it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash, PrefixHasher};
use pageshare_stream::RamBlock;
use tracing::{debug, info};

use crate::blocks::BlockNames;
use crate::guest_memory::GuestMemory;
use crate::sources::{Memory, Wanted};

/// Places that are kept in any case, also before the guest's size is known.
const FEW: u64 = 4096;

/// Where pages that arrived have been put. At most 40 bytes a page: 1 % of the guest's memory.
#[derive(Default)]
pub(super) struct Received {
    memory: Option<GuestMemory>,
    /// By the first half of the hash: number of the block, and page in it.
    places: HashMap<u64, (u32, u32), BuildHasherDefault<PrefixHasher>>,
    names: BlockNames,
    /// The guest's blocks, once the main channel has listed them.
    blocks: Vec<RamBlock>,
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
        self.find_blocks();
    }

    /// The guest has these RAM blocks.
    pub(super) fn learn(&mut self, blocks: &[RamBlock]) {
        self.blocks = blocks.to_vec();
        self.find_blocks();
    }

    fn find_blocks(&mut self) {
        let blocks = &self.blocks;
        if let Some(Err(error)) = self.memory.as_mut().map(|memory| memory.learn(blocks)) {
            debug!("the destination QEMU's mappings cannot be read: {error}");
            self.memory = None;
        }
    }

    /// The names of the guest's RAM blocks, by which pages are noted.
    pub(super) fn names(&mut self) -> &mut BlockNames {
        &mut self.names
    }

    /// A page with this hash is on its way to QEMU, at an offset in the block with this number.
    pub(super) fn note(&mut self, hash: PageHash, block: u32, offset: u64) {
        let Ok(page) = u32::try_from(offset / PAGE_SIZE as u64) else { return };
        // A guest that writes new pages for hours: no more places than twice its pages are kept, however
        // large the other host says that it is.
        let listed: u64 = self.blocks.iter().map(|block| block.bytes).sum();
        let bytes = self.memory.as_ref().map_or(0, GuestMemory::bytes).min(listed);
        if self.places.len() as u64 > 2 * bytes / PAGE_SIZE as u64 + FEW {
            self.places.clear();
        }
        self.places.insert(hash.prefix(), (block, page));
    }

    /// Where pages that may have these hashes lie in the destination QEMU's memory, each with its
    /// number; nothing where that may not be read.
    pub(super) fn locate(
        &mut self,
        wanted: &[(usize, PageHash)],
        key: &HashKey,
    ) -> Option<(Arc<Memory>, Vec<Wanted>)> {
        let Self { memory, places, names, .. } = self;
        let memory = memory.as_mut()?;
        let place = |(number, hash): &(usize, PageHash)| {
            let (block, page) = places.get(&hash.prefix())?;
            let offset = u64::from(*page) * PAGE_SIZE as u64;
            let fits = |content: &[u8; PAGE_SIZE]| key.hash(content) == *hash;
            Some((*number, memory.place(names.name(*block)?, offset, fits)?))
        };
        let found = wanted.iter().filter_map(place).collect();
        Some((Arc::clone(memory.memory()), found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_remembered_than_the_destinations_memory_can_hold() {
        let _ram = std::hint::black_box(crate::guest_memory::mapped());
        for pid in [None, Some(std::process::id())] {
            let mut received = Received::default();
            received.arrives_in(pid);
            received.learn(&[RamBlock { name: "ram".into(), bytes: u64::MAX }]);
            let held = received.memory.as_ref().map_or(0, GuestMemory::bytes);
            assert_eq!(held > 0, pid.is_some());
            let most = 2 * held / PAGE_SIZE as u64 + FEW + 1;
            for page in 0..most + 10 {
                let mut hash = [0; 16];
                hash[..8].copy_from_slice(&page.to_le_bytes());
                received.note(PageHash(hash), 0, 0);
                assert!(received.places.len() as u64 <= most);
            }
        }
    }
}
