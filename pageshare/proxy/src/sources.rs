//! Where the receiver looks for pages: memory of other QEMU processes, and image files.
//!
//! [`scan`] reads them once and makes a [`Library`]; the library answers "do you have a page with
//! this hash" by copying a candidate and hashing the copy.

mod arrival;
mod library;
mod list;
mod memory;
mod process;
mod qcow2;
mod reader;
mod scan;
mod select;
mod spec;

pub use arrival::{Arrival, arrival};
pub use library::Library;
pub(crate) use library::read_index;
pub use list::processes;
pub use memory::{Memory, Wanted};
pub use process::{Run, guest_mappings, is_qemu, memory, touched};
pub use scan::{Scanned, rescan, scan};
pub use select::Selector;
pub use spec::SourceSpec;
