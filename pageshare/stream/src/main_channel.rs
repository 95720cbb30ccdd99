//! The main channel: header, configuration, commands, the `ram` sections, and what virtio-mem writes
//! before them.
//!
//! ```text
//! Preamble -> Sections -> Ram -> Footer -> Sections ... -> (RAM's end) -> verbatim
//!                      -> State -> Footer
//! ```
//!
//! Each state takes one whole item off the input and changes only when it has all of it.

use crate::cursor::{Cursor, text};
use crate::token::{Parsed, Stop, Token, WORD_AND_PAGE};
use crate::virtio_mem;
use crate::why::Why;
use crate::word::{PAGE_SIZE, RamWord};

/// One RAM block, as the setup section lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RamBlock {
    /// QEMU's name of it, such as `pc.ram`.
    pub name: String,
    /// Its used size in bytes.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Preamble,
    Sections,
    Ram,
    /// Block list with this many bytes still to be named, of this total.
    Blocks {
        left: u64,
        total: u64,
    },
    /// Content of a page whose word named its block.
    Content,
    /// So many bytes of a device's state.
    State(u64),
    /// After a section: perhaps its footer.
    Footer,
    /// After the footer of RAM's last section.
    RamDone,
}

pub(crate) struct MainChannel {
    at: At,
    ram: Option<u32>,
    /// Number of the section that is being read.
    section: u32,
    /// The section being read is RAM's last.
    last: bool,
    ignore_shared: bool,
    postcopy: bool,
    return_path: bool,
    blocks: Vec<RamBlock>,
    machine: Option<String>,
    /// Name of the block that the last page belongs to, and the page's offset in it.
    block: Vec<u8>,
    offset: u64,
    /// The item returned last was a page that QEMU has compressed.
    compressed: bool,
}

const CONFIGURATION: u8 = 0x07;
const SUBSECTION: u8 = 0x05;
const COMMAND: u8 = 0x08;
const START: u8 = 0x01;
const PART: u8 = 0x02;
const END: u8 = 0x03;
const FULL: u8 = 0x04;
const FOOTER: u8 = 0x7e;

const RAM_VERSION: u32 = 4;
const PAGE_BITS: u32 = 12;
const LONGEST_NAME: u32 = 4096;
const LONGEST_COMPRESSED: u32 = 8192;
const MOST_CAPABILITIES: u32 = 128;
/// More RAM blocks than this no QEMU has. They are remembered, and who writes the stream may be hostile.
pub const MOST_BLOCKS: usize = 1024;

impl MainChannel {
    pub(crate) const MAGIC: [u8; 4] = *b"QEVM";
    const VERSION: u32 = 3;

    pub(crate) fn new() -> Self {
        Self {
            at: At::Preamble,
            ram: None,
            section: 0,
            last: false,
            ignore_shared: false,
            postcopy: false,
            return_path: false,
            blocks: Vec::new(),
            machine: None,
            block: Vec::new(),
            offset: 0,
            compressed: false,
        }
    }

    pub(crate) fn has_compressed(&self) -> bool {
        self.compressed
    }

    pub(crate) fn blocks(&self) -> &[RamBlock] {
        &self.blocks
    }

    pub(crate) fn has_listed_blocks(&self) -> bool {
        !self.blocks.is_empty() && !matches!(self.at, At::Blocks { left: 1.., .. })
    }

    pub(crate) fn opens_return_path(&self) -> bool {
        self.return_path
    }

    pub(crate) fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// Block and offset of the page returned last.
    pub(crate) fn page(&self) -> (&[u8], u64) {
        (&self.block, self.offset)
    }

    pub(crate) fn step(&mut self, input: &[u8]) -> Parsed {
        self.compressed = false;
        match self.at {
            At::Preamble => self.preamble(input),
            At::Sections => self.section(input),
            At::Ram => self.ram_word(input),
            At::Blocks { left, total } => self.ram_block(input, left, total),
            At::Content => {
                Cursor::new(input).take(PAGE_SIZE)?;
                self.at = At::Ram;
                Ok((Token::Content, PAGE_SIZE))
            }
            At::State(left) => {
                let length =
                    usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                let rest = left - length as u64;
                self.at = if rest == 0 { At::Footer } else { At::State(rest) };
                Ok((Token::Bytes, length))
            }
            At::Footer => self.footer(input),
            At::RamDone => Err(Why::AfterRam.into()),
        }
    }

