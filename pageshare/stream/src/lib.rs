//! QEMU's migration stream, parsed and emitted without any I/O.
//!
//! The byte format is specified in `docs/formats/qemu-stream.md`. [`Parser`] cuts one channel's
//! bytes into [`Token`]s: page contents, zero pages, and everything between them. Tokens cover
//! every byte, in order: concatenated they are the stream. What the parser does not understand it
//! passes on verbatim from there, with the reason in [`Parser::verbatim`]; it never fails.
//!
//! A channel is recognised by its first bytes: the main channel (`QEVM`), a multifd channel
//! (`11 22 33 44`), or something else, which is verbatim from its first byte.
//!
//! [`reference`](mod@reference) is a second parser, slow and obvious, which holds the whole stream
//! at once. Tests and fuzzing compare the two.

#![forbid(unsafe_code)]

mod cursor;
pub mod emit;
mod main_channel;
mod multifd;
mod parser;
pub mod reference;
mod return_path;
mod token;
mod virtio_mem;
mod why;
mod word;

pub use main_channel::{MOST_BLOCKS, RamBlock};
pub use multifd::says_nothing;
pub use parser::{ChannelKind, Parser, Step};
pub use return_path::ReturnPath;
pub use token::Token;
pub use why::{Verbatim, Why};
pub use word::{PAGE_SIZE, RamWord};
