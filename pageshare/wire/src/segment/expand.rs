//! The receiver's side of a segment.

use std::io::Read;

use pageshare_index::{HashKey, PageHash};
use pageshare_stream::{PAGE_SIZE, RamWord, emit};

use super::{SEGMENT_HEADER_BYTES, coding, op};
use crate::WireError;
use crate::chain::Chain;
use crate::page_set::PageSet;
use crate::record::LONGEST_SEGMENT;

/// What the receiver promised when it answered an Ask: copies of the pages it has, verified.
#[derive(Debug, Default, Clone)]
pub struct Held {
    /// All hashes asked for.
    pub hashes: Vec<PageHash>,
    /// Which of them are held.
    pub known: PageSet,
    /// The contents of those, in order.
    pub contents: Vec<u8>,
}

/// A segment's body, taken apart but not yet expanded.
#[derive(Debug)]
pub struct SegmentView<'a> {
    expanded: u32,
    ops: &'a [u8],
    literals: u32,
    zstd: bool,
    chain: [u8; 16],
    payload: &'a [u8],
}

impl<'a> SegmentView<'a> {
    /// Takes a body apart.
    ///
    /// # Errors
    /// If its lengths contradict each other or exceed a segment's.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let malformed = WireError::Protocol("header of a segment");
        let Some((head, rest)) = body.split_first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(malformed);
        };
        let field =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (expanded, ops, literals) = (field(0), field(4), field(8));
        let mut chain = [0; 16];
        chain.copy_from_slice(&head[16..]);
        let zstd = match head[12..16] {
            [coding::RAW, 0, 0, 0] => false,
            [coding::ZSTD, 0, 0, 0] => true,
            _ => return Err(malformed),
        };
        let Some((ops, payload)) = rest.split_at_checked(ops as usize) else {
            return Err(malformed);
        };
        let fits = expanded as usize <= LONGEST_SEGMENT
            && literals <= expanded
            && (zstd || payload.len() == literals as usize);
        if !fits {
            return Err(malformed);
        }
        Ok(Self { expanded, ops, literals, zstd, chain, payload })
    }

    /// Bytes of the stream it stands for.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.expanded as usize
    }

    /// The chain after this segment, if `before` is the chain before it.
    #[must_use]
    pub fn chain_after(&self, sequence: u32, asked: &[PageHash], before: Chain) -> Chain {
        let mut chain = before;
        chain.extend(sequence, self.expanded, self.ops, asked);
        chain
    }

    /// Appends the segment's stream bytes to `out`, and calls `arrived` for every page that was
    /// asked for and came as content. Nothing is appended unless the whole segment is sound.
    ///
    /// # Errors
    /// If the operations do not fit the lengths or what was asked and answered, a page has another
    /// content than was asked for, or the chain does not match.
    pub fn expand(
        &self,
        sequence: u32,
        held: &Held,
        key: &HashKey,
        chain: &mut Chain,
        out: &mut Vec<u8>,
        mut arrived: impl FnMut(PageHash, &[u8]),
    ) -> Result<(), WireError> {
        *chain = self.chain_after(sequence, &held.hashes, *chain);
        if chain.value() != self.chain {
            return Err(WireError::Damaged("chained digest of a segment"));
        }
        let decoded = if self.zstd { self.decode()? } else { Vec::new() };
        let literals = if self.zstd { &decoded } else { self.payload };

        let before = out.len();
        let limit = before + self.expanded as usize;
        let result = Expansion {
            ops: self.ops,
            literals,
            held,
            contents: &held.contents,
            page: 0,
            out,
            limit,
        }
        .run(key, &mut arrived);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn decode(&self) -> Result<Vec<u8>, WireError> {
        let damaged = |_| WireError::Damaged("compressed bytes of a segment");
        let mut decoded = Vec::with_capacity(self.literals as usize);
        let decoder = zstd::stream::Decoder::with_buffer(self.payload).map_err(damaged)?;
        // One byte more than declared shows a frame that would expand further.
        let most = u64::from(self.literals) + 1;
        decoder.take(most).read_to_end(&mut decoded).map_err(damaged)?;
        if decoded.len() != self.literals as usize {
            return Err(WireError::Protocol("length of compressed bytes"));
        }
        Ok(decoded)
    }
}

struct Expansion<'a> {
    ops: &'a [u8],
    literals: &'a [u8],
    held: &'a Held,
    contents: &'a [u8],
    /// How many pages asked for have been passed.
    page: usize,
    out: &'a mut Vec<u8>,
    /// Length of `out` when the segment is whole.
    limit: usize,
}

const OPS: WireError = WireError::Protocol("operations of a segment");

impl Expansion<'_> {
    fn run(
        mut self,
        key: &HashKey,
        arrived: &mut impl FnMut(PageHash, &[u8]),
    ) -> Result<(), WireError> {
        while let Some((kind, rest)) = self.ops.split_first() {
            self.ops = rest;
            match *kind {
                op::LITERAL => {
                    let length = self.u32()?;
                    let bytes = split(&mut self.literals, length as usize)?;
                    self.put(bytes)?;
                }
                op::ZEROS => {
                    let (first, count) = (RamWord(self.u64()?), self.u32()?);
                    let bytes = count as usize * emit::ZERO_PAGE_BYTES;
                    if bytes > self.limit - self.out.len() {
                        return Err(OPS);
                    }
                    emit::zero_pages(first, count, self.out);
                }
                op::PAGES => {
                    let first = RamWord(self.u64()?);
                    self.pages(Some(first), key, arrived)?;
                }
                op::CONTENTS => self.pages(None, key, arrived)?,
                _ => return Err(OPS),
            }
        }
        let complete = self.out.len() == self.limit
            && self.literals.is_empty()
            && self.page == self.held.hashes.len();
        if complete { Ok(()) } else { Err(OPS) }
    }

    fn pages(
        &mut self,
        first: Option<RamWord>,
        key: &HashKey,
        arrived: &mut impl FnMut(PageHash, &[u8]),
    ) -> Result<(), WireError> {
        let count = self.u32()? as usize;
        if count > LONGEST_SEGMENT / PAGE_SIZE {
            return Err(OPS);
        }
        let bits = split(&mut self.ops, count.div_ceil(8))?;
        let references = PageSet::from_bytes(bits, count).ok_or(OPS)?;
        for index in 0..count {
            let hash = *self.held.hashes.get(self.page).ok_or(OPS)?;
            if let Some(first) = first {
                self.put(&first.plus_pages(index as u64).to_bytes())?;
            }
            let holds = self.held.known.contains(self.page);
            let held = if holds { split(&mut self.contents, PAGE_SIZE)? } else { &[] };
            if references.contains(index) {
                if !holds {
                    return Err(WireError::Protocol("a reference to a page not held"));
                }
                self.put(held)?;
            } else {
                let content = split(&mut self.literals, PAGE_SIZE)?;
                if key.hash(content) != hash {
                    return Err(WireError::Damaged("hash of a page"));
                }
                arrived(hash, content);
                self.put(content)?;
            }
            self.page += 1;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if bytes.len() > self.limit - self.out.len() {
            return Err(OPS);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        let bytes = split(&mut self.ops, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], WireError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(OPS)?;
    *bytes = rest;
    Ok(taken)
}
