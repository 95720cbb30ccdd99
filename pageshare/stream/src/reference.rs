//! The whole stream at once, as slowly and plainly as the format reads: the oracle of [`Parser`].
//!
//! [`Parser`]: crate::Parser

use crate::token::Token;
use crate::word::{PAGE_SIZE, RamWord};

/// The tokens of a whole channel with their lengths, neighbouring [`Token::Bytes`] merged, and the
/// offset from which on the rest was not understood (the channel's length, if all of it was).
#[must_use]
pub fn parse(channel: &[u8]) -> (Vec<(Token, usize)>, usize) {
    let mut tape = Tape { channel, at: 0, tokens: Vec::new() };
    let understood = if channel.starts_with(b"QEVM") {
        main_channel(&mut tape)
    } else if channel.starts_with(&[0x11, 0x22, 0x33, 0x44]) {
        multifd(&mut tape)
    } else {
        None
    };
    let until = understood.map_or_else(|| tape.written(), |()| channel.len());
    tape.token(Token::Bytes, channel.len() - tape.written());
    (merge(tape.tokens), until)
}

/// Joins neighbouring [`Token::Bytes`], so that two parsers' cuts can be compared.
#[must_use]
pub fn merge(tokens: Vec<(Token, usize)>) -> Vec<(Token, usize)> {
    let mut merged: Vec<(Token, usize)> = Vec::new();
    for (token, length) in tokens {
        match merged.last_mut() {
            Some((Token::Bytes, bytes)) if token == Token::Bytes => *bytes += length,
            _ if length == 0 => {}
            _ => merged.push((token, length)),
        }
    }
    merged
}

/// `None` from any of these means: not understood from the last token on.
struct Tape<'a> {
    channel: &'a [u8],
    at: usize,
    tokens: Vec<(Token, usize)>,
}

