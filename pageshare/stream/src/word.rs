//! The 64-bit word that opens every item of the `ram` section.

/// Bytes in a guest page. QEMU's x86 and generic Arm targets send pages of this size; a stream
/// that declares another one is passed on verbatim.
pub const PAGE_SIZE: usize = 4096;

/// An address within a RAM block, with flags in its low twelve bits; big-endian in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RamWord(pub u64);

impl RamWord {
    /// One byte follows that fills the whole page; QEMU writes zero.
    pub const ZERO: u64 = 0x02;
    /// The list of RAM blocks follows; the address is the sum of their sizes.
    pub const MEM_SIZE: u64 = 0x04;
    /// The page's content follows.
    pub const PAGE: u64 = 0x08;
    /// Nothing more in this section.
    pub const EOS: u64 = 0x10;
    /// The page belongs to the block named last, so no name follows.
    pub const CONTINUE: u64 = 0x20;
    /// An XBZRLE delta follows.
    pub const XBZRLE: u64 = 0x40;
    /// RDMA's control messages.
    pub const HOOK: u64 = 0x80;
    /// A page compressed by QEMU (until 9.0) follows.
    pub const COMPRESS: u64 = 0x100;
    /// The receiver waits here for its multifd channels (8.1 on).
    pub const MULTIFD_FLUSH: u64 = 0x200;

    const FLAGS: u64 = PAGE_SIZE as u64 - 1;

    /// The flags alone.
    #[must_use]
    pub fn flags(self) -> u64 {
        self.0 & Self::FLAGS
    }

    /// The address alone, a multiple of the page size.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 & !Self::FLAGS
    }

    /// The word of the page that lies `pages` further in the same block, with the same flags.
    /// Wraps, as the bytes of a hostile stream may.
    #[must_use]
    pub fn plus_pages(self, pages: u64) -> Self {
        Self(self.0.wrapping_add(pages.wrapping_mul(PAGE_SIZE as u64)))
    }

    /// The eight bytes in the stream.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}
