//! What the formats' parsers return: a token and its length, or why there is none.

use crate::cursor::Short;
use crate::why::Why;
use crate::word::{PAGE_SIZE, RamWord};

/// What the front of the input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Bytes to pass on as they are: structure, deltas, or what is not understood.
    Bytes,
    /// A zero page of the block named last: this word and one zero byte.
    Zero(RamWord),
    /// A page of the block named last: this word and [`PAGE_SIZE`] bytes of content.
    Page(RamWord),
    /// [`PAGE_SIZE`] bytes of content whose address stands elsewhere: behind a block's name, or in
    /// the table of a multifd packet.
    Content,
}

impl Token {
    /// Offset of the page's content within the token, for those that have one.
    #[must_use]
    pub fn content_at(self) -> Option<usize> {
        match self {
            Self::Page(_) => Some(8),
            Self::Content => Some(0),
            Self::Bytes | Self::Zero(_) => None,
        }
    }
}

/// A format's parser reports either a shortage or a reason to stop parsing.
pub(crate) enum Stop {
    Short,
    Why(Why),
}

impl From<Short> for Stop {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

impl From<Why> for Stop {
    fn from(why: Why) -> Self {
        Self::Why(why)
    }
}

pub(crate) type Parsed = Result<(Token, usize), Stop>;

/// Bytes of a page's content with its word in front.
pub(crate) const WORD_AND_PAGE: usize = 8 + PAGE_SIZE;
