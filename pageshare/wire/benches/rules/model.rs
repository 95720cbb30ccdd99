//! A migration in virtual time: both hosts' threads, the wire between them, and a rule that says
//! what to ask for and to compress.
//!
//! A segment passes QEMU, the thread that reads (and hashes what is asked for), the answer of the
//! other host, a thread that compresses, and the outlet, which copies it into a kernel that lets
//! [`UNSENT`] bytes wait; then the wire, of a rate and a round trip; at the other host the thread
//! that expands and verifies, and QEMU. What is in flight is bounded by [`Window`]. The threads of
//! a host share its processors evenly, none gets more than one, and so do as many threads of guests
//! as compute all the time. Not in it: what a switch of threads costs, passes over memory that was
//! written again, zero pages (they are part of what QEMU takes for the others), TLS, losses.
//!
//! What a byte costs is what was measured on a virtual machine of an Intel Xeon with AVX-512, but
//! for QEMU, of which plain migrations took 2.3 ns in all; see [`Kind`] and the constants.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use pageshare_wire::adaptive::UNSENT;
use pageshare_wire::window::Window;

mod source;

use crate::guest::{Chance, PAGE, SEGMENT, Scenario, Segment, segments};
use crate::host::Host;

/// Nanoseconds a byte: reading from QEMU, writing to the link, hashing, what answering takes where
/// the page is found and where it is not, taking over a page found, handing on to QEMU.
const READ: f64 = 0.2;
const WRITE: f64 = 0.2;
const HASH: f64 = 0.25;
const FOUND: f64 = 0.8;
const NOT_FOUND: f64 = 0.03;
const TAKE: f64 = 0.1;
const HAND_ON: f64 = 0.2;
/// What the destination QEMU takes for a byte.
const LOAD: f64 = 1.1;
/// What each question costs either host, whatever it asks for: changes of threads.
const QUESTION: f64 = 15e3;
/// What a step seems to take is wrong by up to a third, and one in so many times it is
/// `STOLEN` times what it was.
const STEALS: u32 = 64;
const STOLEN: f64 = 50.0;

/// What is to be done, and what is learnt of it.
pub trait Rule {
    /// So many bytes have come. QEMU was waited for, and threads waited for a processor, for so many
    /// seconds since the last. Whether they are to go whole.
    fn took(&mut self, bytes: usize, hungry: f64, queued: f64, now: f64) -> bool;
    fn asks(&mut self) -> bool;
    /// What is asked for now does not wait for its answer.
    fn samples(&self) -> bool;
    fn hashed(&mut self, bytes: usize, seconds: f64);
    fn answered(&mut self, bytes: usize, found: usize);
    fn compresses(&mut self, whole: bool, noise: bool) -> bool;
    fn compressed(&mut self, noise: bool, from_to: (usize, usize), seconds: f64);
    /// Bytes were written, which stand for so many of the stream.
    fn wrote(&mut self, bytes: usize, span: (f64, f64), waited: bool, stream: usize);
}

#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub seconds: f64,
    /// Of the stream.
    pub wire: f64,
    /// Both hosts' proxies and QEMUs.
    pub processor: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    AskArrives(usize),
    SegmentArrives(usize),
    AnswerArrives(usize),
    CreditArrives(u64),
    Change,
    Wake,
}

#[derive(Clone, Copy)]
enum Record {
    Ask(usize),
    Segment(usize),
}

/// Threads of the source, and of the destination.
const QEMU: usize = 0;
const INGEST: usize = 1;
const OUTLET: usize = 2;
const WORKERS: usize = 3;
const TAKING: usize = 1;
const ANSWERING: usize = 2;

pub struct Model<'a> {
    scenario: &'a Scenario,
    rule: &'a mut dyn Rule,
    segments: Vec<Segment>,
    chance: Chance,
    now: f64,
    source: Host,
    destination: Host,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    window: Window,
    // The source.
    made: usize,
    woken: usize,
    piped: usize,
    ingested: usize,
    ingesting: Option<usize>,
    ask_to_send: Option<usize>,
    jobs: VecDeque<usize>,
    working: Vec<Option<usize>>,
    sent: usize,
    sending: Option<(usize, f64)>,
    /// The outlet waits until so many bytes are left in the kernel.
    blocked: Option<(usize, f64, f64)>,
    // The wire.
    rate: f64,
    on_wire: VecDeque<(Record, f64)>,
    unsent: f64,
    wire_bytes: f64,
    /// Seconds that QEMU was waited for, and that threads waited for a processor.
    hungry: f64,
    queued: f64,
    // The destination.
    arrived: VecDeque<Record>,
    questions: VecDeque<usize>,
    taking: Option<usize>,
    taken: Option<usize>,
    loading: bool,
    loaded: usize,
}

