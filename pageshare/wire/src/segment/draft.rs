//! The sender's side of a segment.

use pageshare_index::{HashKey, PageHash};
use pageshare_stream::{PAGE_SIZE, RamWord, Token};

use super::{SEGMENT_HEADER_BYTES, coding, op};
use crate::chain::Chain;
use crate::page_set::PageSet;

/// Fewer literal bytes than this are not worth a compressor's call.
const SMALLEST_COMPRESSED: usize = 64;

enum Op {
    Literal { bytes: u32 },
    Zeros { first: RamWord, count: u32 },
    Pages { first: RamWord, count: u32 },
    Contents { count: u32 },
}

/// A stretch of the stream, cut into operations. Add tokens until all bytes are covered.
pub struct Draft {
    stream: Vec<u8>,
    covered: usize,
    ops: Vec<Op>,
    /// Offsets of the contents to ask for.
    asked: Vec<usize>,
}

impl Draft {
    /// A draft of these stream bytes.
    #[must_use]
    pub fn new(stream: Vec<u8>) -> Self {
        Self { stream, covered: 0, ops: Vec::new(), asked: Vec::new() }
    }

    /// The bytes not yet covered by tokens.
    #[must_use]
    pub fn uncovered(&self) -> &[u8] {
        &self.stream[self.covered..]
    }

    /// Covers the next `length` bytes with a token; `ask` says to ask for its content.
    pub fn add(&mut self, token: Token, length: usize, ask: bool) {
        let at = self.covered;
        self.covered += length;
        match (token, token.content_at()) {
            (Token::Zero(word), _) => self.zero(word),
            (_, Some(content)) if ask => {
                self.asked.push(at + content);
                match token {
                    Token::Page(word) => self.page(word),
                    _ => self.content(),
                }
            }
            // A segment's length fits 32 bits, so do its parts.
            _ => self.literal(u32::try_from(length).unwrap_or(u32::MAX)),
        }
    }

    /// Covers what no token covers yet, and cuts it off: the bytes of an item still incomplete.
    #[must_use]
    pub fn split_rest(&mut self) -> Vec<u8> {
        self.stream.split_off(self.covered)
    }

    fn literal(&mut self, length: u32) {
        if let Some(Op::Literal { bytes }) = self.ops.last_mut() {
            *bytes += length;
        } else {
            self.ops.push(Op::Literal { bytes: length });
        }
    }

    fn zero(&mut self, word: RamWord) {
        match self.ops.last_mut() {
            Some(Op::Zeros { first, count }) if first.plus_pages((*count).into()) == word => {
                *count += 1;
            }
            _ => self.ops.push(Op::Zeros { first: word, count: 1 }),
        }
    }

    fn page(&mut self, word: RamWord) {
        match self.ops.last_mut() {
            Some(Op::Pages { first, count }) if first.plus_pages((*count).into()) == word => {
                *count += 1;
            }
            _ => self.ops.push(Op::Pages { first: word, count: 1 }),
        }
    }

    fn content(&mut self) {
        if let Some(Op::Contents { count }) = self.ops.last_mut() {
            *count += 1;
        } else {
            self.ops.push(Op::Contents { count: 1 });
        }
    }

