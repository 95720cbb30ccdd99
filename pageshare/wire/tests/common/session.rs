//! Whole sessions of a channel without sockets: a sender, honest or not, a receiver's machine, and
//! what carries records between them. Every choice is drawn from bytes, so that a property test, a
//! fuzzer and a generator of numbers try the same.

use std::collections::HashMap;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash, ScopeKey};
use pageshare_stream::{RamWord, Token, emit};
use pageshare_wire::ask::{Ask, MOST_ASKED, encode_supply};
use pageshare_wire::receiver::{Effect, Receiver};
use pageshare_wire::record::{Header, Kind, LONGEST_SEGMENT};
use pageshare_wire::segment::{Draft, Held, SEGMENT_HEADER_BYTES, Treatment};
use pageshare_wire::{Chain, Compressor, PageSet, WireError, delta};

#[path = "converse.rs"]
mod converse;

/// Different pages in all streams.
const PAGES: usize = 12;

const KINDS: [Kind; 10] = [
    Kind::Ask,
    Kind::Segment,
    Kind::End,
    Kind::Probe,
    Kind::Supply,
    Kind::Answer,
    Kind::Credit,
    Kind::Reverse,
    Kind::ReverseEnd,
    Kind::Abort,
];

/// Bytes to choose by; zeros behind their end, which choose the plainest.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }
}

#[derive(Clone)]
struct Record {
    kind: Kind,
    sequence: u32,
    body: Vec<u8>,
}

/// What a sender says.
struct Said {
    records: Vec<Record>,
    stream: Vec<u8>,
    honest: bool,
    /// Nothing but the stream's own bytes may arrive. Not, where the sender says of a page that it
    /// is another one, or bytes that no hash covers have changed: the link's checksum is for those.
    exact: bool,
}

/// How a session ended.
pub(crate) struct Outcome {
    /// What QEMU was given.
    pub(crate) written: usize,
    /// Of so many bytes.
    pub(crate) stream: usize,
    /// The sender kept to the protocol.
    pub(crate) honest: bool,
    /// Whether the session came to its end, or why the receiver gave up.
    pub(crate) end: Result<bool, WireError>,
}

/// What sessions share.
pub(crate) struct Simulator {
    key: HashKey,
    pages: Vec<[u8; PAGE_SIZE]>,
    hashes: Vec<PageHash>,
    earlier: Vec<[u8; PAGE_SIZE]>,
    earlier_hashes: Vec<PageHash>,
    /// What the receiver holds.
    holds: HashMap<PageHash, [u8; PAGE_SIZE]>,
    compressor: Compressor,
}

impl Simulator {
    pub(crate) fn new() -> Self {
        let key = ScopeKey([5; 32]).hash_key();
        let pages: Vec<_> = (1..).take(PAGES).map(|fill| [fill; PAGE_SIZE]).collect();
        let change = |page: &[u8; PAGE_SIZE]| {
            let (mut page, fill) = (*page, page[0]);
            page[1000..1010].fill(!fill);
            page
        };
        let earlier: Vec<_> = pages.iter().map(change).collect();
        let hash = |pages: &[[u8; PAGE_SIZE]]| -> Vec<_> {
            pages.iter().map(|page| key.hash(page)).collect()
        };
        let (hashes, earlier_hashes) = (hash(&pages), hash(&earlier));
        let known = (0..PAGES).filter(|page| page % 3 == 1).map(|page| (hashes[page], pages[page]));
        let older = (0..PAGES).filter(|page| page % 3 == 2);
        let older = older.map(|page| (earlier_hashes[page], earlier[page]));
        let holds = known.chain(older).collect();
        let compressor = Compressor::new(1).expect("a level that zstd has");
        Self { key, pages, hashes, earlier, earlier_hashes, holds, compressor }
    }

