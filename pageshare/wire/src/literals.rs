//! Bytes that travel as they are, or in one zstd frame.

use crate::WireError;

/// Fewer bytes than this are not worth a compressor's call: words of pages that are found, and such.
const SMALLEST_COMPRESSED: usize = 1 << 10;

/// How the bytes are coded. Zero is no coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Coding {
    Raw = 1,
    Zstd = 2,
}

impl Coding {
    /// The coding of a header's four bytes.
    pub(crate) fn of(field: [u8; 4]) -> Option<Self> {
        match field {
            [1, 0, 0, 0] => Some(Self::Raw),
            [2, 0, 0, 0] => Some(Self::Zstd),
            _ => None,
        }
    }

    pub(crate) fn field(self) -> [u8; 4] {
        [self as u8, 0, 0, 0]
    }
}

/// About a segment.
const FIRST_USE: usize = 256 << 10;

/// A zstd context, kept from one segment to the next.
pub struct Compressor {
    zstd: zstd::bulk::Compressor<'static>,
    /// The buffer of the bytes that were compressed last, for the next frame.
    spare: Vec<u8>,
}

impl Compressor {
    /// A compressor of this zstd level.
    ///
    /// # Errors
    /// If zstd has no such level or no memory.
    pub fn new(level: i32) -> std::io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Compressor::new(level)?, spare: Vec::new() })
    }

    /// Puts the tables in place: made at the first use, they would make that look several times as
    /// dear as the next. For whoever takes the time of each use.
    pub fn make_ready(&mut self) {
        // Where it fails, the first use will.
        let _ = self.shrink(&mut vec![0; FIRST_USE]);
    }

    /// Puts the frame in the place of the bytes, if it is smaller by a 32nd: less would not pay
    /// for expanding it again. Returns whether it did.
    fn shrink(&mut self, bytes: &mut Vec<u8>) -> bool {
        self.spare.clear();
        // A frame that does not fit is none that is wanted.
        self.spare.reserve(bytes.len());
        let small = self.zstd.compress_to_buffer(&bytes[..], &mut self.spare);
        let pays = small.is_ok_and(|small| small + bytes.len() / 32 < bytes.len());
        if pays {
            std::mem::swap(bytes, &mut self.spare);
        }
        pays
    }
}

/// What expands frames, kept from one to the next.
pub struct Expander {
    zstd: zstd::bulk::Decompressor<'static>,
    bytes: Vec<u8>,
}

impl Expander {
    /// An expander.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Decompressor::new()?, bytes: Vec::new() })
    }

    /// Expands a frame, which has to come to exactly `decoded` bytes. One that claims to come to
    /// more ends where the buffer does: that has room for the longest so far.
    pub(crate) fn expand(&mut self, frame: &[u8], decoded: u32) -> Result<&[u8], WireError> {
        self.bytes.clear();
        self.bytes.reserve(decoded as usize);
        let expanded = self.zstd.decompress_to_buffer(frame, &mut self.bytes);
        let length = expanded.map_err(|_| WireError::Damaged("compressed bytes"))?;
        if length != decoded as usize {
            return Err(WireError::Protocol("length of compressed bytes"));
        }
        Ok(&self.bytes)
    }
}

/// Literal bytes, coded.
pub(crate) struct Coded {
    pub(crate) coding: Coding,
    pub(crate) payload: Vec<u8>,
    /// Bytes before coding.
    pub(crate) decoded: u32,
    /// Compression was tried.
    pub(crate) tried: bool,
}

/// Compresses, if there is a compressor and it pays.
pub(crate) fn encode(mut bytes: Vec<u8>, compressor: Option<&mut Compressor>) -> Coded {
    let decoded = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let compressor = compressor.filter(|_| bytes.len() >= SMALLEST_COMPRESSED);
    let tried = compressor.is_some();
    let small = compressor.is_some_and(|compressor| compressor.shrink(&mut bytes));
    let coding = if small { Coding::Zstd } else { Coding::Raw };
    Coded { coding, payload: bytes, decoded, tried }
}
