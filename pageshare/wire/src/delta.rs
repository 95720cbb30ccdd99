//! A page as its difference from an earlier version of the same page.
//!
//! A delta is a sequence of runs, each two lengths (LEB128) and bytes: how many bytes are as they
//! were, how many are new, and the new ones. What follows the last run is as it was. Guests change
//! a few words of a page between two rounds, so a delta is mostly a handful of bytes.

use pageshare_index::PAGE_SIZE;

/// A longer delta is not worth it: the page itself compresses about as well.
pub const LONGEST: usize = PAGE_SIZE / 2;

/// So few bytes alike do not pay for the lengths of another run.
const SHORTEST_GAP: usize = 4;

/// What leads from `old` to `new`; nothing if it is longer than [`LONGEST`].
#[must_use]
pub fn encode(old: &[u8; PAGE_SIZE], new: &[u8; PAGE_SIZE]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut done = 0;
    while let Some(from) = first_difference(old, new, done) {
        let mut to = from + 1;
        let mut alike = 0;
        while to + alike < PAGE_SIZE && alike < SHORTEST_GAP {
            if old[to + alike] == new[to + alike] {
                alike += 1;
            } else {
                to += alike + 1;
                alike = 0;
            }
        }
        put_length(from - done, &mut out);
        put_length(to - from, &mut out);
        out.extend_from_slice(&new[from..to]);
        if out.len() > LONGEST {
            return None;
        }
        done = to;
    }
    Some(out)
}

/// Turns `page`, the old version, into the new one; nothing if `delta` is none.
#[must_use]
pub fn apply(mut delta: &[u8], page: &mut [u8; PAGE_SIZE]) -> Option<()> {
    let mut at = 0;
    while !delta.is_empty() {
        at += take_length(&mut delta)?;
        let length = take_length(&mut delta)?;
        let (new, rest) = delta.split_at_checked(length)?;
        page.get_mut(at..at + length)?.copy_from_slice(new);
        delta = rest;
        at += length;
    }
    Some(())
}

fn first_difference(old: &[u8; PAGE_SIZE], new: &[u8; PAGE_SIZE], from: usize) -> Option<usize> {
    const STRIDE: usize = 64;
    let mut at = from;
    while at < PAGE_SIZE {
        let end = (at + STRIDE).min(PAGE_SIZE);
        if old[at..end] != new[at..end] {
            return (at..end).find(|at| old[*at] != new[*at]);
        }
        at = end;
    }
    None
}

fn put_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
}

/// At most two bytes: no length exceeds a page.
fn take_length(delta: &mut &[u8]) -> Option<usize> {
    let (first, rest) = delta.split_first()?;
    *delta = rest;
    if *first < 0x80 {
        return Some(usize::from(*first));
    }
    let (second, rest) = delta.split_first()?;
    *delta = rest;
    let length = usize::from(first & 0x7f) | usize::from(*second) << 7;
    (*second < 0x80 && length <= PAGE_SIZE).then_some(length)
}
