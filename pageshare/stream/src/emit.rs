//! Writes items of the `ram` section as QEMU does.

use crate::word::RamWord;

/// Bytes that one zero page takes in the stream.
pub const ZERO_PAGE_BYTES: usize = 9;

/// Appends `count` zero pages with consecutive addresses, the first with `first` as its word.
pub fn zero_pages(first: RamWord, count: u32, out: &mut Vec<u8>) {
    out.reserve(count as usize * ZERO_PAGE_BYTES);
    for page in 0..u64::from(count) {
        let mut item = [0; ZERO_PAGE_BYTES];
        item[..8].copy_from_slice(&first.plus_pages(page).to_bytes());
        out.extend_from_slice(&item);
    }
}
