//! What a sender asks, what a receiver answers, and what is supplied when a reference that was
//! made before the answer turns out to be wrong.

use pageshare_index::{PAGE_SIZE, PageHash};

use crate::WireError;
use crate::literals::{self, Coding, Compressor, Expander};
use crate::page_set::PageSet;
use crate::record::LONGEST_SEGMENT;

/// Pages in an Ask, at most.
pub const MOST_ASKED: usize = LONGEST_SEGMENT / PAGE_SIZE;
const HASH: usize = 16;
const BASE: usize = 2 + HASH;

/// The pages of one segment that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// Their hashes, in the order of the stream.
    pub hashes: Vec<PageHash>,
    /// Earlier versions of some of them, from which the sender could send the difference: the
    /// page's index in `hashes`, ascending, and the hash of the earlier version.
    pub bases: Vec<(u16, PageHash)>,
}

impl Ask {
    /// The body of an Ask or Probe.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.hashes.len() * HASH + self.bases.len() * BASE);
        for count in [self.hashes.len(), self.bases.len()] {
            out.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
        }
        out.extend(self.hashes.iter().flat_map(|hash| hash.0));
        for (index, hash) in &self.bases {
            out.extend(index.to_le_bytes());
            out.extend(hash.0);
        }
        out
    }

    /// Reads the body of an Ask or Probe.
    ///
    /// # Errors
    /// If its length is not what its counts say, or it asks for more than a segment can hold.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let malformed = WireError::Protocol("form of an Ask");
        let Some(([h0, h1, b0, b1], rest)) = body.split_first_chunk() else {
            return Err(malformed);
        };
        let asked = usize::from(u16::from_le_bytes([*h0, *h1]));
        let bases = usize::from(u16::from_le_bytes([*b0, *b1]));
        let fits = (1..=MOST_ASKED).contains(&asked)
            && bases <= asked
            && rest.len() == asked * HASH + bases * BASE;
        if !fits {
            return Err(malformed);
        }
        let (hashes, rest) = rest.split_at(asked * HASH);
        let hashes: Vec<PageHash> = hashes.as_chunks().0.iter().copied().map(PageHash).collect();
        let bases: Vec<(u16, PageHash)> = rest
            .as_chunks::<BASE>()
            .0
            .iter()
            .map(|base| {
                let (index, hash) = base.split_at(2);
                let mut copy = [0; HASH];
                copy.copy_from_slice(hash);
                (u16::from_le_bytes([index[0], index[1]]), PageHash(copy))
            })
            .collect();
        let ascending = bases.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let within = bases.last().is_none_or(|(index, _)| usize::from(*index) < asked);
        if ascending && within { Ok(Self { hashes, bases }) } else { Err(malformed) }
    }
}

/// Which pages the receiver holds copies of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Of the pages asked for.
    pub known: PageSet,
    /// Of the earlier versions named.
    pub bases: PageSet,
}

impl Answer {
    /// The body of an Answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [self.known.as_bytes(), self.bases.as_bytes()].concat()
    }

    /// Reads the answer to an Ask of so many pages and earlier versions.
    ///
    /// # Errors
    /// If it does not fit the question.
    pub fn decode(body: &[u8], asked: usize, bases: usize) -> Result<Self, WireError> {
        let malformed = || WireError::Protocol("length of an answer");
        let (known, rest) = body.split_at_checked(asked.div_ceil(8)).ok_or_else(malformed)?;
        let known = PageSet::from_bytes(known, asked).ok_or_else(malformed)?;
        let bases = PageSet::from_bytes(rest, bases).ok_or_else(malformed)?;
        Ok(Self { known, bases })
    }
}

/// Bytes before a Supply's payload.
const SUPPLY_HEADER: usize = 8;

/// The body of a Supply: contents of the pages referred to at once that the receiver has not.
#[must_use]
pub fn encode_supply(contents: Vec<u8>, compressor: Option<&mut Compressor>) -> Vec<u8> {
    let coded = literals::encode(contents, compressor);
    let mut out = Vec::with_capacity(SUPPLY_HEADER + coded.payload.len());
    out.extend(coded.decoded.to_le_bytes());
    out.extend(coded.coding.field());
    out.extend(coded.payload);
    out
}

/// Reads the body of a Supply.
///
/// # Errors
/// If it is not whole pages, or more than a segment can hold.
pub fn decode_supply(body: &[u8], expander: &mut Expander) -> Result<Vec<u8>, WireError> {
    let malformed = WireError::Protocol("form of a Supply");
    let Some(([l0, l1, l2, l3, coding @ ..], payload)) = body.split_first_chunk::<SUPPLY_HEADER>()
    else {
        return Err(malformed);
    };
    let decoded = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
    let whole = (decoded as usize).is_multiple_of(PAGE_SIZE) && decoded as usize <= LONGEST_SEGMENT;
    match Coding::of(*coding) {
        _ if !whole || decoded == 0 => Err(malformed),
        Some(Coding::Raw) if payload.len() == decoded as usize => Ok(payload.to_vec()),
        Some(Coding::Zstd) => expander.expand(payload, decoded).map(<[u8]>::to_vec),
        _ => Err(malformed),
    }
}
