//! At which address of the guest each page that arrives is put, and what is kept of it.

use pageshare_index::PAGE_SIZE;
use pageshare_stream::{Parser, Step};
use pageshare_wire::segment::Placed;

use super::session::Session;
use crate::blocks::LastBlock;
use crate::kept::KeptPages;
use crate::unread::Unread;

/// Follows one channel's stream.
#[derive(Default)]
pub(super) struct Addresses {
    parser: Parser,
    /// Bytes of an item that the last segment has left incomplete.
    rest: Vec<u8>,
    learned: bool,
    block: LastBlock,
    channel: u32,
    unread: Unread,
}

impl Addresses {
    pub(super) fn of_channel(channel: u32) -> Self {
        Self { channel, ..Self::default() }
    }

    /// `out` is the stream's next bytes, in which these pages were asked for.
    pub(super) fn follow(&mut self, out: &[u8], placed: &[Placed], session: &Session) {
        let before = self.rest.len();
        let joined;
        let stream = if before == 0 {
            out
        } else {
            self.rest.extend_from_slice(out);
            joined = std::mem::take(&mut self.rest);
            &joined
        };
        let (keeps, mut keep) = (session.keeping.is_on(), KeptPages::default());
        // The channels share what has been received: it is held to note pages, not to parse.
        let mut noted = Vec::new();
        let mut placed = placed.iter().peekable();
        let mut at = 0;
        while let Step::Token { token, length } = self.parser.step(&stream[at..]) {
            if !self.learned && self.parser.has_listed_blocks() {
                session.received().learn(self.parser.blocks());
                self.learned = true;
            }
            if let Some(content) = token.content_at().map(|content| at + content) {
                let asked = placed.next_if(|page| page.at + before == content);
                if asked.is_some() || keeps {
                    let (block, offset) = self.parser.page();
                    let number = |name: &[u8]| session.received().names().number(name);
                    let block = self.block.number(block, number);
                    if let Some(page) = asked {
                        noted.push((page.hash, block, offset));
                    }
                    if keeps {
                        keep.pages.push((block, offset, asked.map(|page| page.hash)));
                        keep.contents.extend_from_slice(&stream[content..content + PAGE_SIZE]);
                    }
                }
            }
            at += length;
        }
        if !noted.is_empty() {
            let mut received = session.received();
            noted.into_iter().for_each(|(hash, block, offset)| received.note(hash, block, offset));
        }
        self.unread.look(&self.parser, self.channel, &session.account);
        session.account.follows(&self.parser);
        session.keeping.keep(keep);
        self.rest = stream[at..].to_vec();
    }
}
