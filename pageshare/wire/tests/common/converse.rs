//! Both machines of a channel and two wires between them, one record at a time, in any order that
//! threads and distance allow; the receiver's proxy is honest, or says what it likes.

use std::collections::VecDeque;
use std::time::Duration;

use pageshare_index::PAGE_SIZE;
use pageshare_wire::ask::{Answer, encode_supply};
use pageshare_wire::receiver::{Effect, Receiver};
use pageshare_wire::record::{Header, Kind};
use pageshare_wire::segment::{Encoded, Held, Treatment};
use pageshare_wire::sender::{Heard, Purpose, Sender};
use pageshare_wire::window::{SMALLEST, Window};
use pageshare_wire::{PageSet, WireError};

#[path = "segments.rs"]
mod segments;

use super::{Choices, KINDS, Record, Simulator};
use segments::{Check, Segment};

/// Bytes of the stream that a segment of these sessions may have.
const SEGMENT: u64 = 300 << 10;

/// How a conversation ended.
pub(crate) struct Talk {
    /// What QEMU was given.
    pub(crate) written: usize,
    /// Nothing of what the receiver said was changed.
    pub(crate) honest: bool,
    /// Whether both machines came to their end, or why one of them gave up.
    pub(crate) end: Result<bool, WireError>,
}

/// A segment that has not left.
struct Unsent {
    number: u32,
    /// Nothing, while it waits for its Answer.
    encoded: Option<Encoded>,
}

struct Conversation<'a, 'b> {
    world: &'a mut Simulator,
    choices: &'a mut Choices<'b>,
    sender: Sender<u32>,
    receiver: Receiver,
    now: Duration,
    segments: Vec<Segment>,
    /// Of the segments, how many have been taken.
    taken: usize,
    unsent: VecDeque<Unsent>,
    to_receiver: VecDeque<Record>,
    to_sender: VecDeque<Record>,
    /// A record that the receiver has not taken in, since it awaits an answer.
    unread: Option<Record>,
    awaits: bool,
    unanswered: Vec<(u32, Held)>,
    supplies: Vec<(u32, Vec<u8>)>,
    arrived: Vec<u8>,
    reverse: usize,
    reverse_ended: bool,
    /// The sender has taken in the ReverseEnd.
    heard_all: bool,
    lies: usize,
    check: Check,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Hear,
    Carry,
    Answer,
    Supply,
    Leave,
    Take,
    End,
    Reverse,
    ReverseEnd,
    Lie,
}

impl Simulator {
    /// Lets both machines talk to their end, a loss, or a failure.
    ///
    /// # Panics
    /// If a byte arrives that was not sent, a machine keeps more than it may, honest ones fail or
    /// wait for ever, or a segment leaves that does not say what it stands for.
    pub(crate) fn converse(&mut self, mut choices: Choices<'_>, honest: bool) -> Talk {
        let choices = &mut choices;
        let many = if choices.one_in(16) { 60 } else { 5 };
        let segments = (0..=choices.below(12)).map(|_| self.taken(choices, many)).collect();
        let round_trip = Duration::from_millis(choices.below(100) as u64);
        let window = Window::new(SMALLEST, Duration::from_millis(300), round_trip);
        let cut = choices.one_in(4).then(|| choices.below(100));
        let lies = if honest { 0 } else { 1 + choices.below(3) };
        let conversation = Conversation {
            sender: Sender::new(window),
            receiver: Receiver::new(SMALLEST, self.key.clone()).expect("memory for zstd"),
            world: self,
            now: Duration::ZERO,
            segments,
            taken: 0,
            unsent: VecDeque::new(),
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            unread: None,
            awaits: false,
            unanswered: Vec::new(),
            supplies: Vec::new(),
            arrived: Vec::new(),
            reverse: choices.below(3),
            reverse_ended: false,
            heard_all: false,
            lies,
            check: Check::new(),
            choices,
        };
        conversation.run(cut)
    }
}

