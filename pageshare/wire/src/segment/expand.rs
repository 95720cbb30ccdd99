//! The receiver's side of a segment.

use pageshare_index::{HashKey, PageHash};
use pageshare_stream::{PAGE_SIZE, RamWord, emit};

use super::{SEGMENT_HEADER_BYTES, Treatment, op, states};
use crate::chain::Chain;
use crate::literals::{Coding, Expander};
use crate::page_set::PageSet;
use crate::record::LONGEST_SEGMENT;
use crate::{WireError, delta};

/// What the receiver promised when it answered an Ask: copies of the pages it has, verified.
#[derive(Debug, Default, Clone)]
pub struct Held {
    /// All hashes asked for.
    pub hashes: Vec<PageHash>,
    /// Which of them are held.
    pub known: PageSet,
    /// A page for each hash, at its index, and maybe more; of those not held, anything.
    pub contents: Vec<u8>,
    /// Earlier versions held, by the index of the page in `hashes`, ascending.
    pub bases: Vec<(u16, Box<[u8; PAGE_SIZE]>)>,
    /// What a Supply brought: contents of the pages referred to at once that are not held.
    pub supplied: Vec<u8>,
}

/// Where a page that was asked for stands in the expanded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its hash.
    pub hash: PageHash,
    /// Offset of its content in the buffer that was expanded to.
    pub at: usize,
    /// It was not held before.
    pub new: bool,
}

/// A segment's body, taken apart but not yet expanded.
#[derive(Debug)]
pub struct SegmentView<'a> {
    expanded: u32,
    ops: &'a [u8],
    literals: u32,
    coding: Coding,
    chain: [u8; 16],
    payload: &'a [u8],
}

impl<'a> SegmentView<'a> {
    /// Takes a body apart.
    ///
    /// # Errors
    /// If its lengths contradict each other or exceed a segment's, or it stands for nothing.
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
        let Some(coding) = Coding::of([head[12], head[13], head[14], head[15]]) else {
            return Err(malformed);
        };
        let Some((ops, payload)) = rest.split_at_checked(ops as usize) else {
            return Err(malformed);
        };
        let coded = match coding {
            Coding::Raw => payload.len() == literals as usize,
            // What a frame does not make shorter travels as it is.
            Coding::Zstd => payload.len() < literals as usize,
        };
        let fits = (1..=LONGEST_SEGMENT).contains(&(expanded as usize)) && literals <= expanded;
        if !(fits && coded) {
            return Err(malformed);
        }
        Ok(Self { expanded, ops, literals, coding, chain, payload })
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

    /// The stream bytes, if all of them came as they are: nothing was asked for, or left out.
    #[must_use]
    pub fn verbatim(&self) -> Option<&'a [u8]> {
        let Some(([op::LITERAL], length)) = self.ops.split_first_chunk() else { return None };
        let all = self.literals == self.expanded && length == self.expanded.to_le_bytes();
        (all && self.coding == Coding::Raw).then_some(self.payload)
    }

    /// Takes the segment's place in the chain, as number `sequence`; `asked` are the hashes of the
    /// pages that were asked for.
    ///
    /// # Errors
    /// If the chain does not match.
    pub fn join(
        &self,
        sequence: u32,
        asked: &[PageHash],
        chain: &mut Chain,
    ) -> Result<(), WireError> {
        *chain = self.chain_after(sequence, asked, *chain);
        if chain.value() == self.chain {
            Ok(())
        } else {
            Err(WireError::Damaged("chained digest of a segment"))
        }
    }

    /// How many pages a Supply must bring before this segment can be expanded: those referred to
    /// at once that are not held.
    ///
    /// # Errors
    /// If the operations are none.
    pub fn missing(&self, held: &Held) -> Result<usize, WireError> {
        let mut ops = Ops { rest: self.ops };
        let (mut page, mut missing) = (0, 0);
        while let Some(op) = ops.next()? {
            if let Op::Pages { count, states, .. } = op {
                missing += (0..count)
                    .filter(|index| states::get(states, *index) == Treatment::AtOnce)
                    .filter(|index| !held.known.contains(page + index))
                    .count();
                page += count;
            }
        }
        Ok(missing)
    }

    /// Appends the segment's stream bytes to `out`, and says where the pages that were asked for
    /// stand in it. Nothing is appended unless the whole segment is sound.
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
        expander: &mut Expander,
        out: &mut Vec<u8>,
    ) -> Result<Vec<Placed>, WireError> {
        self.join(sequence, &held.hashes, chain)?;
        let literals = match self.coding {
            Coding::Raw => self.payload,
            Coding::Zstd => expander.expand(self.payload, self.literals)?,
        };

        let before = out.len();
        let limit = before + self.expanded as usize;
        let result = Expansion {
            literals,
            held,
            bases: &held.bases,
            supplied: &held.supplied,
            placed: Vec::with_capacity(held.hashes.len()),
            out,
            limit,
        }
        .run(self.ops, key);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }
}

const OPS: WireError = WireError::Protocol("operations of a segment");

/// One operation.
enum Op<'a> {
    Literal {
        bytes: usize,
    },
    Zeros {
        first: RamWord,
        count: u32,
    },
    /// With the word of the first page, if words are part of it.
    Pages {
        first: Option<RamWord>,
        count: usize,
        states: &'a [u8],
    },
}

