//! Takes the stream from QEMU, cuts it into segments, and asks for their pages.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use pageshare_stream::{ChannelKind, Parser, Token};
use pageshare_wire::PageSet;
use pageshare_wire::ask::Ask;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Draft;
use pageshare_wire::sender::Purpose;

use super::Candidates;
use super::cut::{Cut, Cutter, Page};
use super::machine::Machine;
use super::migration::Migration;
use super::outlet::Outlet;
use super::versions::Address;
use super::workers::{Base, BaseContent, Done, Pages};
use crate::buffers::SEGMENT_BYTES;
use crate::error::Error;
use crate::kept::KeptPages;
use crate::link::LinkWriter;
use crate::processor::thread_time;
use crate::record::add;
use crate::socket::Socket;
use crate::unread::Unread;

/// What is kept of a question until its answer is there.
pub(super) struct Waiting {
    /// Those of the pages that KSM has merged, if KSM was looked at.
    pub(super) merged: Option<PageSet>,
    /// The segment, if it waits for the answer.
    pub(super) segment: Option<Unsent>,
}

/// A segment that is encoded as the answer allows.
pub(super) struct Unsent {
    pub(super) draft: Draft,
    pub(super) whole: bool,
    pub(super) hashes: Vec<PageHash>,
    /// Of the pages asked for.
    pub(super) addresses: Vec<Address>,
    pub(super) bases: Vec<Base>,
    pub(super) done: mpsc::SyncSender<Done>,
}

/// Reads one channel to its end.
pub(super) struct Ingest<'a> {
    pub(super) migration: &'a Migration,
    pub(super) channel: u32,
    pub(super) key: &'a HashKey,
    /// The key is the scope's: the receiver holds it too.
    pub(super) in_scope: bool,
    pub(super) machine: &'a Machine,
    pub(super) link: &'a LinkWriter,
    pub(super) outlet: Outlet<'a>,
}