    /// Runs a session to its end, its loss, or its failure.
    ///
    /// # Panics
    /// If the receiver hands out a byte that it must not, keeps more than it may, refuses an honest
    /// sender, or waits for ever.
    pub(crate) fn run(&mut self, mut choices: Choices<'_>, honest: bool) -> Outcome {
        let choices = &mut choices;
        let window = u32::try_from(choices.below(3) << 16).expect("a small window");
        let mut said = self.say(choices, honest);
        if !honest {
            for _ in 0..choices.below(4) {
                lie(&mut said, choices);
            }
        }
        let cut = choices.one_in(4).then(|| choices.below(said.records.len()));
        let carried = cut.unwrap_or(said.records.len());
        let mut machine = Receiver::new(window, self.key.clone()).expect("memory for zstd");
        let mut arrived = Vec::new();
        let end = self.carry(&said.records[..carried], &mut machine, window, &mut arrived, choices);
        if said.exact {
            assert!(said.stream.starts_with(&arrived), "{} wrong bytes", arrived.len());
        }
        if said.honest {
            assert!(end.is_ok(), "an honest sender was refused: {end:?}");
            assert_eq!(end, Ok(cut.is_none()), "the end of an honest sender's session");
        }
        if said.honest && cut.is_none() {
            assert!(arrived == said.stream, "{} of {}", arrived.len(), said.stream.len());
            assert_eq!(machine.memory(), 0);
        }
        let (written, stream) = (arrived.len(), said.stream.len());
        Outcome { written, stream, honest: said.honest, end }
    }

    /// Carries records until the session is over; whether it is.
    fn carry(
        &self,
        records: &[Record],
        machine: &mut Receiver,
        window: u32,
        arrived: &mut Vec<u8>,
        choices: &mut Choices<'_>,
    ) -> Result<bool, WireError> {
        let (mut unanswered, mut credited) = (Vec::new(), 0);
        for Record { kind, sequence, body } in records {
            if machine.is_over() {
                break;
            }
            while !unanswered.is_empty() && choices.one_in(3) {
                answer(machine, &mut unanswered, choices);
            }
            let header = Header::of(*kind, *sequence, &[body], false);
            let mut record = Some((header, &body[..]));
            loop {
                match machine.next(&mut record)? {
                    Effect::Ask(question) => {
                        let held = self.hold(&question.ask);
                        if question.keep {
                            unanswered.push((question.number, held));
                        }
                    }
                    Effect::Await => answer(machine, &mut unanswered, choices),
                    Effect::Write { bytes, placed, .. } => {
                        for page in placed {
                            assert_eq!(
                                self.key.hash(&bytes[page.at..page.at + PAGE_SIZE]),
                                page.hash
                            );
                        }
                        arrived.extend(bytes);
                        let length = bytes.len();
                        credited = machine.accepted(length).unwrap_or(credited);
                        assert!(credited <= arrived.len() as u64);
                        assert!(arrived.len() as u64 - credited < 256 << 10, "a Credit is due");
                    }
                    Effect::Rest => break,
                }
                check_memory(machine, &unanswered, window);
            }
            check_memory(machine, &unanswered, window);
        }
        if machine.is_over() {
            credited = machine.accepted(0).unwrap_or(credited);
            assert_eq!(credited, arrived.len() as u64, "the last Credit");
        }
        Ok(machine.is_over())
    }

    /// What a receiver holds of the pages that are asked for.
    fn hold(&self, ask: &Ask) -> Held {
        let mut held = Held {
            hashes: ask.hashes.clone(),
            known: PageSet::empty(ask.hashes.len()),
            ..Held::default()
        };
        for (at, hash) in ask.hashes.iter().enumerate() {
            if let Some(page) = self.holds.get(hash) {
                held.contents.resize(at * PAGE_SIZE, 0);
                held.contents.extend(page);
                held.known.insert(at);
            }
        }
        for (at, hash) in &ask.bases {
            if let Some(page) = self.holds.get(hash) {
                held.bases.push((*at, Box::new(*page)));
            }
        }
        held
    }