impl<'a> Model<'a> {
    pub fn run(scenario: &'a Scenario, rule: &'a mut dyn Rule) -> Outcome {
        let workers = 2;
        let mut model = Self {
            rule,
            segments: segments(scenario),
            chance: Chance(88_172_645_463_325_252),
            now: 0.0,
            source: Host {
                processors: 1.0,
                busy: scenario.busy,
                work: vec![None; WORKERS + workers],
                used: 0.0,
            },
            destination: Host { processors: 1.0, busy: 0, work: vec![None; 3], used: 0.0 },
            events: BinaryHeap::new(),
            order: 0,
            window: Window::new(
                64 << 20,
                Duration::from_millis(300),
                Duration::from_secs_f64(scenario.round_trip),
            ),
            made: 0,
            woken: 0,
            piped: 0,
            ingested: 0,
            ingesting: None,
            ask_to_send: None,
            jobs: VecDeque::new(),
            working: vec![None; workers],
            sent: 0,
            sending: None,
            blocked: None,
            rate: 0.0,
            on_wire: VecDeque::new(),
            unsent: 0.0,
            wire_bytes: 0.0,
            hungry: 0.0,
            queued: 0.0,
            arrived: VecDeque::new(),
            questions: VecDeque::new(),
            taking: None,
            taken: None,
            loading: false,
            loaded: 0,
            scenario,
        };
        for (at, _) in scenario.wire.iter().chain(&scenario.processors) {
            model.at(*at, Event::Change);
        }
        model.go()
    }