impl Conversation<'_, '_> {
    fn run(mut self, cut: Option<usize>) -> Talk {
        let told = self.lies;
        let mut end = Ok(false);
        for step in 0.. {
            if cut.is_some_and(|cut| step >= cut) || end.is_err() {
                break;
            }
            let acts = self.possible();
            if acts.is_empty() {
                end = Ok(self.sender.is_over() && self.receiver.is_over());
                break;
            }
            let act = acts[self.choices.below(acts.len())];
            self.now += Duration::from_millis(self.choices.below(30) as u64);
            if let Err(error) = self.act(act) {
                end = Err(error);
            }
            assert!(!self.sender.is_over() || self.sender.has_ended() && self.heard_all);
            self.check_memory();
        }
        let honest = self.lies == told;
        let stream: Vec<u8> = self.segments.iter().flat_map(|it| &it.stream).copied().collect();
        assert!(stream.starts_with(&self.arrived), "{} wrong bytes", self.arrived.len());
        if honest && cut.is_none() {
            assert_eq!(end, Ok(true), "honest machines");
            assert!(stream == self.arrived, "{} of {}", self.arrived.len(), stream.len());
            assert_eq!((self.sender.memory(), self.receiver.memory()), (0, 0));
        }
        Talk { written: self.arrived.len(), honest, end }
    }

    /// What may happen next. Both proxies are done when this is nothing.
    fn possible(&self) -> Vec<Act> {
        let all_taken = self.taken == self.segments.len();
        let ready = self.unsent.front().is_some_and(|first| first.encoded.is_some());
        [
            (Act::Hear, !self.to_sender.is_empty()),
            (Act::Carry, !self.to_receiver.is_empty() && !self.awaits),
            (Act::Answer, !self.unanswered.is_empty()),
            (Act::Supply, !self.supplies.is_empty()),
            (Act::Leave, ready),
            (Act::Take, !all_taken && self.sender.room() >= SEGMENT),
            (Act::End, all_taken && self.unsent.is_empty() && !self.sender.has_ended()),
            (Act::Reverse, self.reverse > 0 && !self.reverse_ended),
            (Act::ReverseEnd, self.receiver.is_over() && !self.reverse_ended),
            (Act::Lie, self.lies > 0),
        ]
        .into_iter()
        .filter_map(|(act, may)| may.then_some(act))
        .collect()
    }

    fn act(&mut self, act: Act) -> Result<(), WireError> {
        match act {
            Act::Hear => self.hear()?,
            Act::Carry => {
                self.unread = self.to_receiver.pop_front();
                self.read()?;
            }
            Act::Answer => {
                let at = self.choices.below(self.unanswered.len());
                let (number, held) = self.unanswered.swap_remove(at);
                let body = self.answer(number, &held);
                self.to_sender.push_back(Record::of(Kind::Answer, number, body));
                self.receiver.answered(number, held);
                self.read()?;
            }
            Act::Supply => {
                let (number, contents) = self.supplies.remove(0);
                let bytes = contents.len();
                self.segments[number as usize].kept = 0;
                let compressor = self.choices.one_in(2).then_some(&mut self.world.compressor);
                let body = encode_supply(contents, compressor);
                self.to_receiver.push_back(Record::of(Kind::Supply, number, body));
                self.sender.supplied(bytes);
            }
            Act::Leave => self.leave(),
            Act::Take => self.take(),
            Act::End => {
                self.sender.ends();
                let segments = u32::try_from(self.taken).expect("few segments");
                self.to_receiver.push_back(Record::of(Kind::End, segments, Vec::new()));
            }
            Act::Reverse => {
                self.reverse -= 1;
                self.to_sender.push_back(Record::of(Kind::Reverse, 0, vec![7; 9]));
            }
            Act::ReverseEnd => {
                self.reverse_ended = true;
                self.to_sender.push_back(Record::of(Kind::ReverseEnd, 0, Vec::new()));
            }
            Act::Lie => {
                self.lies -= 1;
                self.lie();
            }
        }
        Ok(())
    }