    /// All that a sender says, in one of the orders that the protocol allows.
    fn say(&mut self, choices: &mut Choices<'_>, honest: bool) -> Said {
        let mut said = Said { records: Vec::new(), stream: Vec::new(), honest: true, exact: true };
        let mut order: Vec<(i64, Record)> = Vec::new();
        let mut chain = Chain::default();
        let segments = 1 + choices.below(6);
        let end = 10 * i64::try_from(segments).expect("few segments");
        for number in 0..u32::try_from(segments).expect("few segments") {
            let place = 10 * i64::from(number);
            let asked_at = place - 10 * i64::try_from(choices.below(4)).expect("little");
            let (ask, supply, body) = self.segment(choices, honest, &mut said, number, &mut chain);
            if !ask.hashes.is_empty() {
                order.push((asked_at, Record::of(Kind::Ask, number, ask.encode())));
            }
            order.push((place + 5, Record::of(Kind::Segment, number, body)));
            if !supply.is_empty() {
                let compressor = choices.one_in(2).then_some(&mut self.compressor);
                let body = encode_supply(supply, compressor);
                let later = i64::try_from(choices.below(256)).expect("a byte");
                let at = asked_at + 1 + later % (end + 10 - asked_at);
                order.push((at, Record::of(Kind::Supply, number, body)));
            }
        }
        order.push((end, Record::of(Kind::End, 0, Vec::new())));
        // What has the same place stays in the order above.
        order.sort_by_key(|(at, _)| *at);
        said.records = order.into_iter().map(|(_, record)| record).collect();
        if choices.one_in(4) {
            let probe = Ask { hashes: self.hashes.clone(), bases: Vec::new() };
            said.records.insert(0, Record::of(Kind::Probe, 7, probe.encode()));
        }
        said
    }