    fn at(&mut self, time: f64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(((time * 1e12) as u64, self.order, event)));
    }

    fn go(mut self) -> Outcome {
        while self.loaded < self.segments.len() {
            while self.start() {}
            let event =
                self.events.peek().map_or(f64::INFINITY, |Reverse((at, ..))| *at as f64 / 1e12);
            let wire = self.on_wire.front().map_or(f64::INFINITY, |(_, left)| left / self.rate);
            let free = self
                .blocked
                .map_or(f64::INFINITY, |(_, _, left)| (self.unsent - left).max(0.0) / self.rate);
            let step = (event - self.now)
                .max(0.0)
                .min(wire)
                .min(free)
                .min(self.source.next())
                .min(self.destination.next());
            assert!(step.is_finite(), "it stands still: {}", self.scenario.name);
            self.pass(step, event - self.now <= step, wire <= step, free <= step);
        }
        let all = self.scenario.bytes as f64;
        Outcome {
            seconds: self.now + self.scenario.round_trip / 2.0,
            wire: self.wire_bytes / all,
            processor: self.source.used + self.destination.used,
        }
    }

    fn pass(&mut self, step: f64, event: bool, wire: bool, free: bool) {
        self.now += step;
        if let Some((_, left)) = self.on_wire.front_mut() {
            *left -= step * self.rate;
            self.unsent = (self.unsent - step * self.rate).max(0.0);
        }
        let mine = self.source.work[WORKERS..].iter().flatten().count()
            + usize::from(self.source.work[INGEST].is_some());
        self.queued += mine as f64 * step * (1.0 - self.source.rate());
        if self.ingesting.is_none()
            && self.ask_to_send.is_none()
            && self.piped == 0
            && self.window.room() > 0
        {
            self.hungry += step;
        }
        let source = self.source.pass(step);
        let destination = self.destination.pass(step);
        if wire {
            let (record, _) = self.on_wire.pop_front().expect("a record");
            let arrives = match record {
                Record::Ask(segment) => Event::AskArrives(segment),
                Record::Segment(segment) => Event::SegmentArrives(segment),
            };
            self.at(self.now + self.scenario.round_trip / 2.0, arrives);
        }
        if free && let Some((segment, begin, _)) = self.blocked.take() {
            self.left(segment, begin, true);
        }
        for thread in source {
            self.source_did(thread);
        }
        for thread in destination {
            self.destination_did(thread);
        }
        if event {
            let Reverse((_, _, event)) = self.events.pop().expect("an event");
            self.happens(event);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Change => {
                let now = self.now + 1e-9;
                let value = |all: &[(f64, f64)]| {
                    all.iter()
                        .filter(|it| it.0 <= now)
                        .map(|it| it.1)
                        .next_back()
                        .expect("from 0 on")
                };
                self.rate = value(&self.scenario.wire);
                self.source.processors = value(&self.scenario.processors);
                self.destination.processors =
                    self.scenario.there_processors.unwrap_or(value(&self.scenario.processors));
            }
            Event::Wake => {}
            Event::AskArrives(segment) => self.arrived.push_back(Record::Ask(segment)),
            Event::SegmentArrives(segment) => self.arrived.push_back(Record::Segment(segment)),
            Event::AnswerArrives(number) => {
                let segment = &self.segments[number];
                let (asked, found, waits) = (segment.asked, segment.found, segment.waits);
                let after = Duration::from_secs_f64(self.now - segment.asked_at);
                self.window.answered(after);
                self.rule.answered(asked * PAGE, found * PAGE);
                if waits {
                    self.encode(number);
                }
            }
            Event::CreditArrives(accepted) => {
                let now = Duration::from_secs_f64(self.now);
                self.window.credit(accepted, now).expect("no more than was sent");
            }
        }
    }

    /// What changes when something starts.
    fn progress(&self) -> [usize; 7] {
        let begun = usize::from(self.loading) + 2 * usize::from(self.sending.is_some());
        let waiting = self.taken.map_or(0, |it| it + 1);
        let (jobs, arrived) = (self.jobs.len(), self.arrived.len());
        [self.made, self.ingested, jobs, self.sent, arrived, waiting, begun]
    }

    /// Starts what can start; whether anything did.
    fn start(&mut self) -> bool {
        let before = self.progress();
        if self.source.work[QEMU].is_none() && self.made < self.segments.len() && self.piped < 2 {
            let step = (self.made * SEGMENT) as f64 / (0.1 * self.scenario.cap);
            let may = 0.1 * step.floor();
            if may > self.now + 1e-9 {
                if self.made != self.woken {
                    self.woken = self.made;
                    self.at(may, Event::Wake);
                }
            } else {
                self.made += 1;
                self.source.work[QEMU] = Some(self.scenario.guest.qemu * 1e-9 * SEGMENT as f64);
            }
        }
        self.ingest();
        for worker in 0..self.working.len() {
            if self.working[worker].is_none()
                && let Some(number) = self.jobs.pop_front()
            {
                let seconds = self.compressing(number);
                self.source.work[WORKERS + worker] = Some(seconds);
                self.working[worker] = Some(number);
            }
        }
        if self.sending.is_none()
            && self.blocked.is_none()
            && self.segments.get(self.sent).is_some_and(|it| it.encoded)
        {
            let segment = &self.segments[self.sent];
            self.window.sends(SEGMENT as u64);
            self.source.work[OUTLET] = Some(5e-6 + WRITE * 1e-9 * segment.bytes as f64);
            self.sending = Some((self.sent, self.now));
            self.sent += 1;
        }
        if self.destination.work[TAKING].is_none()
            && self.taking.is_none()
            && let Some(record) = self.arrived.pop_front()
        {
            match record {
                Record::Ask(segment) => self.questions.push_back(segment),
                Record::Segment(number) => {
                    let segment = &self.segments[number];
                    let verify = HASH
                        * ((segment.asked - if segment.waits { segment.found } else { 0 }) * PAGE)
                            as f64;
                    let take = TAKE * (if segment.waits { segment.found } else { 0 } * PAGE) as f64;
                    let ns = segment.expand + verify + take + HAND_ON * SEGMENT as f64;
                    self.destination.work[TAKING] = Some(ns * 1e-9);
                    self.taking = Some(number);
                }
            }
        }
        if self.destination.work[ANSWERING].is_none()
            && let Some(number) = self.questions.front()
        {
            let segment = &self.segments[*number];
            let ns = QUESTION
                + FOUND * (segment.found * PAGE) as f64
                + NOT_FOUND * ((segment.asked - segment.found) * PAGE) as f64;
            self.destination.work[ANSWERING] = Some(ns * 1e-9);
        }
        self.hand_on();
        if !self.loading && self.taken.take().is_some() {
            self.loading = true;
            self.destination.work[QEMU] = Some(LOAD * 1e-9 * SEGMENT as f64);
        }
        before != self.progress()
    }

    fn destination_did(&mut self, thread: usize) {
        match thread {
            QEMU => {
                self.loading = false;
                self.loaded += 1;
                let accepted = (self.loaded * SEGMENT) as u64;
                self.at(self.now + self.scenario.round_trip / 2.0, Event::CreditArrives(accepted));
                self.hand_on();
            }
            TAKING => self.hand_on(),
            _ => {
                let number = self.questions.pop_front().expect("a question");
                self.at(self.now + self.scenario.round_trip / 2.0, Event::AnswerArrives(number));
            }
        }
    }

    /// What is taken waits until QEMU has taken what came before.
    fn hand_on(&mut self) {
        if self.destination.work[TAKING].is_none()
            && self.taken.is_none()
            && let Some(number) = self.taking.take()
        {
            self.taken = Some(number);
        }
    }
}