    /// Bytes of the stream in this segment.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.stream.len()
    }

    /// How many pages to ask for.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Hashes of the pages to ask for, in order.
    #[must_use]
    pub fn hash(&self, key: &HashKey) -> Vec<PageHash> {
        self.asked.iter().map(|at| key.hash(&self.stream[*at..*at + PAGE_SIZE])).collect()
    }

    /// The segment, with the pages in `known` as references, `hashes` being what was asked.
    #[must_use]
    pub fn encode(
        self,
        hashes: Vec<PageHash>,
        known: &PageSet,
        compressor: Option<&mut Compressor>,
    ) -> Encoded {
        let expanded = u32::try_from(self.stream.len()).unwrap_or(u32::MAX);
        let ops = self.encode_ops(known);
        let literals =
            if known.count() == 0 && !self.has_runs() { self.stream } else { self.literals(known) };
        let length = u32::try_from(literals.len()).unwrap_or(u32::MAX);
        let compressed = compressor
            .filter(|_| literals.len() >= SMALLEST_COMPRESSED)
            .and_then(|compressor| compressor.shrink(&literals));
        let tried = compressed.is_some();
        let (code, payload) = match compressed.flatten() {
            Some(small) => (coding::ZSTD, small),
            None => (coding::RAW, literals),
        };
        let references = known.count();
        Encoded { expanded, ops, literals: length, code, payload, hashes, references, tried }
    }

    /// Whether any operation leaves bytes of the stream out of the literals.
    fn has_runs(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Zeros { .. } | Op::Pages { .. }))
    }

    fn encode_ops(&self, known: &PageSet) -> Vec<u8> {
        let mut out = Vec::new();
        let mut page = 0;
        let mut bits = |count: u32, out: &mut Vec<u8>| {
            let mut set = PageSet::empty(count as usize);
            for index in 0..count as usize {
                if known.contains(page + index) {
                    set.insert(index);
                }
            }
            page += count as usize;
            out.extend(set.as_bytes());
        };
        for op in &self.ops {
            match op {
                Op::Literal { bytes } => {
                    out.push(op::LITERAL);
                    out.extend(bytes.to_le_bytes());
                }
                Op::Zeros { first, count } => {
                    out.push(op::ZEROS);
                    out.extend(first.0.to_le_bytes());
                    out.extend(count.to_le_bytes());
                }
                Op::Pages { first, count } => {
                    out.push(op::PAGES);
                    out.extend(first.0.to_le_bytes());
                    out.extend(count.to_le_bytes());
                    bits(*count, &mut out);
                }
                Op::Contents { count } => {
                    out.push(op::CONTENTS);
                    out.extend(count.to_le_bytes());
                    bits(*count, &mut out);
                }
            }
        }
        out
    }

    fn literals(&self, known: &PageSet) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.stream.len());
        let (mut at, mut page) = (0, 0);
        let mut pages = |word: usize, count: u32, at: &mut usize, out: &mut Vec<u8>| {
            for _ in 0..count {
                *at += word;
                if !known.contains(page) {
                    out.extend(&self.stream[*at..*at + PAGE_SIZE]);
                }
                *at += PAGE_SIZE;
                page += 1;
            }
        };
        for op in &self.ops {
            match op {
                Op::Literal { bytes } => {
                    out.extend(&self.stream[at..at + *bytes as usize]);
                    at += *bytes as usize;
                }
                Op::Zeros { count, .. } => {
                    at += *count as usize * pageshare_stream::emit::ZERO_PAGE_BYTES;
                }
                Op::Pages { count, .. } => pages(8, *count, &mut at, &mut out),
                Op::Contents { count } => pages(0, *count, &mut at, &mut out),
            }
        }
        out
    }
}

/// A segment ready for the wire but for its place in the chain.
pub struct Encoded {
    expanded: u32,
    ops: Vec<u8>,
    literals: u32,
    code: u8,
    payload: Vec<u8>,
    hashes: Vec<PageHash>,
    references: usize,
    tried: bool,
}

impl Encoded {
    /// Takes its place as segment `sequence`: returns the head of the body (header and
    /// operations), behind which [`Encoded::payload`] follows.
    #[must_use]
    pub fn seal(&self, sequence: u32, chain: &mut Chain) -> Vec<u8> {
        chain.extend(sequence, self.expanded, &self.ops, &self.hashes);
        let mut head = Vec::with_capacity(SEGMENT_HEADER_BYTES + self.ops.len());
        head.extend(self.expanded.to_le_bytes());
        head.extend(u32::try_from(self.ops.len()).unwrap_or(u32::MAX).to_le_bytes());
        head.extend(self.literals.to_le_bytes());
        head.extend([self.code, 0, 0, 0]);
        head.extend(chain.value());
        head.extend(&self.ops);
        head
    }

    /// The literal bytes as they are coded.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Bytes of the stream.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.expanded as usize
    }

    /// Pages sent as references.
    #[must_use]
    pub fn references(&self) -> usize {
        self.references
    }

    /// Literal bytes before coding, and after, if compression was tried.
    #[must_use]
    pub fn compression(&self) -> Option<(usize, usize)> {
        self.tried.then_some((self.literals as usize, self.payload.len()))
    }
}

/// A zstd context, kept from one segment to the next.
pub struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    /// A compressor of this zstd level.
    ///
    /// # Errors
    /// If zstd has no such level or no memory.
    pub fn new(level: i32) -> std::io::Result<Self> {
        zstd::bulk::Compressor::new(level).map(Self)
    }

    /// Outer `None`: it failed. Inner: it did not shrink by a 32nd, which would not pay for
    /// expanding it again.
    #[allow(clippy::option_option)]
    fn shrink(&mut self, literals: &[u8]) -> Option<Option<Vec<u8>>> {
        let small = self.0.compress(literals).ok()?;
        Some((small.len() + literals.len() / 32 < literals.len()).then_some(small))
    }
}