    fn preamble(&mut self, input: &[u8]) -> Parsed {
        let mut cursor = Cursor::new(input);
        cursor.take(Self::MAGIC.len())?;
        let version = cursor.u32()?;
        if version != Self::VERSION {
            return Err(Why::Version(version).into());
        }
        self.at = At::Sections;
        Ok((Token::Bytes, cursor.position()))
    }

    fn section(&mut self, input: &[u8]) -> Parsed {
        let mut cursor = Cursor::new(input);
        match cursor.u8()? {
            CONFIGURATION => {
                let length = cursor.u32()?;
                if length > LONGEST_NAME {
                    return Err(Why::Length(length.into()).into());
                }
                self.machine = Some(text(cursor.take(length as usize)?));
            }
            SUBSECTION => self.subsection(&mut cursor)?,
            COMMAND => self.command(&mut cursor)?,
            kind @ (START | FULL) => {
                let id = cursor.u32()?;
                let name = cursor.name()?;
                let _instance = cursor.u32()?;
                let version = cursor.u32()?;
                if kind == FULL && virtio_mem::is_early(name, version) {
                    let bits = virtio_mem::bitmap_bytes(&mut cursor)?;
                    let bits = bits.ok_or_else(|| Why::Section(text(name)))?;
                    self.section = id;
                    self.at = if bits == 0 { At::Footer } else { At::State(bits) };
                    return Ok((Token::Bytes, cursor.position()));
                }
                if name != b"ram" {
                    return Err(Why::Section(text(name)).into());
                }
                if version != RAM_VERSION {
                    return Err(Why::RamVersion(version).into());
                }
                self.ram = Some(id);
                self.section = id;
                self.at = At::Ram;
            }
            kind @ (PART | END) => {
                let id = cursor.u32()?;
                if self.ram != Some(id) {
                    return Err(Why::SectionId(id).into());
                }
                self.section = id;
                self.last = kind == END;
                self.at = At::Ram;
            }
            other => return Err(Why::SectionType(other).into()),
        }
        Ok((Token::Bytes, cursor.position()))
    }

    /// The configuration's subsections, whose lengths follow from their names alone.
    fn subsection(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let name = cursor.name()?;
        let _version = cursor.u32()?;
        match name {
            b"configuration/target-page-bits" => {
                let bits = cursor.u32()?;
                if bits != PAGE_BITS {
                    return Err(Why::PageBits(bits).into());
                }
            }
            b"configuration/capabilities" => {
                let count = cursor.u32()?;
                if count > MOST_CAPABILITIES {
                    return Err(Why::Length(count.into()).into());
                }
                let mut ignore_shared = false;
                for _ in 0..count {
                    match cursor.name()? {
                        b"x-ignore-shared" => ignore_shared = true,
                        other => return Err(Why::Capability(text(other)).into()),
                    }
                }
                self.ignore_shared = ignore_shared;
            }
            b"configuration/uuid" => {
                cursor.take(16)?;
            }
            other => return Err(Why::Subsection(text(other)).into()),
        }
        Ok(())
    }

    fn command(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        const OPEN_RETURN_PATH: u16 = 1;
        const PING: u16 = 2;
        const POSTCOPY_ADVISE: u16 = 3;
        const POSTCOPY_LISTEN: u16 = 4;
        const RECEIVED_BITMAP: u16 = 10;
        const SWITCHOVER_START: u16 = 11;

        let command = cursor.u16()?;
        let length = cursor.u16()?;
        match (command, length) {
            (OPEN_RETURN_PATH, 0) => self.return_path = true,
            (SWITCHOVER_START, 0) | (PING, 4) => {}
            (POSTCOPY_ADVISE, 0 | 16) => self.postcopy = true,
            (OPEN_RETURN_PATH | PING | POSTCOPY_ADVISE | SWITCHOVER_START, _) => {
                return Err(Why::CommandLength { command, length }.into());
            }
            (POSTCOPY_LISTEN..=RECEIVED_BITMAP, _) => return Err(Why::Postcopy(command).into()),
            _ => return Err(Why::Command(command).into()),
        }
        cursor.take(usize::from(length))?;
        Ok(())
    }