    /// A segment's draft, of so many tokens at most, its stream, and which pages are asked for.
    fn draft(&self, choices: &mut Choices<'_>, most: usize) -> (Draft, Vec<u8>, Vec<usize>) {
        let mut stream = Vec::new();
        let (mut tokens, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..=choices.below(most) {
            let word = RamWord((choices.below(4) as u64) << 12 | 0x28);
            let page = choices.below(PAGES);
            let (token, ask) = match choices.below(6) {
                0 => (Token::Bytes, false),
                1 => (Token::Zero(RamWord(word.0 & !0xfff | 0x22)), false),
                2 => (Token::Content, choices.one_in(4)),
                3 => (Token::Content, true),
                _ => (Token::Page(word), true),
            };
            let before = stream.len();
            match token {
                Token::Bytes => stream.extend(&self.pages[page][..=page]),
                Token::Zero(word) => emit::zero_pages(word, 1, &mut stream),
                Token::Page(word) => {
                    stream.extend(word.to_bytes());
                    stream.extend(self.pages[page]);
                }
                _ => stream.extend(self.pages[page]),
            }
            tokens.push((token, stream.len() - before, ask));
            asked.extend(ask.then_some(page));
        }
        let mut draft = Draft::new(stream.clone());
        for (token, length, ask) in tokens {
            draft.add(token, length, ask);
        }
        (draft, stream, asked)
    }

    /// A segment's Ask, the contents of its Supply, and its body.
    fn segment(
        &mut self,
        choices: &mut Choices<'_>,
        honest: bool,
        said: &mut Said,
        number: u32,
        chain: &mut Chain,
    ) -> (Ask, Vec<u8>, Vec<u8>) {
        let (draft, stream, asked) = self.draft(choices, 5);
        said.stream.extend(&stream);
        let mut ask = Ask { hashes: draft.hash(&self.key), bases: Vec::new() };
        let (mut treatments, mut deltas, mut supply) = (Vec::new(), Vec::new(), Vec::new());
        for (at, page) in asked.into_iter().enumerate() {
            use Treatment::{AtOnce, Content, Delta, Reference};
            let mut may = match page % 3 {
                1 => vec![Content, AtOnce, Reference],
                2 => vec![Content, AtOnce, Delta],
                _ => vec![Content, AtOnce],
            };
            if !honest && choices.one_in(6) {
                // What nobody has promised, or what has another hash.
                said.honest = false;
                may = vec![Delta, Reference];
                if choices.one_in(3) {
                    said.exact = false;
                    ask.hashes[at] = self.hashes[choices.below(PAGES)];
                }
            }
            let treatment = may[choices.below(may.len())];
            if page % 3 == 2 && (treatment == Delta || choices.one_in(2)) {
                let at = u16::try_from(at).expect("few pages");
                ask.bases.push((at, self.earlier_hashes[page]));
            }
            if treatment == Delta {
                let (old, new) = (&self.earlier[page], &self.pages[page]);
                deltas.push(delta::encode(old, new).expect("few bytes differ"));
            }
            if treatment == AtOnce && page % 3 != 1 {
                let mut brings = page;
                if !honest && choices.one_in(8) {
                    said.honest = false;
                    brings = choices.below(PAGES);
                }
                supply.extend(self.pages[brings]);
            }
            treatments.push(treatment);
        }
        let compressor = choices.one_in(2).then_some(&mut self.compressor);
        let encoded = draft.encode(ask.hashes.clone(), &treatments, &deltas, compressor);
        let mut body = encoded.seal(number, chain);
        body.extend(encoded.payload());
        (ask, supply, body)
    }
}

impl Record {
    fn of(kind: Kind, sequence: u32, body: Vec<u8>) -> Self {
        Self { kind, sequence, body }
    }
}

/// Answers one of the questions, any one.
fn answer(machine: &mut Receiver, unanswered: &mut Vec<(u32, Held)>, choices: &mut Choices<'_>) {
    assert!(!unanswered.is_empty(), "the receiver waits for an answer that nobody owes");
    let (number, held) = unanswered.swap_remove(choices.below(unanswered.len()));
    machine.answered(number, held);
}

/// What is kept stays within what the format's page promises of a channel with this window.
fn check_memory(machine: &Receiver, unanswered: &[(u32, Held)], window: u32) {
    let pages = unanswered.iter().map(|(_, held)| held.hashes.len() + held.bases.len());
    let kept = machine.memory() + (pages.sum::<usize>() * PAGE_SIZE) as u64;
    let limit = u64::from(window) + LONGEST_SEGMENT as u64;
    assert!(kept <= 5 * limit, "{kept} bytes are kept, with a window of {window}");
}

/// Changes something of what a sender says.
fn lie(said: &mut Said, choices: &mut Choices<'_>) {
    said.honest = false;
    let at = choices.below(said.records.len());
    let other = choices.below(said.records.len());
    match choices.below(10) {
        0 => said.records.swap(at, other),
        1 => said.records.insert(other, said.records[at].clone()),
        2 if said.records.len() > 1 => drop(said.records.remove(at)),
        3 => said.records[at].sequence = u32::try_from(choices.below(8)).expect("little"),
        4 => said.records[at].kind = KINDS[choices.below(KINDS.len())],
        5 => {
            let body = &mut said.records[at].body;
            body.truncate(choices.below(256) * body.len() / 256);
        }
        6 => {
            let Record { kind, body, .. } = &mut said.records[at];
            let place = (choices.below(256) << 8 | choices.below(256)) % body.len().max(1);
            if let Some(byte) = body.get_mut(place) {
                *byte ^= 1 << choices.below(8);
                // Only the link's checksum covers literal bytes that were not asked for.
                said.exact &= *kind != Kind::Segment;
            }
        }
        7 => {
            // As much as may be asked for, several times.
            let hashes = vec![PageHash([1; 16]); MOST_ASKED];
            let bases = (0..).zip(&hashes).map(|(page, hash)| (page, *hash)).collect();
            let body = Ask { hashes, bases }.encode();
            for number in 100..102 + choices.below(8) {
                let number = u32::try_from(number).expect("little");
                said.records.insert(at, Record::of(Kind::Ask, number, body.clone()));
            }
        }
        8 => {
            // Segments that stand for much, behind the first one that waits.
            let mut body = vec![0; SEGMENT_HEADER_BYTES + (choices.below(3) << 20)];
            let words = u32::try_from(body.len() - SEGMENT_HEADER_BYTES).expect("short");
            body[..4].copy_from_slice(&u32::to_le_bytes(1 << (10 * choices.below(3))));
            body[4..8].copy_from_slice(&words.to_le_bytes());
            body[12] = 1;
            let before = said.records[..at].iter();
            let number = before.filter(|record| record.kind == Kind::Segment).count();
            for more in 0..choices.below(8) {
                let number = u32::try_from(number + more).expect("few records");
                let record = Record::of(Kind::Segment, number, body.clone());
                said.records.insert(at + more, record);
            }
        }
        _ => {
            // Nothing lacks these.
            for number in 0..=choices.below(6) {
                let number = u32::try_from(number).expect("little");
                let body = encode_supply(vec![9; PAGE_SIZE << choices.below(8)], None);
                said.records.insert(at, Record::of(Kind::Supply, 50 + number, body));
            }
        }
    }
}
