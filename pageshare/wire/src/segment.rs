//! Segments: a stretch of the stream as operations and literal bytes.
//!
//! The sender [drafts](Draft) a segment from tokens, learns which of its pages the receiver has,
//! and [encodes](Draft::encode) it. The receiver [parses](SegmentView::parse) and
//! [expands](SegmentView::expand) it to the very same bytes.

mod draft;
mod expand;
mod states;

pub use draft::{Draft, Encoded};
pub use expand::{Held, Placed, SegmentView};

/// How a page that was asked for travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Treatment {
    /// As its content, among the literal bytes.
    #[default]
    Content = 0,
    /// As a reference to the copy that the receiver's answer affirmed.
    Reference = 1,
    /// As a reference made before the answer came: to the copy, or else to what a Supply brings.
    AtOnce = 2,
    /// As the difference from an earlier version whose copy the answer affirmed: among the literal
    /// bytes, a 16-bit length and a [delta](crate::delta).
    Delta = 3,
}

/// Operations, in the order of the stream. Zero is no operation.
mod op {
    /// `u32 n`: the next n literal bytes.
    pub(super) const LITERAL: u8 = 1;
    /// `u64 word, u32 n`: n zero pages with consecutive addresses.
    pub(super) const ZEROS: u8 = 2;
    /// `u64 word, u32 n, 2n bits`: n pages with consecutive addresses, each its word and its
    /// content; two bits a page say how the content travels.
    pub(super) const PAGES: u8 = 3;
    /// `u32 n, 2n bits`: n page contents without words.
    pub(super) const CONTENTS: u8 = 4;
}

/// Bytes before the operations.
pub const SEGMENT_HEADER_BYTES: usize = 32;
