//! What virtio-mem writes before RAM since QEMU 8.0, in a section of its own that declares no
//! length: which of its blocks are plugged.
//!
//! ```text
//! be64 address | be64 region | be64 block | be32 node | be64 plugged | a bit for each block of the region
//! ```

use crate::cursor::{Cursor, Short};

const NAME: &[u8] = b"virtio-mem-device-early";
const VERSION: u32 = 1;
const SMALLEST_BLOCK: u64 = 1 << 20;
/// x86's widest physical address.
const LARGEST_REGION: u64 = 1 << 52;

/// Whether a section is this one; in front of its name stands the device's place.
pub(crate) fn is_early(name: &[u8], version: u32) -> bool {
    let named =
        name.strip_suffix(NAME).is_some_and(|place| matches!(place.last(), None | Some(b'/')));
    named && version == VERSION
}

/// Takes everything but the bits, which come in whole words of 64; returns their bytes, or nothing
/// if no device is like that.
pub(crate) fn bitmap_bytes(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Short> {
    let (_address, region, block) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let (_node, plugged) = (cursor.u32()?, cursor.u64()?);
    let sound = block.is_power_of_two()
        && block >= SMALLEST_BLOCK
        && region.is_multiple_of(block)
        && region <= LARGEST_REGION
        && plugged <= region;
    Ok(sound.then(|| (region / block).div_ceil(64) * 8))
}
