//! One channel at the sender from the Welcome on: what was taken of the stream, what was asked and
//! what the receiver says go in; whether to take more, and what to do, comes out. It knows no socket,
//! no thread and no clock, so that whole sessions are tried without them.
//!
//! Whatever fails ends the channel with an Abort, whose sentence is the error; nothing may be given
//! to the machine after that.

use std::collections::HashMap;
use std::time::Duration;

use pageshare_index::PAGE_SIZE;

use crate::ask::{Answer, Ask};
use crate::record::{Header, Kind, decode_credit};
use crate::segment::Encoded;
use crate::window::Window;
use crate::{Chain, WireError};

/// What a question's Answer is for.
#[derive(Debug)]
pub enum Purpose {
    /// The segment waits for it.
    Wait,
    /// The segment has gone with references to all pages: what is missing of these contents follows.
    Supply(Vec<u8>),
    /// The segment has gone with all contents: asking pays too little to wait for it.
    Learn,
}

struct Question<W> {
    since: Duration,
    asked: usize,
    bases: usize,
    purpose: Purpose,
    with: W,
}

/// What the receiver has said.
#[derive(Debug)]
pub enum Heard<'a, W> {
    /// Which pages it has.
    Answer(Answered<W>),
    /// The destination QEMU has accepted so many bytes more.
    Accepted(u64),
    /// Bytes of the destination QEMU's, for the source's.
    Reverse(&'a [u8]),
    /// There are no more of them.
    ReverseEnd,
}

/// A question and its answer.
#[derive(Debug)]
pub struct Answered<W> {
    /// Which pages the receiver has.
    pub answer: Answer,
    /// What was given with the question.
    pub with: W,
    /// What is missing of a segment that has gone with references to all pages. Unless that is
    /// nothing, a Supply of it is due.
    pub missing: Option<Vec<u8>>,
}

/// A channel's state between records; with each question something is kept until it is answered.
pub struct Sender<W> {
    window: Window,
    chain: Chain,
    questions: HashMap<u32, Question<W>>,
    ended: bool,
    reverse_ended: bool,
}

impl<W> Sender<W> {
    /// A channel with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let questions = HashMap::new();
        Self { window, chain: Chain::default(), questions, ended: false, reverse_ended: false }
    }

    /// Bytes of the stream that may be taken now.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.window.room()
    }

    /// So many bytes of the stream were taken; returns how many are in flight now.
    pub fn took(&mut self, bytes: usize) -> u64 {
        self.window.took(bytes as u64);
        self.window.in_flight()
    }

    /// The pages of this segment are about to be asked for, `now` since any fixed time.
    pub fn asks(&mut self, number: u32, ask: &Ask, purpose: Purpose, with: W, now: Duration) {
        match &purpose {
            Purpose::Wait => self.window.waits(),
            Purpose::Supply(contents) => self.window.keeps(contents.len() as u64),
            Purpose::Learn => {}
        }
        let (asked, bases) = (ask.hashes.len(), ask.bases.len());
        self.questions.insert(number, Question { since: now, asked, bases, purpose, with });
    }

    /// The segment of this number is about to leave, behind the one before it. Returns what its
    /// record's body begins with.
    #[must_use]
    pub fn leaves(&mut self, number: u32, segment: &Encoded) -> Vec<u8> {
        self.window.sends(segment.stream_bytes() as u64);
        segment.seal(number, &mut self.chain)
    }

    /// So many bytes of contents have been supplied.
    pub fn supplied(&mut self, bytes: usize) {
        self.window.drops(bytes as u64);
    }

    /// The End is about to leave.
    pub fn ends(&mut self) {
        self.ended = true;
    }

    /// Whether the End has left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Nobody will answer any more. Returns what was given with the questions.
    pub fn forgets(&mut self) -> Vec<W> {
        self.questions.drain().map(|(_, question)| question.with).collect()
    }

    /// Whether both directions have ended: the connection may close.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.reverse_ended
    }

    /// What a record of the receiver's says.
    ///
    /// # Errors
    /// If it breaks the protocol, or is an Abort.
    pub fn hears<'a>(
        &mut self,
        header: Header,
        body: &'a [u8],
        now: Duration,
    ) -> Result<Heard<'a, W>, WireError> {
        match header.kind {
            Kind::Answer => self.answered(header.sequence, body, now).map(Heard::Answer),
            Kind::Credit => {
                let more = self.window.credit(decode_credit(body)?, now);
                more.map(Heard::Accepted).ok_or(WireError::Protocol("more accepted than sent"))
            }
            Kind::Reverse | Kind::ReverseEnd if self.reverse_ended => {
                Err(WireError::Protocol("nothing behind the end of the return path"))
            }
            Kind::Reverse => Ok(Heard::Reverse(body)),
            Kind::ReverseEnd => {
                self.reverse_ended = true;
                Ok(Heard::ReverseEnd)
            }
            Kind::Abort => Err(WireError::Aborted(String::from_utf8_lossy(body).into_owned())),
            Kind::Ask | Kind::Probe | Kind::Segment | Kind::Supply | Kind::End => {
                Err(WireError::Protocol("a sender's record from a receiver"))
            }
        }
    }

    /// Bytes of the stream that are kept here at most: what is in flight, or what is kept until the
    /// receiver is known to have it. A segment more than the window.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.window.in_flight().max(self.window.owed())
    }

    fn answered(
        &mut self,
        number: u32,
        body: &[u8],
        now: Duration,
    ) -> Result<Answered<W>, WireError> {
        let question = self.questions.remove(&number);
        let Question { since, asked, bases, purpose, with } =
            question.ok_or(WireError::Protocol("an answer to no question"))?;
        let answer = Answer::decode(body, asked, bases)?;
        self.window.answered(now.saturating_sub(since));
        let missing = match purpose {
            Purpose::Wait | Purpose::Learn => None,
            Purpose::Supply(contents) => {
                let pages = (0..).zip(contents.as_chunks::<PAGE_SIZE>().0);
                let missing = pages.filter(|(page, _)| !answer.known.contains(*page));
                let missing: Vec<u8> = missing.flat_map(|(_, content)| *content).collect();
                self.window.drops((contents.len() - missing.len()) as u64);
                Some(missing)
            }
        };
        Ok(Answered { answer, with, missing })
    }
}
