//! How each page that was asked for travels: two bits a page, lowest first.

use super::Treatment;

/// Bytes for so many pages.
pub(super) fn bytes(pages: usize) -> usize {
    pages.div_ceil(4)
}

/// Appends the pages' bits.
pub(super) fn encode(pages: &[Treatment], out: &mut Vec<u8>) {
    for group in pages.chunks(4) {
        let bits = group.iter().enumerate();
        out.push(bits.fold(0, |byte, (at, page)| byte | (*page as u8) << (2 * at)));
    }
}

/// The treatment of page `index`.
pub(super) fn get(bits: &[u8], index: usize) -> Treatment {
    match bits.get(index / 4).map_or(0, |byte| byte >> (2 * (index % 4)) & 3) {
        0 => Treatment::Content,
        1 => Treatment::Reference,
        2 => Treatment::AtOnce,
        _ => Treatment::Delta,
    }
}
