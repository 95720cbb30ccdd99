//! Takes the stream from QEMU, cuts it into segments, and asks for their pages.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use pageshare_stream::{Parser, Step, Token};
use pageshare_wire::PageSet;
use pageshare_wire::record::{Kind, encode_ask};
use pageshare_wire::segment::Draft;
use pageshare_wire::window::Window;

use super::migration::Migration;
use super::workers::{Done, Job};
use crate::error::Error;
use crate::fuse::Fuse;
use crate::link::LinkWriter;
use crate::record::{VerbatimChannel, add};
use crate::socket::Socket;

/// Stream bytes taken for one segment, at most.
const SEGMENT_BYTES: usize = 256 << 10;
/// With less room in the window than this it is worth waiting for more.
const LEAST_ROOM: u64 = 64 << 10;

/// The window, and those who wait for room in it.
pub(super) struct Credit {
    window: Mutex<Window>,
    changed: Condvar,
    began: Instant,
}

impl Credit {
    pub(super) fn new(agreed: u32, downtime_limit: Duration) -> Self {
        let window = Mutex::new(Window::new(agreed, downtime_limit));
        Self { window, changed: Condvar::new(), began: Instant::now() }
    }

    fn locked(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer's account of what QEMU has accepted; whether it can be true.
    #[must_use]
    pub(super) fn accepted(&self, bytes: u64) -> bool {
        let sound = self.locked().credit(bytes, self.began.elapsed());
        self.changed.notify_all();
        sound
    }

    /// Wakes whoever waits, to look at the fuse.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    fn wait_for_room(&self, fuse: &Fuse) -> usize {
        let mut window = self.locked();
        while window.room() < LEAST_ROOM && !fuse.has_blown() {
            // The limit is for a fuse that blows between the look at it and the wait.
            let limit = Duration::from_millis(200);
            window = self
                .changed
                .wait_timeout(window, limit)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(window, _)| window);
        }
        usize::try_from(window.room()).unwrap_or(usize::MAX).min(SEGMENT_BYTES)
    }
}

/// Segments whose pages were asked for, until the answer comes; nothing once the channel is over.
pub(super) type Asked = Mutex<Option<HashMap<u32, Waiting>>>;

/// A segment that waits for its answer.
pub(super) struct Waiting {
    pub(super) draft: Draft,
    pub(super) hashes: Vec<PageHash>,
    pub(super) done: mpsc::SyncSender<Done>,
}

/// What the writer sends next, in order.
pub(super) enum Next {
    /// This segment, once it is encoded.
    Segment(mpsc::Receiver<Done>),
    /// QEMU has closed its writing side.
    End,
}

/// Reads one channel to its end.
pub(super) struct Ingest<'a> {
    pub(super) migration: &'a Migration,
    pub(super) channel: u32,
    pub(super) key: &'a HashKey,
    pub(super) credit: &'a Credit,
    pub(super) asked: &'a Asked,
    pub(super) link: &'a LinkWriter,
    pub(super) fuse: &'a Fuse,
}

impl Ingest<'_> {
    pub(super) fn run(&self, qemu: &mut Socket, queue: &mpsc::Sender<Next>) -> Result<(), Error> {
        let mut parser = Parser::new();
        let mut rest = Vec::new();
        let mut sequence = 0;
        let mut learned = false;
        loop {
            let room = self.credit.wait_for_room(self.fuse);
            if self.fuse.has_blown() {
                return Ok(());
            }
            let mut stream = rest;
            let kept = stream.len();
            stream.resize(kept + room, 0);
            let length = qemu
                .read(&mut stream[kept..])
                .map_err(Error::lost("the source QEMU", "reading the stream"))?;
            stream.truncate(kept + length);
            self.credit.locked().took(length as u64);
            add(&self.migration.account.stream_bytes, length);

            let mut draft = Draft::new(stream);
            if length == 0 {
                self.last(&mut parser, draft, sequence, queue)?;
                break;
            }
            self.cut(&mut parser, &mut draft, &mut learned);
            rest = draft.split_rest();
            if draft.stream_bytes() > 0 {
                self.submit(draft, sequence, queue)?;
                sequence = sequence.wrapping_add(1);
            }
        }
        if let Some(verbatim) = parser.verbatim() {
            self.migration.account.verbatim(VerbatimChannel {
                channel: self.channel,
                at: verbatim.at,
                why: verbatim.why.to_string(),
            });
        }
        // The writer ends only after this queue.
        let _ = queue.send(Next::End);
        Ok(())
    }

    /// The end of the stream: what is left of an item that never became whole.
    fn last(
        &self,
        parser: &mut Parser,
        mut draft: Draft,
        sequence: u32,
        queue: &mpsc::Sender<Next>,
    ) -> Result<(), Error> {
        let length = draft.stream_bytes();
        if length > 0 {
            parser.finish(draft.uncovered());
            draft.add(Token::Bytes, length, false);
            self.submit(draft, sequence, queue)?;
        }
        Ok(())
    }

    /// Covers the draft with tokens; `learned` says that the guest's RAM blocks are known.
    fn cut(&self, parser: &mut Parser, draft: &mut Draft, learned: &mut bool) {
        let (mut pages, mut zeros) = (0, 0);
        let mut gains = self.migration.gains();
        let gains = &mut *gains;
        while let Step::Token { token, length } = parser.step(draft.uncovered()) {
            if !*learned && parser.has_listed_blocks() {
                self.migration.learn_blocks(parser.blocks());
                *learned = true;
            }
            let content = token.content_at().map(|at| &draft.uncovered()[at..at + PAGE_SIZE]);
            let page = content.is_some();
            let ask = content.is_some_and(|content| {
                self.migration.may_ask(parser.page(), content) && gains.ask.worth_it(&gains.link)
            });
            pages += usize::from(page);
            zeros += usize::from(matches!(token, Token::Zero(_)));
            draft.add(token, length, ask);
        }
        add(&self.migration.account.pages, pages);
        add(&self.migration.account.zero_pages, zeros);
    }

    fn submit(&self, draft: Draft, number: u32, queue: &mpsc::Sender<Next>) -> Result<(), Error> {
        let (done, encoded) = mpsc::sync_channel(1);
        // A writer that has failed takes nothing more; the fuse has the reason.
        let _ = queue.send(Next::Segment(encoded));
        if draft.asked() == 0 {
            encode(self.migration, Waiting { draft, hashes: Vec::new(), done }, PageSet::default());
            return Ok(());
        }
        let begin = Instant::now();
        let hashes = draft.hash(self.key);
        let bytes = hashes.len() * PAGE_SIZE;
        self.migration.gains().ask.cost(bytes, begin.elapsed().as_secs_f64());
        add(&self.migration.account.pages_asked, hashes.len());
        let ask = encode_ask(&hashes);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = &mut *asked {
            asked.insert(number, Waiting { draft, hashes, done });
        }
        drop(asked);
        self.link.send(Kind::Ask, number, &[&ask])?;
        Ok(())
    }
}

/// Encodes a segment of which the receiver has the pages in `known`.
pub(super) fn encode(migration: &Migration, waiting: Waiting, known: PageSet) {
    let compress = {
        let mut gains = migration.gains();
        let gains = &mut *gains;
        gains.compress.worth_it(&gains.link)
    };
    let Waiting { draft, hashes, done } = waiting;
    migration.workers.encode(Job { draft, hashes, known, compress, done });
}
