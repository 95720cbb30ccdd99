//! A multifd channel: a hello of 64 bytes, then packets, each a header with a table of page
//! offsets followed by the pages' contents.

use crate::cursor::Cursor;
use crate::token::{Parsed, Stop, Token};
use crate::why::Why;
use crate::word::PAGE_SIZE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Hello,
    Packet,
    /// This many page contents follow.
    Pages(u32),
    /// This many bytes, compressed by QEMU, follow.
    Opaque(u32),
}

pub(crate) struct Multifd {
    at: At,
    /// The last packet's block, the offsets of its pages in it, and how many were returned.
    block: Vec<u8>,
    offsets: Vec<u64>,
    returned: usize,
    /// What was returned last was pages that QEMU has compressed.
    compressed: bool,
}

const HELLO: usize = 64;
const VERSION: u32 = 1;
/// Header before the table: magic, version, flags, allocated, normal, next size, number, four
/// words of which 9.0 uses one, and the block's name.
const FIXED: usize = 4 * 6 + 8 + 32 + BLOCK_NAME;
const BLOCK_NAME: usize = 256;
/// Where 9.0 counts zero pages, whose offsets the table has too.
const ZEROS: usize = 4 * 6 + 8;
const MOST_PAGES: u32 = 8192;
/// Slots of every table, for pages of 4 KiB. From 9.1 on a packet that only synchronises has the
/// table all the same and says that it has none.
const USUAL_SLOTS: u32 = 128;
const LONGEST_PAYLOAD: u32 = 2 * MOST_PAGES * 4096;

const SYNC: u32 = 1;
const METHOD: u32 = 0x3e;
const METHOD_NONE: u32 = 0;
const METHOD_ZLIB: u32 = 2;
const METHOD_ZSTD: u32 = 4;

/// Whether these packets of a multifd channel, each whole, say nothing: they bring no page and
/// await nothing. QEMU 7.2 sends one behind a packet of pages that it has marked in haste to
/// synchronise.
#[must_use]
pub fn says_nothing(mut packets: &[u8]) -> bool {
    while !packets.is_empty() {
        let Ok(header) = Header::read(packets) else { return false };
        let zeros = packets.get(ZEROS..ZEROS + 4);
        if header.flags & SYNC != 0 || header.normal != 0 || zeros != Some(&[0; 4]) {
            return false;
        }
        packets = packets.get(header.length()..).unwrap_or_default();
    }
    true
}

/// How a packet begins.
struct Header {
    flags: u32,
    allocated: u32,
    normal: u32,
    bytes: u32,
}

impl Header {
    fn read(input: &[u8]) -> Result<Self, Stop> {
        let mut cursor = Cursor::new(input);
        Multifd::magic(&mut cursor)?;
        let flags = cursor.u32()?;
        let allocated = match cursor.u32()? {
            0 => USUAL_SLOTS,
            slots => slots,
        };
        Ok(Self { flags, allocated, normal: cursor.u32()?, bytes: cursor.u32()? })
    }

    /// With its table.
    fn length(&self) -> usize {
        FIXED + 8 * self.allocated as usize
    }
}

impl Multifd {
    pub(crate) const MAGIC: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

    pub(crate) fn new() -> Self {
        Self {
            at: At::Hello,
            block: Vec::new(),
            offsets: Vec::new(),
            returned: 0,
            compressed: false,
        }
    }

    pub(crate) fn has_compressed(&self) -> bool {
        self.compressed
    }

    /// Block and offset of the page returned last.
    pub(crate) fn page(&self) -> (&[u8], u64) {
        let at = self.returned.checked_sub(1).and_then(|at| self.offsets.get(at));
        (&self.block, at.copied().unwrap_or_default())
    }

    pub(crate) fn step(&mut self, input: &[u8]) -> Parsed {
        self.compressed = matches!(self.at, At::Opaque(_));
        match self.at {
            At::Hello => {
                let mut cursor = Cursor::new(input);
                Self::magic(&mut cursor)?;
                Cursor::new(input).take(HELLO)?;
                self.at = At::Packet;
                Ok((Token::Bytes, HELLO))
            }
            At::Packet => self.packet(input),
            At::Pages(left) => {
                Cursor::new(input).take(PAGE_SIZE)?;
                self.returned += 1;
                self.at = if left == 1 { At::Packet } else { At::Pages(left - 1) };
                Ok((Token::Content, PAGE_SIZE))
            }
            At::Opaque(left) => {
                let length = input.len().min(left as usize);
                // `length` is at most `left`, so it fits and the difference is not negative.
                let rest = left - u32::try_from(length).unwrap_or(left);
                self.at = if rest == 0 { At::Packet } else { At::Opaque(rest) };
                Ok((Token::Bytes, length))
            }
        }
    }

    /// Notes where the packet's pages belong. `header` is as long as its table says.
    fn read_table(&mut self, header: &[u8], normal: u32) {
        let name = &header[FIXED - BLOCK_NAME..FIXED];
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        self.block.clear();
        self.block.extend_from_slice(&name[..length]);
        self.offsets.clear();
        let table = header[FIXED..].chunks_exact(8).take(normal as usize);
        self.offsets
            .extend(table.map(|offset| {
                offset.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
            }));
        self.returned = 0;
    }

    fn magic(cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if cursor.take(4)? != Self::MAGIC {
            return Err(Why::Magic.into());
        }
        let version = cursor.u32()?;
        if version != VERSION {
            return Err(Why::Version(version).into());
        }
        Ok(())
    }

    fn packet(&mut self, input: &[u8]) -> Parsed {
        let packet = Header::read(input)?;
        let Header { flags, allocated, normal, bytes } = packet;
        let method = flags & METHOD;
        if flags & !(SYNC | METHOD) != 0
            || !matches!(method, METHOD_NONE | METHOD_ZLIB | METHOD_ZSTD)
        {
            return Err(Why::PacketFlags(flags).into());
        }
        let sound = allocated <= MOST_PAGES
            && normal <= allocated
            && (normal == 0
                || match method {
                    METHOD_NONE => u64::from(bytes) == u64::from(normal) * PAGE_SIZE as u64,
                    _ => bytes <= LONGEST_PAYLOAD,
                });
        if !sound {
            return Err(Why::PacketCounts { normal, allocated, bytes }.into());
        }
        let length = packet.length();
        let header = Cursor::new(input).take(length)?;
        self.read_table(header, normal);
        // A packet without pages repeats the size of the one before it: its own size is nothing.
        self.at = match (normal, method) {
            (0, _) => At::Packet,
            (_, METHOD_NONE) => At::Pages(normal),
            (_, _) if bytes == 0 => At::Packet,
            (_, _) => At::Opaque(bytes),
        };
        Ok((Token::Bytes, length))
    }
}