impl Tape<'_> {
    fn written(&self) -> usize {
        self.tokens.iter().map(|(_, length)| length).sum()
    }

    fn token(&mut self, token: Token, length: usize) {
        self.tokens.push((token, length));
    }

    /// Ends an item of plain bytes here.
    fn bytes(&mut self) {
        self.token(Token::Bytes, self.at - self.written());
    }

    fn done(&self) -> bool {
        self.at == self.channel.len()
    }

    fn take(&mut self, length: u64) -> Option<&[u8]> {
        let length = usize::try_from(length).ok()?;
        let taken = self.channel.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(taken)
    }

    fn number(&mut self, width: u64) -> Option<u64> {
        Some(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn name(&mut self) -> Option<Vec<u8>> {
        let length = self.number(1)?;
        self.take(length).map(<[u8]>::to_vec)
    }
}

fn main_channel(tape: &mut Tape<'_>) -> Option<()> {
    let mut ram = None;
    let (mut ignore_shared, mut postcopy) = (false, false);
    tape.take(4)?;
    (tape.number(4)? == 3).then_some(())?;
    tape.bytes();
    while !tape.done() {
        let kind = tape.number(1)?;
        match kind {
            7 => {
                let length = tape.number(4)?;
                (length <= 4096).then_some(())?;
                tape.take(length)?;
            }
            5 => {
                let name = tape.name()?;
                tape.number(4)?;
                match name.as_slice() {
                    b"configuration/target-page-bits" => (tape.number(4)? == 12).then_some(())?,
                    b"configuration/uuid" => drop(tape.take(16)?),
                    b"configuration/capabilities" => {
                        let count = tape.number(4)?;
                        (count <= 128).then_some(())?;
                        for _ in 0..count {
                            (tape.name()? == b"x-ignore-shared").then_some(())?;
                        }
                        ignore_shared = count > 0;
                    }
                    _ => return None,
                }
            }
            8 => {
                let (command, length) = (tape.number(2)?, tape.number(2)?);
                match (command, length) {
                    (1 | 11, 0) | (2, 4) => {}
                    (3, 0 | 16) => postcopy = true,
                    _ => return None,
                }
                tape.take(length)?;
            }
            1..=4 => {
                let id = tape.number(4)?;
                let mut early = false;
                if kind == 1 || kind == 4 {
                    let name = tape.name()?;
                    tape.number(4)?;
                    let version = tape.number(4)?;
                    early = kind == 4
                        && version == 1
                        && (name == b"virtio-mem-device-early"
                            || name.ends_with(b"/virtio-mem-device-early"));
                    if !early {
                        (name == b"ram" && version == 4).then_some(())?;
                        ram = Some(id);
                    }
                }
                if early {
                    virtio_mem(tape)?;
                } else {
                    (ram == Some(id)).then_some(())?;
                    tape.bytes();
                    ram_section(tape, ignore_shared, postcopy)?;
                }
                if tape.channel.get(tape.at) == Some(&0x7e) {
                    tape.number(1)?;
                    (tape.number(4)? == id).then_some(())?;
                    tape.bytes();
                }
                if kind == 3 {
                    return tape.done().then_some(());
                }
            }
            _ => return None,
        }
        tape.bytes();
    }
    Some(())
}

fn virtio_mem(tape: &mut Tape<'_>) -> Option<()> {
    let (_, region, block) = (tape.number(8)?, tape.number(8)?, tape.number(8)?);
    let (_, plugged) = (tape.number(4)?, tape.number(8)?);
    (block >= 1 << 20 && block.is_power_of_two()).then_some(())?;
    (region <= 1 << 52 && region % block == 0 && plugged <= region).then_some(())?;
    tape.bytes();
    for _ in 0..(region / block).div_ceil(64) * 8 {
        // Bits that the channel's end has cut off.
        if tape.done() {
            break;
        }
        tape.number(1)?;
    }
    tape.bytes();
    Some(())
}

fn ram_section(tape: &mut Tape<'_>, ignore_shared: bool, postcopy: bool) -> Option<()> {
    while !tape.done() {
        let word = RamWord(tape.number(8)?);
        let continues = word.flags() & RamWord::CONTINUE != 0;
        let kind = word.flags() & !RamWord::CONTINUE;
        let has_name =
            matches!(kind, RamWord::ZERO | RamWord::PAGE | RamWord::XBZRLE | RamWord::COMPRESS);
        if has_name && !continues {
            tape.name()?;
        } else if !has_name && continues {
            return None;
        }
        match kind {
            RamWord::ZERO => {
                if tape.number(1)? == 0 && continues {
                    tape.token(Token::Zero(word), 9);
                }
            }
            RamWord::PAGE => {
                let prefix = tape.at - tape.written();
                if continues {
                    tape.take(PAGE_SIZE as u64)?;
                    tape.token(Token::Page(word), prefix + PAGE_SIZE);
                } else {
                    tape.bytes();
                    tape.take(PAGE_SIZE as u64)?;
                    tape.token(Token::Content, PAGE_SIZE);
                }
            }
            RamWord::XBZRLE => {
                tape.number(1)?;
                let length = tape.number(2)?;
                tape.take(length)?;
            }
            RamWord::COMPRESS => {
                let length = tape.number(4)?;
                (length <= 8192).then_some(())?;
                tape.take(length)?;
            }
            RamWord::MEM_SIZE => {
                tape.bytes();
                let (mut left, mut blocks) = (word.address(), 0);
                while left > 0 && !tape.done() {
                    let name = tape.name()?;
                    let bytes = tape.number(8)?;
                    if name.is_empty() || bytes == 0 || bytes > left || blocks == 1024 {
                        return None;
                    }
                    blocks += 1;
                    left -= bytes;
                    if postcopy {
                        if ignore_shared {
                            return None;
                        }
                        let next = if left > 0 { 1 } else { 8 };
                        let start = tape.at;
                        let ahead = tape.number(next)?;
                        let page_size = if left > 0 { ahead == 0 } else { ahead & 0xfff == 0 };
                        tape.at = start;
                        if page_size {
                            tape.number(8)?;
                        }
                    }
                    if ignore_shared {
                        tape.number(8)?;
                    }
                    tape.bytes();
                }
            }
            RamWord::MULTIFD_FLUSH if word.address() == 0 => {}
            RamWord::EOS if word.address() == 0 => {
                tape.bytes();
                return Some(());
            }
            _ => return None,
        }
        tape.bytes();
    }
    Some(())
}

fn multifd(tape: &mut Tape<'_>) -> Option<()> {
    tape.number(4)?;
    (tape.number(4)? == 1).then_some(())?;
    tape.take(56)?;
    tape.bytes();
    while !tape.done() {
        (tape.number(4)? == 0x1122_3344).then_some(())?;
        (tape.number(4)? == 1).then_some(())?;
        let flags = tape.number(4)?;
        let allocated = match tape.number(4)? {
            0 => 128,
            slots => slots,
        };
        let normal = tape.number(4)?;
        let bytes = tape.number(4)?;
        let method = flags & !1;
        (matches!(method, 0 | 2 | 4) && allocated <= 8192 && normal <= allocated).then_some(())?;
        tape.take(8 + 32 + 256 + 8 * allocated)?;
        if normal > 0 && method == 0 {
            (bytes == normal * 4096).then_some(())?;
        }
        (normal == 0 || bytes <= 2 * 8192 * 4096).then_some(())?;
        tape.bytes();
        match (normal, method) {
            (0, _) => {}
            (_, 0) => {
                for _ in 0..normal {
                    tape.take(PAGE_SIZE as u64)?;
                    tape.token(Token::Content, PAGE_SIZE);
                }
            }
            _ => {
                // A payload cut short by the channel's end is still payload.
                let there = (tape.channel.len() - tape.at) as u64;
                tape.take(bytes.min(there))?;
            }
        }
        tape.bytes();
    }
    Some(())
}
