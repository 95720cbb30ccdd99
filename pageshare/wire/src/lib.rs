//! What the two proxies say to each other: versions 2 and 3, specified byte by byte in
//! `docs/formats/pageshare-wire.md`. This crate encodes, decodes and decides; it does no I/O.
//!
//! One connection of QEMU's is one connection between the proxies, a *channel*. On each:
//!
//! ```text
//! sender                                        receiver
//!   Hello      magic, versions, migration, scope ──▶
//!   ◀── Welcome   the version to use, window, proof that it holds the scope
//!   Confirm    proof that the sender holds it, or "go on without" ──▶
//!   records, each with a fixed raw header:
//!   Ask n      hashes of the pages of segment n, and of earlier versions of some ──▶
//!   ◀── Answer n  which of them the receiver has copied and verified
//!   Segment n  the stream's next bytes, in order; it may refer to pages before the answer ──▶
//!   Supply n   what the answer shows to be missing of those ──▶
//!   ◀── Credit    stream bytes that the destination QEMU has accepted
//!   ◀── Reverse   bytes of QEMU's return path
//!   Probe n    hashes of which the receiver is to keep nothing (an estimate), answered too ──▶
//!   End        QEMU has closed its writing side ──▶
//!   ◀── ReverseEnd
//!   ◀── Abort ──▶ at any time: one sentence, then the connection closes
//! ```
//!
//! **The receiver's states.** *Greeting* until a Hello has come (anything else closes the
//! connection); *Confirming* until the Confirm; then as [`receiver::Receiver`] has it: *Open* until
//! End; *Ended*: only Supplies that segments wait for, and Abort, may follow.
//! **The sender's states** are [`sender::Sender`]'s: open until its End has left and the receiver's
//! ReverseEnd has come, in whichever order; then the connection may close.
//! A connection that closes without End was cut: the receiver closes QEMU's connection without
//! a half-close, so QEMU sees a failed migration. What a record's fields may hold is checked
//! before any of it is used, and a record that breaks the protocol ends the channel with an Abort
//! that says what was wrong.
//!
//! **The order of segments is the order of the stream**; answers may be waited for while later
//! segments are being read, asked and compressed. A sender may have at most the agreed window of
//! *expanded* stream bytes unacknowledged, and as many pages asked as fit into it.
//!
//! **Integrity.** Without TLS every record carries a CRC32C. A page that was asked for must have
//! the hash that it was asked by, whether it came as a reference or as content. Every segment
//! carries a chained digest over the segments' structure and hashes so far. Each is checked before
//! a byte of the segment reaches QEMU.

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod ask;
mod chain;
pub mod delta;
pub mod hello;
mod literals;
mod noise;
mod page_set;
pub mod receiver;
pub mod record;
pub mod segment;
pub mod sender;
mod versions;
pub mod window;

pub use chain::Chain;
pub use literals::{Compressor, Expander};
pub use page_set::PageSet;
pub use versions::Versions;

/// A peer that does not keep to the protocol, or bytes that were damaged on the way.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// The connection does not begin as pageshare's does.
    #[error("the peer is not pageshare (it began with {0:02x?})")]
    Magic([u8; 4]),
    /// No version that both speak. Short: a receiver's refusal has [room](hello::REASON_BYTES) for it.
    #[error(
        "no common version: the sender speaks {sender}, the receiver {receiver}; upgrade the older \
         pageshare"
    )]
    Versions {
        /// Those that the sender speaks.
        sender: Versions,
        /// Those that the receiver speaks.
        receiver: Versions,
    },
    /// The receiver's own words.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// A field that breaks the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// A checksum or digest that does not match.
    #[error("data was damaged on the way ({0})")]
    Damaged(&'static str),
    /// The peer gave up, with its own words.
    #[error("the peer gave up: {0}")]
    Aborted(String),
}
