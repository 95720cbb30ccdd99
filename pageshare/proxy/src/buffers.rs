//! Buffers of segments that have been passed on, for those that come: memory that is taken anew for
//! each segment has to be cleared and mapped by the kernel, which costs as much as hashing it.

use std::sync::{Mutex, MutexGuard};

use crate::threads::locked;
use pageshare_index::PAGE_SIZE;
use pageshare_wire::window::LARGEST;

/// Stream bytes that are taken for one segment, at most: a quarter of the smallest window.
pub(crate) const SEGMENT_BYTES: usize = 256 << 10;
/// So many are kept: what is in flight at most, in segments of the usual size.
const KEPT: usize = LARGEST as usize / SEGMENT_BYTES;

/// A migration's buffers.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// An empty buffer with room for a segment.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut buffer = self.any();
        buffer.clear();
        buffer
    }

    /// A buffer of so many pages at least, which hold anything.
    pub(crate) fn take_pages(&self, pages: usize) -> Vec<u8> {
        let mut buffer = self.any();
        if buffer.len() < pages * PAGE_SIZE {
            buffer.resize(pages * PAGE_SIZE, 0);
        }
        buffer
    }

    fn any(&self) -> Vec<u8> {
        let kept = self.kept().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(SEGMENT_BYTES))
    }

    /// A buffer that is no longer needed. One of another size is let go.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.kept();
        if kept.len() < KEPT && buffer.capacity() == SEGMENT_BYTES {
            kept.push(buffer);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        locked(&self.0)
    }
}
