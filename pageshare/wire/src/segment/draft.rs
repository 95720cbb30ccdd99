//! The sender's side of a segment.

use pageshare_index::{HashKey, PageHash};
use pageshare_stream::{PAGE_SIZE, RamWord, Token};

use super::{SEGMENT_HEADER_BYTES, Treatment, op, states};
use crate::chain::Chain;
use crate::literals::{self, Coded, Compressor};
use crate::noise::is_noise;
use crate::page_set::PageSet;

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

    /// The contents of the pages to ask for, in order.
    #[must_use]
    pub fn contents(&self) -> Vec<&[u8; PAGE_SIZE]> {
        let content = |at: &usize| self.stream[*at..].first_chunk();
        self.asked.iter().filter_map(content).collect()
    }

    /// The page of content that begins at `offset` of the stream; empty if there is none.
    #[must_use]
    pub fn at(&self, offset: usize) -> &[u8] {
        self.stream.get(offset..offset + PAGE_SIZE).unwrap_or_default()
    }

    /// Whether what travels of it, if these of the pages asked for need not, looks like noise.
    #[must_use]
    pub fn is_noise(&self, known: &PageSet) -> bool {
        let mut pages: Vec<_> = (0..)
            .zip(self.contents())
            .filter_map(|(at, page)| (!known.contains(at)).then_some(page))
            .collect();
        if self.asked.len() < self.stream.len() / PAGE_SIZE / 2 {
            // Most of it was not asked for. Wherever its pages begin, this meets each once.
            pages.extend(self.stream.as_chunks().0);
        }
        is_noise(&pages)
    }

    /// Hashes of the pages to ask for, in order.
    #[must_use]
    pub fn hash(&self, key: &HashKey) -> Vec<PageHash> {
        key.hash_pages(&self.contents())
    }

    /// The segment; `hashes` is what was asked, `treatments` how each of those pages travels, and
    /// `deltas` brings the differences of those that travel so, in order.
    #[must_use]
    pub fn encode(
        mut self,
        hashes: Vec<PageHash>,
        treatments: &[Treatment],
        deltas: &[Vec<u8>],
        compressor: Option<&mut Compressor>,
    ) -> Encoded {
        debug_assert_eq!(treatments.len(), self.asked.len());
        let expanded = u32::try_from(self.stream.len()).unwrap_or(u32::MAX);
        let ops = self.encode_ops(treatments);
        self.keep_literals(treatments, deltas);
        let literals = literals::encode(self.stream, compressor);
        let references = treatments.iter().filter(|it| **it == Treatment::Reference).count();
        Encoded { expanded, ops, literals, hashes, references }
    }

    fn encode_ops(&self, treatments: &[Treatment]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut page = 0;
        let mut bits = |count: u32, out: &mut Vec<u8>| {
            let next = page + count as usize;
            states::encode(&treatments[page..next], out);
            page = next;
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

    /// Leaves nothing of the stream but its literal bytes.
    fn keep_literals(&mut self, treatments: &[Treatment], deltas: &[Vec<u8>]) {
        let mut kept = Kept { stream: &mut self.stream, read: 0, length: 0 };
        let (mut treatments, mut deltas) = (treatments.iter(), deltas.iter());
        let mut pages = |word: usize, count: u32, kept: &mut Kept<'_>| {
            for treatment in treatments.by_ref().take(count as usize) {
                kept.skip(word);
                match treatment {
                    Treatment::Content => kept.take(PAGE_SIZE),
                    Treatment::Delta => {
                        kept.skip(PAGE_SIZE);
                        let delta = deltas.next().map_or(&[][..], Vec::as_slice);
                        kept.put(&u16::try_from(delta.len()).unwrap_or(u16::MAX).to_le_bytes());
                        kept.put(delta);
                    }
                    Treatment::Reference | Treatment::AtOnce => kept.skip(PAGE_SIZE),
                }
            }
        };
        for op in &self.ops {
            match op {
                Op::Literal { bytes } => kept.take(*bytes as usize),
                Op::Zeros { count, .. } => {
                    kept.skip(*count as usize * pageshare_stream::emit::ZERO_PAGE_BYTES);
                }
                Op::Pages { count, .. } => pages(8, *count, &mut kept),
                Op::Contents { count } => pages(0, *count, &mut kept),
            }
        }
        let length = kept.length;
        self.stream.truncate(length);
    }
}

/// What is kept of a stream, moved to its front: never longer than what has been read.
struct Kept<'a> {
    stream: &'a mut [u8],
    read: usize,
    length: usize,
}

impl Kept<'_> {
    fn skip(&mut self, bytes: usize) {
        self.read += bytes;
    }

    fn take(&mut self, bytes: usize) {
        if self.length < self.read {
            self.stream.copy_within(self.read..self.read + bytes, self.length);
        }
        self.read += bytes;
        self.length += bytes;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.stream[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// A segment ready for the wire but for its place in the chain.
pub struct Encoded {
    expanded: u32,
    ops: Vec<u8>,
    literals: Coded,
    hashes: Vec<PageHash>,
    references: usize,
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
        head.extend(self.literals.decoded.to_le_bytes());
        head.extend(self.literals.coding.field());
        head.extend(chain.value());
        head.extend(&self.ops);
        head
    }

    /// The literal bytes as they are coded.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.literals.payload
    }

    /// The buffer of the literal bytes, for other use.
    #[must_use]
    pub fn into_payload(self) -> Vec<u8> {
        self.literals.payload
    }

    /// Bytes of the stream.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.expanded as usize
    }

    /// Pages sent as references that the receiver had affirmed.
    #[must_use]
    pub fn references(&self) -> usize {
        self.references
    }

    /// Literal bytes before coding, and after, if compression was tried.
    #[must_use]
    pub fn compression(&self) -> Option<(usize, usize)> {
        let Coded { tried, decoded, payload, .. } = &self.literals;
        tried.then_some((*decoded as usize, payload.len()))
    }
}
