//! Cuts what has come of a channel into tokens, and decides which of its pages to ask for.

use std::time::Instant;

use pageshare_index::PAGE_SIZE;
use pageshare_stream::{Parser, Step, Token};
use pageshare_wire::segment::Draft;

use super::Candidates;
use super::migration::Migration;
use super::versions::Address;
use crate::blocks::LastBlock;
use crate::record::add;

/// A page's content in a draft.
pub(super) struct Page {
    /// Its RAM block, by number, and its offset in it.
    pub(super) address: Address,
    /// Where its content begins in the draft.
    pub(super) at: usize,
    pub(super) asked: bool,
    pub(super) merged: Option<bool>,
}

/// What a draft has been cut into.
#[derive(Default)]
pub(super) struct Cut {
    pub(super) pages: Vec<Page>,
    /// The link is to show its speed by it.
    pub(super) whole: bool,
    /// What is asked for is to show whether asking would pay.
    pub(super) sample: bool,
}

/// Cuts one channel's drafts.
#[derive(Default)]
pub(super) struct Cutter {
    /// The migration knows the main channel's list of RAM blocks.
    learned: bool,
    block: LastBlock,
    /// Of the present draft, with their lengths.
    tokens: Vec<(Token, usize)>,
}

impl Cutter {
    /// Covers a new draft with tokens.
    pub(super) fn cut(
        &mut self,
        parser: &mut Parser,
        draft: &mut Draft,
        migration: &Migration,
    ) -> Cut {
        let mut pages = self.parse(parser, draft.uncovered(), migration);
        // The channels share what was learnt: it is held to decide, not to parse.
        let mut gains = migration.gains();
        let whole = gains.took(draft.stream_bytes(), migration.seconds_to(Instant::now()));
        for page in pages.iter_mut().filter(|page| page.asked) {
            page.asked = gains.asks();
        }
        let sample = gains.samples();
        drop(gains);
        let mut asked = pages.iter().map(|page| page.asked);
        for (token, length) in self.tokens.drain(..) {
            let ask = token.content_at().is_some() && asked.next() == Some(true);
            draft.add(token, length, ask);
        }
        Cut { pages, whole, sample }
    }

    /// Finds the tokens and pages of a stream's next bytes; `asked` says of a page that it may be.
    fn parse(&mut self, parser: &mut Parser, stream: &[u8], migration: &Migration) -> Vec<Page> {
        let (mut zeros, mut merged_pages, mut at) = (0, 0, 0);
        let mut pages = Vec::new();
        while let Step::Token { token, length } = parser.step(&stream[at..]) {
            if !self.learned && parser.has_listed_blocks() {
                migration.learn_blocks(parser.blocks());
                self.learned = true;
            }
            if let Some(content) = token.content_at().map(|content| at + content) {
                let merged = migration.merged(parser.page(), &stream[content..content + PAGE_SIZE]);
                let candidate = match migration.sender.candidates {
                    Candidates::All => true,
                    Candidates::Ksm => merged == Some(true),
                    Candidates::Off => false,
                };
                merged_pages += usize::from(merged == Some(true));
                let (name, offset) = parser.page();
                let address = (self.block.number(name, |name| migration.block(name)), offset);
                pages.push(Page { address, at: content, asked: candidate, merged });
            }
            zeros += usize::from(matches!(token, Token::Zero(_)));
            self.tokens.push((token, length));
            at += length;
        }
        let counts = &migration.account.counts;
        add(&counts.pages, pages.len());
        add(&counts.pages_merged, merged_pages);
        add(&counts.zero_pages, zeros);
        pages
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use pageshare_wire::Versions;
    use pageshare_wire::adaptive::Policy;

    use super::super::Sender;
    use super::super::workers::Workers;
    use super::*;
    use crate::metrics::Metrics;
    use crate::socket::Party;

    fn migration() -> Migration {
        let sender = Sender {
            peer: "unix:/nowhere".parse().unwrap(),
            tls: None,
            scope: None,
            ask: Policy::Always,
            candidates: Candidates::All,
            ksm_pid: None,
            at_once: false,
            delta_bytes: 0,
            keep: None,
            kept: None,
            compress: Policy::Never,
            level: 1,
            threads: 1,
            downtime_limit: Duration::from_millis(300),
            window: 1 << 20,
            versions: Versions::OURS,
            metrics: Metrics::default(),
        };
        let workers = Workers::start(1, 1).unwrap();
        Migration::begin(Arc::new(sender), workers, None, Party::Process(None)).unwrap()
    }

    #[test]
    fn channels_parse_at_once_and_wait_only_for_what_was_learnt() {
        /// What only a hang exceeds.
        const HANGS: Duration = Duration::from_secs(60);
        let migration = migration();
        let begins = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04";
        let page = [&0x28_u64.to_be_bytes()[..], &[7; PAGE_SIZE]].concat();
        let stream = [&begins[..], &page].concat();
        let pages = || migration.account.counts.pages.load(Ordering::Relaxed);
        let cuts = std::thread::scope(|threads| {
            let deciding = migration.gains();
            let channels = [(), ()].map(|()| {
                threads.spawn(|| {
                    let mut draft = Draft::new(stream.clone());
                    let mut parser = Parser::new();
                    let cut = Cutter::default().cut(&mut parser, &mut draft, &migration);
                    (cut, draft)
                })
            });
            let begin = Instant::now();
            while pages() < 2 {
                assert!(begin.elapsed() < HANGS, "a channel waits to be parsed");
                std::thread::yield_now();
            }
            drop(deciding);
            channels.map(|channel| channel.join().unwrap())
        });
        for (cut, draft) in cuts {
            assert!(cut.pages.len() == 1 && cut.pages[0].asked);
            assert_eq!(draft.contents(), [&[7; PAGE_SIZE]]);
            assert!(draft.uncovered().is_empty());
        }
    }
}
