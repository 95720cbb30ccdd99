//! `pageshare inspect`: what a recorded stream consists of.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use pageshare_stream::{ChannelKind, PAGE_SIZE, Parser, Step, Token, Verbatim};
use serde::Serialize;

use crate::error::Error;

/// Counts over one channel.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// `main`, `multifd` or `other`.
    pub kind: &'static str,
    /// The machine type, if the stream names it.
    pub machine: Option<String>,
    /// RAM blocks: name and bytes.
    pub blocks: Vec<(String, u64)>,
    /// Bytes in all.
    pub bytes: u64,
    /// Page contents.
    pub pages: u64,
    /// Zero pages.
    pub zero_pages: u64,
    /// Bytes of neither, up to where parsing stopped.
    pub structure_bytes: u64,
    /// Bytes that were passed on although pages may be in them.
    pub verbatim_bytes: u64,
    /// Where parsing stopped and why.
    pub verbatim: Option<(u64, String)>,
    /// From where on QEMU has compressed pages itself.
    pub compressed: Option<(u64, String)>,
}

/// Reads a channel to its end.
///
/// # Errors
/// If the file cannot be read.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let unreadable = |error: std::io::Error| Error::File {
        what: "stream",
        path: path.display().to_string(),
        reason: error.to_string(),
    };
    if path.as_os_str() == "-" {
        return count(&mut std::io::stdin().lock()).map_err(unreadable);
    }
    count(&mut File::open(path).map_err(unreadable)?).map_err(unreadable)
}

fn count(channel: &mut impl Read) -> std::io::Result<Inspection> {
    let mut parser = Parser::new();
    let mut buffer = vec![0; 1 << 20];
    let mut filled = 0;
    let (mut pages, mut zero_pages, mut structure) = (0_u64, 0_u64, 0_u64);
    loop {
        let length = channel.read(&mut buffer[filled..])?;
        filled += length;
        let mut at = 0;
        while let Step::Token { token, length } = parser.step(&buffer[at..filled]) {
            match token {
                Token::Zero(_) => zero_pages += 1,
                Token::Page(_) | Token::Content => {
                    pages += 1;
                    structure += (length - PAGE_SIZE) as u64;
                }
                Token::Bytes if parser.verbatim().is_none() => structure += length as u64,
                Token::Bytes => {}
            }
            at += length;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        if length == 0 {
            parser.finish(&buffer[..filled]);
            break;
        }
    }
    let said = |it: &Verbatim| (it.at, it.why.to_string());
    Ok(Inspection {
        kind: match parser.kind() {
            ChannelKind::Main => "main",
            ChannelKind::Multifd => "multifd",
            ChannelKind::Other | ChannelKind::Unknown => "other",
        },
        machine: parser.machine().map(str::to_owned),
        blocks: parser.blocks().iter().map(|block| (block.name.clone(), block.bytes)).collect(),
        bytes: parser.offset(),
        pages,
        zero_pages,
        structure_bytes: structure,
        verbatim_bytes: parser.unread(),
        verbatim: parser.verbatim().map(said),
        compressed: parser.compressed().map(said),
    })
}

impl Inspection {
    /// Whether anything of a migration was found.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        let whole = self.verbatim.is_none() && self.kind != "other";
        whole || !self.blocks.is_empty() || self.pages + self.zero_pages > 0
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<12}{value}");
        };
        line("channel", self.kind);
        if let Some(machine) = &self.machine {
            line("machine", machine);
        }
        for (name, bytes) in &self.blocks {
            line("RAM block", &format!("{name}, {} KiB", bytes >> 10));
        }
        line("bytes", &self.bytes.to_string());
        line("pages", &self.pages.to_string());
        line("zero pages", &self.zero_pages.to_string());
        line("structure", &format!("{} bytes", self.structure_bytes));
        if let Some((at, why)) = &self.compressed {
            line("unread", &format!("{} bytes, the first at {at}: {why}", self.verbatim_bytes));
        }
        if let Some((at, why)) = &self.verbatim {
            line("verbatim", &format!("from byte {at} on ({} bytes): {why}", self.bytes - at));
        }
        out
    }
}
