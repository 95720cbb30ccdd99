//! Live migration of QEMU guests that does not send what the destination already has.
//!
//! Read in this order: [`cli`] is what an operator can say; [`send`] and [`receive`] are the two
//! proxies; [`link`](mod@link) is the connection between them; [`sources`] is where the receiver
//! looks for pages. The protocol is `pageshare_wire`, the stream format `pageshare_stream`.

#![forbid(unsafe_code)]

pub mod address;
pub mod blocks;
mod buffers;
pub mod cli;
mod command_line;
pub mod counters;
pub mod drive;
pub mod error;
pub mod estimate;
mod files;
pub mod fuse;
mod gate;
pub mod guest_memory;
pub mod handshake;
pub mod inspect;
pub mod kept;
pub mod ksm;
pub mod link;
pub mod metrics;
pub mod plan;
mod processor;
pub mod qmp;
pub mod receive;
pub mod record;
pub mod scope;
pub mod send;
mod signals;
pub mod socket;
pub mod sources;
mod threads;
mod unread;