impl Ingest<'_> {
    pub(super) fn run(&self, qemu: &Socket) -> Result<(), Error> {
        let mut parser = Parser::new();
        let mut rest = Vec::new();
        let mut sequence = 0;
        let mut cutter = Cutter::default();
        let mut unread = Unread::default();
        loop {
            if !self.machine.wait_for_room() {
                return Ok(());
            }
            let mut stream = self.migration.buffers.take();
            stream.append(&mut rest);
            if stream.capacity() - stream.len() < SEGMENT_BYTES / 2 {
                // An item that is longer than a segment. No more than has room in the window.
                stream.reserve_exact(SEGMENT_BYTES);
            }
            let length = qemu
                .read_more(&mut stream)
                .map_err(Error::lost("the source QEMU", "reading the stream"))?;
            if length == 0 && self.machine.has_given_up() {
                return Ok(());
            }
            self.took(length);

            let mut draft = Draft::new(stream);
            if length == 0 {
                sequence = self.last(&mut parser, draft, sequence)?;
                break;
            }
            let cut = cutter.cut(&mut parser, &mut draft, self.migration);
            unread.look(&parser, self.channel, &self.migration.account);
            self.migration.account.follows(&parser);
            match parser.kind() {
                ChannelKind::Main if self.channel > 0 => {
                    let words = "another QEMU began to migrate here while a migration was running";
                    return Err(Error::Refused(words.into()));
                }
                ChannelKind::Multifd => self.migration.is_multifd(self.channel),
                _ => {}
            }
            rest = draft.split_rest();
            if draft.stream_bytes() > 0 {
                self.submit(draft, &cut, sequence)?;
                sequence = sequence.wrapping_add(1);
            }
        }
        unread.look(&parser, self.channel, &self.migration.account);
        self.outlet.end(sequence);
        Ok(())
    }

    /// The end of the stream: what is left of an item that never became whole. Returns the number
    /// of the segment that would come next.
    fn last(&self, parser: &mut Parser, mut draft: Draft, sequence: u32) -> Result<u32, Error> {
        let length = draft.stream_bytes();
        if length == 0 {
            return Ok(sequence);
        }
        parser.finish(draft.uncovered());
        draft.add(Token::Bytes, length, false);
        self.submit(draft, &Cut::default(), sequence)?;
        Ok(sequence.wrapping_add(1))
    }

    fn took(&self, bytes: usize) {
        let counts = &self.migration.account.counts;
        add(&counts.stream_bytes, bytes);
        counts.most_in_flight.fetch_max(self.machine.took(bytes), Ordering::Relaxed);
    }

    fn submit(&self, draft: Draft, cut: &Cut, number: u32) -> Result<(), Error> {
        let Cut { pages, whole, sample } = cut;
        let (done, encoded) = mpsc::sync_channel(1);
        let asked: Vec<&Page> = pages.iter().filter(|page| page.asked).collect();
        let hashes = self.hash(&draft);
        if self.migration.keeping.is_on() {
            let hashes = if self.in_scope { &hashes[..] } else { &[] };
            self.migration.keeping.keep(to_keep(&draft, pages, hashes));
        }
        if asked.is_empty() {
            self.migration.encode(draft, hashes, Pages::whole(0), *whole, done);
            return self.outlet.put(number, encoded);
        }
        self.outlet.put(number, encoded)?;
        let counts = &self.migration.account.counts;
        add(&counts.pages_asked, hashes.len());
        let at_once = self.migration.sender.at_once
            && self.migration.sender.candidates == Candidates::Ksm
            && self.migration.gains().ask.often_saves();
        let waits = !at_once && !sample;
        let bases = if waits { self.bases(&asked, &hashes) } else { Vec::new() };
        let ask = Ask {
            hashes: hashes.clone(),
            bases: bases.iter().map(|base| (base.page, base.hash)).collect(),
        };
        let merged = merged(&asked);
        let whole = *whole;
        let wait = |purpose, segment| {
            self.machine.asks(number, &ask, purpose, Waiting { merged, segment });
            let ask = ask.encode();
            let sent = self.link.send(Kind::Ask, number, &[&ask])?;
            self.migration.wrote(ask.len(), ask.len(), sent);
            Ok::<(), Error>(())
        };
        if waits {
            add(&counts.segments_asked, 1);
            let addresses = asked.iter().map(|page| page.address).collect();
            let segment = Unsent { draft, whole, hashes, addresses, bases, done };
            return wait(Purpose::Wait, Some(segment));
        }
        let pages = if at_once {
            add(&counts.segments_at_once, 1);
            add(&counts.pages_at_once, hashes.len());
            let contents = draft.contents().into_iter().flatten().copied().collect();
            wait(Purpose::Supply(contents), None)?;
            Pages::AtOnce
        } else {
            wait(Purpose::Learn, None)?;
            Pages::whole(hashes.len())
        };
        self.migration.encode(draft, hashes, pages, whole, done);
        Ok(())
    }

    fn hash(&self, draft: &Draft) -> Vec<PageHash> {
        if draft.asked() == 0 {
            return Vec::new();
        }
        let begin = thread_time();
        let hashes = draft.hash(self.key);
        let bytes = hashes.len() * PAGE_SIZE;
        self.migration.gains().ask.cost(bytes, thread_time().saturating_sub(begin).as_secs_f64());
        hashes
    }

    /// Earlier versions of the pages asked for.
    fn bases(&self, asked: &[&Page], hashes: &[PageHash]) -> Vec<Base> {
        let versions = self.migration.versions();
        let kept = self.migration.earlier().filter(|_| self.in_scope);
        let mut bases = Vec::new();
        if versions.is_none() && kept.is_none() {
            return bases;
        }
        for (index, (page, hash)) in (0..).zip(asked.iter().zip(hashes)) {
            let at = page.address;
            if let Some((earlier, base)) = versions.as_ref().and_then(|it| it.earlier(at)) {
                if earlier != *hash {
                    let content = BaseContent::Sent(Box::new(*base));
                    bases.push(Base { page: index, hash: earlier, content });
                }
            } else if let Some((copy, version)) = kept.and_then(|it| Some((it, it.find(at)?)))
                && version.hash != *hash
            {
                let content = BaseContent::Kept(Arc::clone(copy), version);
                bases.push(Base { page: index, hash: version.hash, content });
            }
        }
        bases
    }
}

fn merged(asked: &[&Page]) -> Option<PageSet> {
    asked.first()?.merged?;
    let mut set = PageSet::empty(asked.len());
    for (index, _) in asked.iter().enumerate().filter(|(_, page)| page.merged == Some(true)) {
        set.insert(index);
    }
    Some(set)
}

fn to_keep(draft: &Draft, pages: &[Page], hashes: &[PageHash]) -> KeptPages {
    let mut hashes = hashes.iter();
    let mut keep = KeptPages::default();
    for page in pages {
        let hash = if page.asked { hashes.next().copied() } else { None };
        keep.pages.push((page.address.0, page.address.1, hash));
        keep.contents.extend_from_slice(draft.at(page.at));
    }
    keep
}
