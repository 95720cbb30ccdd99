//! Where a guest's RAM lies in its QEMU process.
//!
//! QEMU does not say; the size of a RAM block leaves some places among the process's mappings, and
//! a page that is known to be in the block strikes out those where it does not stand.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use pageshare_stream::{PAGE_SIZE, RamBlock};

use crate::sources::{Memory, guest_mappings};

/// QEMU aligns a guest's memory to this.
const ALIGNMENT: u64 = 2 << 20;
/// Places at which a block may lie that are looked at, and those of all blocks: their list comes from
/// the other host. QEMU lists the largest first.
const MOST_PLACES: usize = 4096;
const MOST_PLACES_IN_ALL: usize = 16 * MOST_PLACES;
/// So many pages may be compared with all places in vain: the block is then given up.
const MOST_MISSES: u32 = 256;

/// Where a running guest's RAM is.
pub struct GuestMemory {
    pid: u32,
    memory: Arc<Memory>,
    bytes: u64,
    blocks: HashMap<Vec<u8>, Places>,
}

/// Where one block may lie.
#[derive(Debug, Default)]
struct Places {
    bytes: u64,
    addresses: Vec<u64>,
    misses: u32,
}

impl GuestMemory {
    /// Opens the memory of QEMU process `pid`.
    ///
    /// # Errors
    /// If there is no such process or it may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, memory: Arc::new(Memory::open(pid)?), bytes: 0, blocks: HashMap::new() })
    }

    /// Finds the places where these blocks may lie.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn learn(&mut self, blocks: &[RamBlock]) -> io::Result<()> {
        let mappings = guest_mappings(self.pid)?;
        self.bytes = mappings.iter().map(|(from, to)| to - from).sum();
        let (mut left, mut more) = (MOST_PLACES_IN_ALL, blocks.len());
        self.blocks = blocks
            .iter()
            .map(|block| {
                let places = mappings.iter().flat_map(|(from, to)| places(*from, *to, block.bytes));
                let addresses: Vec<u64> = places.take((left / more).min(MOST_PLACES)).collect();
                (left, more) = (left - addresses.len(), more - 1);
                (
                    block.name.clone().into_bytes(),
                    Places { bytes: block.bytes, addresses, misses: 0 },
                )
            })
            .collect();
        Ok(())
    }

    /// Size of all mappings in which the blocks may lie, whatever their list says.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of a page of a block, if the block has it and it is certain where the block lies. `fits` says of a
    /// content whether it is that page's; it may be wrong about a page that has just been written.
    pub fn place(
        &mut self,
        block: &[u8],
        offset: u64,
        mut fits: impl FnMut(&[u8; PAGE_SIZE]) -> bool,
    ) -> Option<u64> {
        let places = self.blocks.get_mut(block)?;
        // An offset comes from the other host.
        if offset.checked_add(PAGE_SIZE as u64)? > places.bytes {
            return None;
        }
        if places.addresses.len() > 1 {
            let mut there = [0; PAGE_SIZE];
            let holds =
                |address: &u64| self.memory.page(address + offset, &mut there) && fits(&there);
            let fitting: Vec<u64> = places.addresses.iter().copied().filter(holds).collect();
            if fitting.is_empty() {
                places.misses += 1;
                if places.misses > MOST_MISSES {
                    places.addresses.clear();
                }
                return None;
            }
            places.addresses = fitting;
        }
        let [address] = places.addresses[..] else { return None };
        Some(address + offset)
    }

    /// The process's memory, to read what lies at such an address.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

/// Where `bytes` may lie between these bounds.
fn places(from: u64, to: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let aligned = from.next_multiple_of(ALIGNMENT);
    let first = (from != aligned).then_some(from);
    let steps = (aligned..to).step_by(usize::try_from(ALIGNMENT).unwrap_or(usize::MAX));
    first.into_iter().chain(steps).take_while(move |at| to - at >= bytes)
}

/// Held by a test that looks for places in its own process: in the memory of another test there may be more
/// of them than are remembered.
#[cfg(test)]
pub(crate) static TURNS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Memory that is mapped, as a guest's is: of less, malloc may take some from its heap.
#[cfg(test)]
pub(crate) fn mapped() -> Vec<u8> {
    vec![0; 40 << 20]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_by_its_pages_among_places_of_its_size() {
        let _turn = TURNS.lock();
        let mut ram = mapped();
        let aligned = ram.as_ptr().align_offset(PAGE_SIZE);
        // Not at a multiple of QEMU's alignment: only the mapping's own begin can be told.
        for (number, page) in (0_u64..).zip(ram[aligned..].as_chunks_mut::<PAGE_SIZE>().0) {
            page[..8].copy_from_slice(&(number + 1).to_le_bytes());
        }
        let mut guest = GuestMemory::open(std::process::id()).unwrap();
        let block = RamBlock { name: "ram".into(), bytes: 8 << 20 };
        guest.learn(&[block]).unwrap();
        let aligned = ram[aligned..].as_ptr() as u64;
        let first = aligned.next_multiple_of(ALIGNMENT);
        let number = (first - aligned) / PAGE_SIZE as u64;
        let wanted = |page: &[u8; PAGE_SIZE]| page[..8] == (number + 4).to_le_bytes();
        let place = guest.place(b"ram", 3 * 4096, wanted);
        assert_eq!(place, Some(first + 3 * 4096));
        let mut copy = [0; PAGE_SIZE];
        assert!(guest.memory().page(first + 3 * 4096, &mut copy) && wanted(&copy));
        assert_eq!(guest.place(b"other", 0, |_| true), None);
        // What lies behind the block in the process is not the guest's.
        for beyond in [8 << 20, (8 << 20) - 1, u64::MAX - 4095, u64::MAX] {
            assert_eq!(guest.place(b"ram", beyond, |_| true), None, "{beyond}");
        }
    }

    #[test]
    fn a_list_of_many_blocks_takes_no_more_room_than_one_of_a_few() {
        let _turn = TURNS.lock();
        // Nothing of it is touched.
        let _ram = std::hint::black_box(vec![0_u8; 256 << 20]);
        let mut guest = GuestMemory::open(std::process::id()).unwrap();
        let block = |number: usize| RamBlock { name: number.to_string(), bytes: 1 };
        let blocks: Vec<RamBlock> = (0..1000).map(block).collect();
        guest.learn(&blocks).unwrap();
        let places: usize = guest.blocks.values().map(|places| places.addresses.len()).sum();
        assert_eq!(places, MOST_PLACES_IN_ALL);
        assert!(guest.blocks.values().all(|places| !places.addresses.is_empty()));
    }
}
