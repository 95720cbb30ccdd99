//! Segments: a stretch of the stream as operations and literal bytes.
//!
//! The sender [drafts](Draft) a segment from tokens, learns which of its pages the receiver has,
//! and [encodes](Draft::encode) it. The receiver [parses](SegmentView::parse) and
//! [expands](SegmentView::expand) it to the very same bytes.

mod draft;
mod expand;

pub use draft::{Compressor, Draft, Encoded};
pub use expand::{Held, SegmentView};

/// Operations, in the order of the stream. Zero is no operation.
mod op {
    /// `u32 n`: the next n literal bytes.
    pub(super) const LITERAL: u8 = 1;
    /// `u64 word, u32 n`: n zero pages with consecutive addresses.
    pub(super) const ZEROS: u8 = 2;
    /// `u64 word, u32 n, n bits`: n pages with consecutive addresses, each its word and its
    /// content; a set bit says that the receiver holds the content.
    pub(super) const PAGES: u8 = 3;
    /// `u32 n, n bits`: n page contents without words.
    pub(super) const CONTENTS: u8 = 4;
}

/// How the literal bytes are coded. Zero is no coding.
mod coding {
    pub(super) const RAW: u8 = 1;
    pub(super) const ZSTD: u8 = 2;
}

/// Bytes before the operations.
pub const SEGMENT_HEADER_BYTES: usize = 32;