    fn ram_word(&mut self, input: &[u8]) -> Parsed {
        let mut cursor = Cursor::new(input);
        let word = RamWord(cursor.u64()?);
        let named = word.flags() & RamWord::CONTINUE == 0;
        match word.flags() & !RamWord::CONTINUE {
            RamWord::PAGE if named => {
                let name = cursor.name()?;
                self.name_block(name);
                self.offset = word.address();
                self.at = At::Content;
            }
            RamWord::PAGE => {
                cursor.take(PAGE_SIZE)?;
                self.offset = word.address();
                return Ok((Token::Page(word), WORD_AND_PAGE));
            }
            RamWord::ZERO => {
                let name = if named { Some(cursor.name()?) } else { None };
                let fill = cursor.u8()?;
                if let Some(name) = name {
                    self.name_block(name);
                }
                if fill == 0 && !named {
                    return Ok((Token::Zero(word), cursor.position()));
                }
            }
            RamWord::XBZRLE => {
                let name = if named { Some(cursor.name()?) } else { None };
                cursor.u8()?;
                let length = cursor.u16()?;
                cursor.take(usize::from(length))?;
                if let Some(name) = name {
                    self.name_block(name);
                }
            }
            RamWord::COMPRESS => {
                let name = if named { Some(cursor.name()?) } else { None };
                let length = cursor.u32()?;
                if length > LONGEST_COMPRESSED {
                    return Err(Why::Length(length.into()).into());
                }
                cursor.take(length as usize)?;
                if let Some(name) = name {
                    self.name_block(name);
                }
                self.compressed = true;
            }
            RamWord::MEM_SIZE if named => {
                self.blocks.clear();
                let total = word.address();
                self.at = At::Blocks { left: total, total };
            }
            RamWord::MULTIFD_FLUSH if named && word.address() == 0 => {}
            RamWord::EOS if named && word.address() == 0 => self.at = At::Footer,
            _ => return Err(Why::RamWord(word.0).into()),
        }
        Ok((Token::Bytes, cursor.position()))
    }

    fn name_block(&mut self, name: &[u8]) {
        self.block.clear();
        self.block.extend_from_slice(name);
    }

    /// One block of the list, or the end of the list, which takes no bytes.
    fn ram_block(&mut self, input: &[u8], left: u64, total: u64) -> Parsed {
        if left == 0 {
            self.at = At::Ram;
            return self.ram_word(input);
        }
        let mut cursor = Cursor::new(input);
        let name = cursor.name()?;
        let bytes = cursor.u64()?;
        if name.is_empty() || bytes == 0 || bytes > left {
            return Err(Why::RamBlocks(total).into());
        }
        if self.blocks.len() == MOST_BLOCKS {
            return Err(Why::MoreBlocks(MOST_BLOCKS).into());
        }
        if self.postcopy && self.ignore_shared {
            // Which of the two optional fields follows cannot be told from the bytes.
            return Err(Why::Capability("x-ignore-shared with postcopy".into()).into());
        }
        // With postcopy, a block of huge pages adds its page size. Only a look ahead tells: that
        // size begins with a zero byte, which begins no block's name, and has no flag, which
        // every RAM word has.
        let mut ahead = Cursor::new(&input[cursor.position()..]);
        let has_page_size = self.postcopy
            && if left > bytes { ahead.u8()? == 0 } else { RamWord(ahead.u64()?).flags() == 0 };
        if has_page_size {
            cursor.u64()?;
        }
        if self.ignore_shared {
            cursor.u64()?;
        }
        self.blocks.push(RamBlock { name: text(name), bytes });
        self.at = At::Blocks { left: left - bytes, total };
        Ok((Token::Bytes, cursor.position()))
    }

    /// Machine types before 2.4 write no footer, so its absence is no error.
    fn footer(&mut self, input: &[u8]) -> Parsed {
        let after = if self.last { At::RamDone } else { At::Sections };
        let mut cursor = Cursor::new(input);
        if cursor.u8()? != FOOTER {
            self.at = after;
            return self.step(input);
        }
        let id = cursor.u32()?;
        if self.section != id {
            return Err(Why::SectionId(id).into());
        }
        self.at = after;
        Ok((Token::Bytes, cursor.position()))
    }
}
