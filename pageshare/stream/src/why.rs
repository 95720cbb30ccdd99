//! Why a parser stopped understanding.

use thiserror::Error;

/// From which byte on a channel is passed through untouched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// Offset in the channel of the first byte that was not parsed.
    pub at: u64,
    /// What stood there.
    pub why: Why,
}

/// What a parser met that it passes on without understanding. Only [`Why::AfterRam`] and
/// [`Why::Postcopy`] are part of every healthy migration of their kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Why {
    /// RAM is complete; device state follows, which has no lengths.
    #[error("RAM is complete, device state follows")]
    AfterRam,
    /// The command that starts postcopy.
    #[error("postcopy begins (command {0})")]
    Postcopy(u16),
    /// A command of the main channel that this version does not know.
    #[error("unknown command {0}")]
    Command(u16),
    /// A command whose length contradicts its kind.
    #[error("command {command} has length {length}")]
    CommandLength {
        /// The command's number.
        command: u16,
        /// The length it declares.
        length: u16,
    },
    /// The channel begins with neither of QEMU's magic numbers.
    #[error("neither QEMU's main channel nor a multifd channel")]
    Magic,
    /// The channel begins as TLS does.
    #[error(
        "QEMU encrypts the stream itself: turn its tls-creds off, the proxies have TLS of their own"
    )]
    Tls,
    /// Pages in a form that only QEMU reads.
    #[error(
        "QEMU compresses pages itself: set multifd-compression to none, or turn the capability \
         compress off, and the proxies find and compress them"
    )]
    Compressed,
    /// A stream version other than 3, or a multifd version other than 1.
    #[error("unknown version {0}")]
    Version(u32),
    /// A subsection of the configuration that is not known, so of unknown length.
    #[error("unknown subsection `{0}` of the configuration")]
    Subsection(String),
    /// A guest page size other than 4 KiB.
    #[error("guest pages of 2^{0} bytes")]
    PageBits(u32),
    /// A migration capability that changes the format in a way not parsed.
    #[error("capability `{0}`")]
    Capability(String),
    /// A section of something other than RAM, whose length only QEMU knows.
    #[error("section of `{0}`")]
    Section(String),
    /// A part or end of a section that was never opened as RAM.
    #[error("section {0} was not opened as RAM")]
    SectionId(u32),
    /// RAM's section has a version other than 4.
    #[error("RAM section version {0}")]
    RamVersion(u32),
    /// A byte that begins no section.
    #[error("section type {0:#04x}")]
    SectionType(u8),
    /// A RAM word with flags that have no meaning here.
    #[error("RAM word {0:#x}")]
    RamWord(u64),
    /// A RAM block list that does not add up to its total.
    #[error("RAM blocks do not add up to {0} bytes")]
    RamBlocks(u64),
    /// A RAM block list that goes on and on.
    #[error("more than {0} RAM blocks")]
    MoreBlocks(usize),
    /// A length beyond what QEMU writes.
    #[error("length {0} is beyond what QEMU writes")]
    Length(u64),
    /// Flags of a multifd packet that are not known.
    #[error("multifd packet flags {0:#x}")]
    PacketFlags(u32),
    /// A multifd packet whose counts contradict each other.
    #[error("multifd packet of {normal} pages of {allocated}, {bytes} bytes")]
    PacketCounts {
        /// Pages whose content follows.
        normal: u32,
        /// Slots in the packet's table.
        allocated: u32,
        /// Declared size of the content.
        bytes: u32,
    },
    /// The channel ended inside an item.
    #[error("the channel ended inside an item")]
    Truncated,
}

impl Why {
    /// Whether what is passed on may hold pages.
    #[must_use]
    pub fn hides_pages(&self) -> bool {
        !matches!(self, Self::AfterRam | Self::Truncated)
    }
}