/// Takes operations apart.
struct Ops<'a> {
    rest: &'a [u8],
}

impl<'a> Ops<'a> {
    fn next(&mut self) -> Result<Option<Op<'a>>, WireError> {
        let Some((kind, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        Ok(Some(match *kind {
            op::LITERAL => Op::Literal { bytes: self.u32()? as usize },
            op::ZEROS => Op::Zeros { first: RamWord(self.u64()?), count: self.u32()? },
            op::PAGES => {
                let first = RamWord(self.u64()?);
                self.pages(Some(first))?
            }
            op::CONTENTS => self.pages(None)?,
            _ => return Err(OPS),
        }))
    }

    fn pages(&mut self, first: Option<RamWord>) -> Result<Op<'a>, WireError> {
        let count = self.u32()? as usize;
        if count > LONGEST_SEGMENT / PAGE_SIZE {
            return Err(OPS);
        }
        let states = split(&mut self.rest, states::bytes(count))?;
        let spare = count % 4;
        let clean = spare == 0 || states.last().is_none_or(|last| last >> (2 * spare) == 0);
        if clean { Ok(Op::Pages { first, count, states }) } else { Err(OPS) }
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        let bytes = split(&mut self.rest, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
}

struct Expansion<'a> {
    literals: &'a [u8],
    held: &'a Held,
    bases: &'a [(u16, Box<[u8; PAGE_SIZE]>)],
    supplied: &'a [u8],
    placed: Vec<Placed>,
    out: &'a mut Vec<u8>,
    /// Length of `out` when the segment is whole.
    limit: usize,
}

impl<'a> Expansion<'a> {
    fn run(mut self, ops: &[u8], key: &HashKey) -> Result<Vec<Placed>, WireError> {
        let mut ops = Ops { rest: ops };
        while let Some(op) = ops.next()? {
            match op {
                Op::Literal { bytes } => {
                    let bytes = split(&mut self.literals, bytes)?;
                    self.put(bytes)?;
                }
                Op::Zeros { first, count } => {
                    let bytes = count as usize * emit::ZERO_PAGE_BYTES;
                    if bytes > self.limit - self.out.len() {
                        return Err(OPS);
                    }
                    emit::zero_pages(first, count, self.out);
                }
                Op::Pages { first, count, states } => {
                    for index in 0..count {
                        if let Some(first) = first {
                            self.put(&first.plus_pages(index as u64).to_bytes())?;
                        }
                        self.page(states::get(states, index))?;
                    }
                }
            }
        }
        let complete = self.out.len() == self.limit
            && self.literals.is_empty()
            && self.supplied.is_empty()
            && self.placed.len() == self.held.hashes.len();
        if !complete {
            return Err(OPS);
        }
        self.verify(key)?;
        Ok(self.placed)
    }

    /// Appends the content of the next page that was asked for.
    fn page(&mut self, treatment: Treatment) -> Result<(), WireError> {
        let index = self.placed.len();
        let hash = *self.held.hashes.get(index).ok_or(OPS)?;
        let holds = self.held.known.contains(index);
        let base = self.base(index);
        let new = match treatment {
            Treatment::Reference | Treatment::AtOnce if holds => false,
            Treatment::Reference => {
                return Err(WireError::Protocol("a reference to a page not held"));
            }
            _ => true,
        };
        self.placed.push(Placed { hash, at: self.out.len(), new });
        match treatment {
            _ if !new => {
                let at = index * PAGE_SIZE;
                self.put(self.held.contents.get(at..at + PAGE_SIZE).ok_or(OPS)?)
            }
            Treatment::AtOnce => {
                let content = split(&mut self.supplied, PAGE_SIZE)?;
                self.put(content)
            }
            Treatment::Delta => {
                let mut page = *base.ok_or(WireError::Protocol("a delta to a page not held"))?;
                let length = split(&mut self.literals, 2)?;
                let length = u16::from_le_bytes([length[0], length[1]]);
                let delta = split(&mut self.literals, length.into())?;
                delta::apply(delta, &mut page).ok_or(WireError::Damaged("delta of a page"))?;
                self.put(&page)
            }
            Treatment::Content | Treatment::Reference => {
                let content = split(&mut self.literals, PAGE_SIZE)?;
                self.put(content)
            }
        }
    }

    /// The earlier version held of page `index`, the pages coming in order.
    fn base(&mut self, index: usize) -> Option<&'a [u8; PAGE_SIZE]> {
        let ((at, base), rest) = self.bases.split_first()?;
        if usize::from(*at) != index {
            return None;
        }
        self.bases = rest;
        Some(base)
    }

    /// Pages that were not held must have the hashes that they were asked by.
    fn verify(&self, key: &HashKey) -> Result<(), WireError> {
        let new: Vec<&Placed> = self.placed.iter().filter(|placed| placed.new).collect();
        let contents: Vec<&[u8; PAGE_SIZE]> =
            new.iter().filter_map(|placed| self.out[placed.at..].first_chunk()).collect();
        let hashes = key.hash_pages(&contents);
        let same = new.iter().map(|placed| placed.hash).eq(hashes);
        if same { Ok(()) } else { Err(WireError::Damaged("hash of a page")) }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if bytes.len() > self.limit - self.out.len() {
            return Err(OPS);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], WireError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(OPS)?;
    *bytes = rest;
    Ok(taken)
}
