//! Copies of VMs that left this host, or came to it: what a VM brings along that has been here
//! before need not be sent.
//!
//! A [`Keeper`] writes a copy while a VM migrates, at either end. A receiver looks for pages in the
//! [`Copies`] of a directory; a sender takes differences to what pages held [`Earlier`]. A copy is
//! a cache: encrypted under its scope's key, bounded in age and size, and given up without harm at
//! the first error. The file's format is `docs/formats/pageshare-kept.md`.

mod copies;
mod directory;
mod earlier;
mod file;
mod keeper;
mod keeping;
mod opened;
mod quota;
mod writer;

pub use copies::Copies;
pub use earlier::{Earlier, KeptIn, Version};
pub use keeper::{Holds, KeepIn, Keeper, KeptPages};
pub use keeping::Keeping;

/// Seconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
