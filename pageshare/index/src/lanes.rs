//! Hashes many pages at once.
//!
//! A page of 4 KiB has four BLAKE3 chunks, and BLAKE3 alone fills four of a processor's eight or
//! sixteen lanes with them. Here the same chunk of up to sixteen pages goes through the lanes
//! together: the same hashes, at several times the speed. It uses the entry that the `blake3` crate
//! keeps public for benchmarks, hence the exact version in `Cargo.toml`; a test compares the two.

use blake3::IncrementCounter;
use blake3::platform::{MAX_SIMD_DEGREE, Platform};

use crate::PAGE_SIZE;

// BLAKE3, section 2.1, table 3.
const CHUNK_START: u8 = 1 << 0;
const CHUNK_END: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const ROOT: u8 = 1 << 3;
const KEYED_HASH: u8 = 1 << 4;

const CHUNK: usize = 1024;
const CHUNKS: usize = PAGE_SIZE / CHUNK;
const VALUE: usize = 32;
const NODE: usize = 2 * VALUE;
/// Pages hashed together.
const LANES: usize = MAX_SIMD_DEGREE;

/// Gives the first 128 bits of the hashes of these pages, in order.
pub(crate) fn hash(key: &[u8; 32], pages: &[&[u8; PAGE_SIZE]], mut give: impl FnMut([u8; 16])) {
    let platform = Platform::detect();
    let key = blake3::platform::words_from_le_bytes_32(key);
    for group in pages.chunks(LANES) {
        let mut leaves = [[0; NODE]; LANES * CHUNKS / 2];
        for number in 0..CHUNKS {
            let chunks: Vec<&[u8; CHUNK]> =
                group.iter().map(|page| &page.as_chunks().0[number]).collect();
            let mut values = [0; LANES * VALUE];
            platform.hash_many(
                &chunks,
                &key,
                number as u64,
                IncrementCounter::No,
                KEYED_HASH,
                CHUNK_START,
                CHUNK_END,
                &mut values,
            );
            for (page, value) in values.as_chunks::<VALUE>().0.iter().take(group.len()).enumerate()
            {
                let node = &mut leaves[page * CHUNKS / 2 + number / 2];
                node[number % 2 * VALUE..][..VALUE].copy_from_slice(value);
            }
        }
        let mut roots = [[0; NODE]; LANES];
        let parents: Vec<&[u8; NODE]> = leaves[..group.len() * 2].iter().collect();
        let mut values = [0; 2 * LANES * VALUE];
        for (parents, values) in parents.chunks(LANES).zip(values.chunks_mut(LANES * VALUE)) {
            join(platform, &key, parents, 0, values);
        }
        for (root, pair) in roots.iter_mut().zip(values.as_chunks::<NODE>().0) {
            *root = *pair;
        }
        let roots: Vec<&[u8; NODE]> = roots[..group.len()].iter().collect();
        let mut values = [0; LANES * VALUE];
        join(platform, &key, &roots, ROOT, &mut values);
        for value in values.as_chunks::<VALUE>().0.iter().take(group.len()) {
            let mut hash = [0; 16];
            hash.copy_from_slice(&value[..16]);
            give(hash);
        }
    }
}

fn join(platform: Platform, key: &[u32; 8], nodes: &[&[u8; NODE]], flag: u8, values: &mut [u8]) {
    let flags = KEYED_HASH | PARENT | flag;
    platform.hash_many(nodes, key, 0, IncrementCounter::No, flags, 0, 0, values);
}
