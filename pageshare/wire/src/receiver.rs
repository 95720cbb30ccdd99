//! One channel at the receiver from its first record on: records and answers in, effects out. It
//! knows no socket, no thread and no clock, so that whole sessions are tried without them.
//!
//! ```text
//! Open ──End──▶ Ended, while segments wait for a Supply ──▶ over
//! ```
//!
//! Whatever fails ends the channel with an Abort, whose sentence is the error; nothing may be
//! given to the machine after that.

mod waiting;

use std::collections::HashMap;

use pageshare_index::{HashKey, PAGE_SIZE};

use crate::ask::{Ask, decode_supply};
use crate::record::{Header, Kind, LONGEST_SEGMENT};
use crate::segment::{Held, Placed, SegmentView};
use crate::{Chain, Expander, WireError};
use waiting::Waiting;

/// A Credit wakes the sender, so there is none for less than this, but at the end. The smallest
/// window is four times as large: it never waits for a Credit that is held back.
const CREDIT_BYTES: u64 = 256 << 10;

/// An Ask or a Probe.
#[derive(Debug)]
pub struct Question {
    /// Its segment, or any number of a Probe.
    pub number: u32,
    /// What is asked.
    pub ask: Ask,
    /// A segment comes that may refer to what is affirmed: it is kept, and given to
    /// [`Receiver::answered`]. Of a Probe nothing is.
    pub keep: bool,
}

/// What a channel has to do next.
#[derive(Debug)]
pub enum Effect<'a> {
    /// Find the pages, send the Answer.
    Ask(Question),
    /// Give [`Receiver::answered`] what is held of a question that has not been answered yet, then
    /// go on with the same record.
    Await,
    /// Pass these bytes on: the next ones of the stream, checked.
    Write {
        /// A segment's bytes.
        bytes: &'a [u8],
        /// Where those pages stand in them that were asked for.
        placed: &'a [Placed],
        /// The buffer of the copies that were held for them, for other use.
        spent: Vec<u8>,
    },
    /// Nothing, until the next record.
    Rest,
}

/// A channel's state between records.
pub struct Receiver {
    key: HashKey,
    /// Bytes of pages that may be asked for and not expanded; as many of the stream may wait.
    limit: u64,
    chain: Chain,
    expander: Expander,
    /// Number of the segment that is expanded next.
    next: u32,
    /// Bytes of pages asked for whose segments have not been expanded.
    asked: u64,
    /// What was answered, by segment; nothing for a question that has no answer yet.
    promises: HashMap<u32, Option<Held>>,
    waiting: Waiting,
    supplies: HashMap<u32, Vec<u8>>,
    ended: bool,
    accepted: u64,
    /// Of those, the ones that the sender has been told of.
    credited: u64,
    /// The last segment's bytes, and the pages in them.
    stream: Vec<u8>,
    placed: Vec<Placed>,
}

impl Receiver {
    /// A channel with this window, in bytes of the stream, whose pages are hashed by `key`.
    ///
    /// # Errors
    /// If there is no memory for zstd's context.
    pub fn new(window: u32, key: HashKey) -> std::io::Result<Self> {
        let limit = u64::from(window) + LONGEST_SEGMENT as u64;
        Ok(Self {
            key,
            limit,
            chain: Chain::default(),
            expander: Expander::new()?,
            next: 0,
            asked: 0,
            promises: HashMap::new(),
            waiting: Waiting::new(limit),
            supplies: HashMap::new(),
            ended: false,
            accepted: 0,
            credited: 0,
            stream: Vec::new(),
            placed: Vec::new(),
        })
    }