    /// Takes a segment, asks for it, and has it encoded if it does not wait for the answer.
    fn take(&mut self) {
        let number = u32::try_from(self.taken).expect("few segments");
        let segment = &mut self.segments[self.taken];
        self.taken += 1;
        self.sender.took(segment.stream.len());
        let mut unsent = Unsent { number, encoded: None };
        if segment.pages.is_empty() {
            unsent.encoded = segment.encode(&[], self.choices, self.world);
            self.unsent.push_back(unsent);
            return;
        }
        let contents = || segment.pages.iter().flat_map(|page| self.world.pages[*page]).collect();
        let (purpose, treatment) = match self.choices.below(4) {
            0 => (Purpose::Learn, Some(Treatment::Content)),
            1 => (Purpose::Supply(contents()), Some(Treatment::AtOnce)),
            _ => (Purpose::Wait, None),
        };
        if treatment.is_none() {
            // Of some the receiver has what was before.
            let bases = (0..).zip(&segment.pages).filter(|(_, page)| *page % 3 != 1);
            segment.ask.bases =
                bases.map(|(at, page)| (at, self.world.earlier_hashes[*page])).collect();
        }
        segment.at_once = treatment == Some(Treatment::AtOnce);
        segment.kept = if segment.at_once { segment.pages.len() } else { 0 };
        segment.said.bases = PageSet::empty(segment.ask.bases.len());
        self.sender.asks(number, &segment.ask, purpose, number, self.now);
        self.to_receiver.push_back(Record::of(Kind::Ask, number, segment.ask.encode()));
        if let Some(treatment) = treatment {
            let treatments = vec![treatment; segment.pages.len()];
            unsent.encoded = segment.encode(&treatments, self.choices, self.world);
        }
        self.unsent.push_back(unsent);
    }

    fn leave(&mut self) {
        let unsent = self.unsent.pop_front().expect("a segment may leave");
        let encoded = unsent.encoded.expect("it is encoded");
        let mut body = self.sender.leaves(unsent.number, &encoded);
        body.extend(encoded.payload());
        let segment = &self.segments[unsent.number as usize];
        self.check.says_what_it_stands_for(unsent.number, segment, &body, self.world);
        self.to_receiver.push_back(Record::of(Kind::Segment, unsent.number, body));
    }

    /// The sender takes what the receiver says.
    fn hear(&mut self) -> Result<(), WireError> {
        let Record { kind, sequence, body } = self.to_sender.pop_front().expect("a record");
        let header = Header::of(kind, sequence, &[&body], false);
        match self.sender.hears(header, &body, self.now)? {
            Heard::Accepted(_) | Heard::Reverse(_) => {}
            Heard::ReverseEnd => self.heard_all = true,
            Heard::Answer(answered) => {
                let segment = &mut self.segments[answered.with as usize];
                segment.said = answered.answer;
                if let Some(missing) = answered.missing {
                    let expected: Vec<u8> = segment.missing(self.world);
                    assert!(missing == expected, "what is missing of segment {}", answered.with);
                    segment.kept = missing.len() / PAGE_SIZE;
                    if !missing.is_empty() {
                        self.supplies.push((answered.with, missing));
                    }
                }
                let waits = self.unsent.iter_mut().find(|it| it.number == answered.with);
                if let Some(unsent) = waits.filter(|it| it.encoded.is_none()) {
                    let treatments = segment.treatments();
                    unsent.encoded = segment.encode(&treatments, self.choices, self.world);
                }
            }
        }
        Ok(())
    }

