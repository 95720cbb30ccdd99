//! Copies of VMs that left this host: what a VM that comes back brings along need not be sent.
//!
//! The sender's [`Keeper`] writes a copy while a VM leaves; the receiver looks for pages in the
//! [`Copies`] of a directory. A copy is a cache: encrypted under its scope's key, bounded in age
//! and size, and given up without harm at the first error. The file's format is
//! `docs/formats/pageshare-kept.md`.

mod copies;
mod file;
mod keeper;

pub use copies::Copies;
pub use keeper::{KeepIn, Keeper, KeptPages};

/// What a finished copy's name ends with.
const FINISHED: &str = "kept";
/// A copy that is being written.
const PARTIAL: &str = "partial";

/// Seconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