    /// What is next: of `record`, if there is one, which is taken out as soon as it has been taken
    /// in; else of what earlier records have left. Call it until it [rests](Effect::Rest).
    ///
    /// # Errors
    /// If the record breaks the protocol, was damaged, or is an Abort.
    pub fn next<'a, 'b: 'a>(
        &'a mut self,
        record: &mut Option<(Header, &'b [u8])>,
    ) -> Result<Effect<'a>, WireError> {
        let Some((header, body)) = *record else { return self.resume() };
        match header.kind {
            Kind::Abort => {
                return Err(WireError::Aborted(String::from_utf8_lossy(body).into_owned()));
            }
            Kind::Supply => self.supply(header.sequence, body)?,
            _ if self.ended => return Err(WireError::Protocol("no Supply behind the End")),
            Kind::Segment => return self.segment(header.sequence, body, record),
            Kind::Ask | Kind::Probe => {
                *record = None;
                return self.question(header, body).map(Effect::Ask);
            }
            Kind::End => self.ended = true,
            Kind::Answer | Kind::Credit | Kind::Reverse | Kind::ReverseEnd => {
                return Err(WireError::Protocol("a receiver's record from a sender"));
            }
        }
        *record = None;
        self.resume()
    }

    /// These are held for a segment whose pages were asked for.
    pub fn answered(&mut self, number: u32, held: Held) {
        self.promises.insert(number, Some(held));
    }

    /// QEMU has accepted so many bytes more. Returns what a Credit has to say, if one is due.
    pub fn accepted(&mut self, bytes: usize) -> Option<u64> {
        self.accepted += bytes as u64;
        let due = if self.is_over() { 1 } else { CREDIT_BYTES };
        (self.accepted - self.credited >= due).then(|| {
            self.credited = self.accepted;
            self.accepted
        })
    }

    /// The sender has nothing more to say: the stream is whole.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.waiting.is_empty()
    }

    /// Bytes of pages and of segments that are kept between records. Of copies of the pages asked
    /// for, of their earlier versions, and of Supplies each at most the window and 1 MiB, of
    /// segments that wait twice that.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let promised = self.promises.values().flatten().chain(self.waiting.held());
        let promised = promised.map(|held| held.hashes.len() + held.bases.len()).sum::<usize>();
        let supplied = self.supplies.values().map(Vec::len).sum::<usize>();
        (promised * PAGE_SIZE + supplied) as u64 + self.waiting.memory()
    }

    fn question(&mut self, header: Header, body: &[u8]) -> Result<Question, WireError> {
        let (number, keep) = (header.sequence, header.kind == Kind::Ask);
        let ask = Ask::decode(body)?;
        if keep {
            self.asked += (ask.hashes.len() * PAGE_SIZE) as u64;
            if self.asked > self.limit {
                return Err(WireError::Protocol("more asked than fits the window"));
            }
            if self.promises.insert(number, None).is_some() {
                return Err(WireError::Protocol("one segment asked for twice"));
            }
        }
        Ok(Question { number, ask, keep })
    }

    fn segment<'a, 'b: 'a>(
        &'a mut self,
        number: u32,
        body: &'b [u8],
        record: &mut Option<(Header, &'b [u8])>,
    ) -> Result<Effect<'a>, WireError> {
        let behind = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        if number != self.next.wrapping_add(behind) {
            return Err(WireError::Protocol("order of the segments"));
        }
        let view = SegmentView::parse(body)?;
        if !self.waiting.is_empty() {
            *record = None;
            self.waiting.push(body, view.stream_bytes(), None)?;
            return Ok(Effect::Rest);
        }
        let Some(mut held) = take(&mut self.promises, number) else { return Ok(Effect::Await) };
        *record = None;
        if !complete(&mut self.supplies, &view, number, &mut held)? {
            self.waiting.push(body, view.stream_bytes(), Some(held))?;
            return Ok(Effect::Rest);
        }
        if held.hashes.is_empty()
            && let Some(bytes) = view.verbatim()
        {
            self.next = number.wrapping_add(1);
            view.join(number, &[], &mut self.chain)?;
            return Ok(Effect::Write { bytes, placed: &[], spent: Vec::new() });
        }
        self.expand(&view, held)
    }

    /// A Supply may come before its segment: what asks, and what is asked for, are sent by different
    /// threads.
    fn supply(&mut self, number: u32, body: &[u8]) -> Result<(), WireError> {
        let contents = decode_supply(body, &mut self.expander)?;
        let supplied: usize = self.supplies.values().map(Vec::len).sum();
        let within = (supplied + contents.len()) as u64 <= self.asked;
        if !within || self.supplies.insert(number, contents).is_some() {
            return Err(WireError::Protocol("a Supply that nothing lacks"));
        }
        Ok(())
    }

    /// The first segment that waits, if it can be expanded now.
    fn resume(&mut self) -> Result<Effect<'_>, WireError> {
        let Some(first) = self.waiting.first() else { return Ok(Effect::Rest) };
        if first.held.is_none() {
            first.held = take(&mut self.promises, self.next);
        }
        let Some(held) = &mut first.held else { return Ok(Effect::Await) };
        let view = SegmentView::parse(&first.body)?;
        if !complete(&mut self.supplies, &view, self.next, held)? {
            return Ok(Effect::Rest);
        }
        let held = std::mem::take(held);
        let body = self.waiting.take_first();
        self.expand(&SegmentView::parse(&body)?, held)
    }

    fn expand(&mut self, view: &SegmentView<'_>, held: Held) -> Result<Effect<'_>, WireError> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.asked = self.asked.saturating_sub((held.hashes.len() * PAGE_SIZE) as u64);
        self.stream.clear();
        let (chain, expander) = (&mut self.chain, &mut self.expander);
        self.placed = view.expand(number, &held, &self.key, chain, expander, &mut self.stream)?;
        let (bytes, placed) = (&self.stream[..], &self.placed[..]);
        Ok(Effect::Write { bytes, placed, spent: held.contents })
    }
}

/// What was promised for a segment: nothing at all, if nothing was asked; none, while that has no
/// answer.
fn take(promises: &mut HashMap<u32, Option<Held>>, number: u32) -> Option<Held> {
    match promises.get(&number) {
        Some(None) => None,
        Some(Some(_)) => promises.remove(&number).flatten(),
        None => Some(Held::default()),
    }
}

/// Whether all that a segment refers to is there, once its Supply, if there is one, is put to what
/// is held.
fn complete(
    supplies: &mut HashMap<u32, Vec<u8>>,
    view: &SegmentView<'_>,
    number: u32,
    held: &mut Held,
) -> Result<bool, WireError> {
    if view.missing(held)? == 0 {
        return Ok(true);
    }
    let supply = supplies.remove(&number);
    let complete = supply.is_some();
    held.supplied = supply.unwrap_or_default();
    Ok(complete)
}