    /// The receiver takes in what has come, as far as it can.
    fn read(&mut self) -> Result<(), WireError> {
        self.awaits = false;
        let unread = self.unread.take();
        let mut record = unread.as_ref().map(|Record { kind, sequence, body }| {
            (Header::of(*kind, *sequence, &[body], false), &body[..])
        });
        loop {
            match self.receiver.next(&mut record)? {
                Effect::Ask(question) => {
                    self.unanswered.push((question.number, self.world.hold(&question.ask)));
                }
                Effect::Await => {
                    self.awaits = true;
                    break;
                }
                Effect::Write { bytes, .. } => {
                    let length = bytes.len();
                    self.arrived.extend(bytes);
                    if let Some(accepted) = self.receiver.accepted(length) {
                        self.credit(accepted);
                    }
                }
                Effect::Rest => break,
            }
        }
        if record.is_some() {
            self.unread = unread;
        } else if self.receiver.is_over()
            && let Some(accepted) = self.receiver.accepted(0)
        {
            self.credit(accepted);
        }
        Ok(())
    }

    fn credit(&mut self, accepted: u64) {
        self.to_sender.push_back(Record::of(Kind::Credit, 0, accepted.to_le_bytes().into()));
    }

    /// What the receiver says of a question: the body of its Answer.
    fn answer(&self, number: u32, held: &Held) -> Vec<u8> {
        let asked = &self.segments[number as usize].ask.bases;
        let mut bases = PageSet::empty(asked.len());
        for (at, (page, _)) in asked.iter().enumerate() {
            if held.bases.iter().any(|(held, _)| held == page) {
                bases.insert(at);
            }
        }
        Answer { known: held.known.clone(), bases }.encode()
    }

    /// Changes something of what the receiver says.
    fn lie(&mut self) {
        if self.to_sender.is_empty() || self.choices.one_in(4) {
            let kind = KINDS[self.choices.below(KINDS.len())];
            let number = u32::try_from(self.choices.below(8)).expect("little");
            let body = vec![0xff; self.choices.below(10)];
            self.to_sender.push_back(Record::of(kind, number, body));
            return;
        }
        let (records, choices) = (&mut self.to_sender, &mut *self.choices);
        let mut answers = records.iter_mut().filter(|record| record.kind == Kind::Answer);
        if let Some(answer) = answers.next()
            && choices.one_in(2)
            && let Some(Segment { ask, .. }) = self.segments.get(answer.sequence as usize)
        {
            // It has whatever is asked for, or whatever was there before.
            let bases = every(ask.bases.len());
            let pages = ask.hashes.len();
            let known = if choices.one_in(2) { every(pages) } else { PageSet::empty(pages) };
            answer.body = Answer { known, bases }.encode();
            return;
        }
        let (at, other) = (choices.below(records.len()), choices.below(records.len()));
        let record = &mut records[at];
        match choices.below(7) {
            0 => records.swap(at, other),
            1 => {
                let twice = record.clone();
                records.insert(other, twice);
            }
            2 => drop(records.remove(at)),
            3 => record.sequence = u32::try_from(choices.below(8)).expect("little"),
            4 => record.kind = KINDS[choices.below(KINDS.len())],
            5 => record.body.truncate(choices.below(256) * record.body.len() / 256),
            _ => {
                let place = choices.below(256) % record.body.len().max(1);
                if let Some(byte) = record.body.get_mut(place) {
                    *byte ^= 1 << choices.below(8);
                }
            }
        }
    }

    fn check_memory(&self) {
        let kept = self.sender.memory();
        let owed: usize = self.segments.iter().map(|segment| segment.kept).sum();
        assert!(
            (owed * PAGE_SIZE) as u64 <= kept,
            "{owed} pages are kept, and {kept} bytes counted"
        );
        assert!(kept <= u64::from(SMALLEST) + SEGMENT, "{kept} bytes are kept at the sender");
        super::check_memory(&self.receiver, &self.unanswered, SMALLEST);
    }
}

fn every(pages: usize) -> PageSet {
    let mut set = PageSet::empty(pages);
    (0..pages).for_each(|page| set.insert(page));
    set
}
