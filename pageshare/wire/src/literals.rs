//! Bytes that travel as they are, or in one zstd frame.

use std::io::Read;

use crate::WireError;

/// Fewer bytes than this are not worth a compressor's call.
const SMALLEST_COMPRESSED: usize = 64;

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
pub struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    /// A compressor of this zstd level.
    ///
    /// # Errors
    /// If zstd has no such level or no memory.
    pub fn new(level: i32) -> std::io::Result<Self> {
        zstd::bulk::Compressor::new(level).map(Self)
    }

    /// Puts the tables in place: made at the first use, they would make that look several times as
    /// dear as the next. For whoever takes the time of each use.
    pub fn make_ready(&mut self) {
        // Where it fails, the first use will.
        let _ = self.shrink(&vec![0; FIRST_USE]);
    }

    /// The frame, if it is smaller by a 32nd: less would not pay for expanding it again.
    fn shrink(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let small = self.0.compress(bytes).ok()?;
        (small.len() + bytes.len() / 32 < bytes.len()).then_some(small)
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
pub(crate) fn encode(bytes: Vec<u8>, compressor: Option<&mut Compressor>) -> Coded {
    let decoded = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let compressor = compressor.filter(|_| bytes.len() >= SMALLEST_COMPRESSED);
    let tried = compressor.is_some();
    match compressor.and_then(|compressor| compressor.shrink(&bytes)) {
        Some(payload) => Coded { coding: Coding::Zstd, payload, decoded, tried },
        None => Coded { coding: Coding::Raw, payload: bytes, decoded, tried },
    }
}

/// Expands a frame to exactly `decoded` bytes, and never to more.
pub(crate) fn decompress(frame: &[u8], decoded: u32) -> Result<Vec<u8>, WireError> {
    let damaged = |_| WireError::Damaged("compressed bytes");
    let mut out = Vec::with_capacity(decoded as usize);
    let decoder = zstd::stream::Decoder::with_buffer(frame).map_err(damaged)?;
    // One byte more than declared shows a frame that would expand further.
    decoder.take(u64::from(decoded) + 1).read_to_end(&mut out).map_err(damaged)?;
    if out.len() != decoded as usize {
        return Err(WireError::Protocol("length of compressed bytes"));
    }
    Ok(out)
}
