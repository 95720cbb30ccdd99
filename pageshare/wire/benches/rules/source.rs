//! What the source's threads do.

use super::{
    HASH, INGEST, Model, OUTLET, QEMU, QUESTION, READ, Record, STEALS, STOLEN, UNSENT, WORKERS,
};
use crate::guest::{KINDS, Kind, PAGE, SEGMENT};

impl Model<'_> {
    pub(super) fn ingest(&mut self) {
        let idle = self.ingesting.is_none() && self.ask_to_send.is_none();
        if !idle || self.piped == 0 || self.window.room() == 0 {
            return;
        }
        self.piped -= 1;
        let number = self.ingested;
        self.ingested += 1;
        self.window.took(SEGMENT as u64);
        let whole = self.rule.took(
            SEGMENT,
            std::mem::take(&mut self.hungry),
            std::mem::take(&mut self.queued),
            self.now,
        );
        let mut pages = Vec::new();
        let (mut asked, mut found) = (0, 0);
        for &((kind, there), count) in &self.segments[number].pages {
            for _ in 0..count {
                let ask = self.rule.asks();
                asked += usize::from(ask);
                found += usize::from(ask && there);
                pages.push((kind, ask && there));
            }
        }
        let segment = &mut self.segments[number];
        (segment.asked, segment.found, segment.whole) = (asked, found, whole);
        segment.waits = asked > 0 && !self.rule.samples();
        let mut ns = READ * SEGMENT as f64;
        if asked > 0 {
            ns += QUESTION + HASH * (asked * PAGE) as f64;
        }
        // From here on only what is known to be there counts as that.
        let waits = segment.waits;
        let mut counts = std::collections::BTreeMap::new();
        for (kind, known) in pages {
            *counts.entry((kind, known && waits)).or_insert(0) += 1;
        }
        segment.pages = counts.into_iter().collect();
        self.source.work[INGEST] = Some(ns * 1e-9);
        self.ingesting = Some(number);
    }

    fn measured(&mut self, seconds: f64) -> f64 {
        let stolen = self.chance.next() < 1.0 / f64::from(STEALS);
        seconds * (0.85 + 0.5 * self.chance.next()) * if stolen { STOLEN } else { 1.0 }
    }

    pub(super) fn source_did(&mut self, thread: usize) {
        match thread {
            QEMU => self.piped += 1,
            INGEST => {
                let number = self.ingesting.take().expect("a segment");
                let asked = self.segments[number].asked * PAGE;
                if asked > 0 {
                    let seconds = self.measured(HASH * 1e-9 * asked as f64);
                    self.rule.hashed(asked, seconds);
                    self.ask_to_send = Some(number);
                    self.ask();
                } else {
                    self.encode(number);
                }
            }
            OUTLET => {
                let (number, begin) = self.sending.take().expect("a segment");
                let bytes = self.segments[number].bytes as f64;
                self.put(Record::Segment(number), bytes);
                let may = f64::from(UNSENT);
                if self.unsent > may {
                    let rest = (self.unsent - may) % (may / 2.0);
                    self.blocked = Some((number, begin, may / 2.0 + rest));
                } else {
                    self.left(number, begin, false);
                }
            }
            worker => {
                let number = self.working[worker - WORKERS].take().expect("a segment");
                let (noise, from, bytes) = {
                    let segment = &self.segments[number];
                    (segment.noise, segment.from, segment.bytes)
                };
                let seconds = self.compressing(number);
                let seconds = self.measured(seconds);
                // The outlet tells of it once it has left; this is little earlier.
                self.rule.compressed(noise, (from, bytes.min(from)), seconds);
                self.segments[number].encoded = true;
            }
        }
    }

    pub(super) fn left(&mut self, number: usize, begin: f64, waited: bool) {
        let bytes = self.segments[number].bytes;
        self.rule.wrote(bytes, (begin, self.now), waited, SEGMENT);
        self.ask();
    }

    /// Sends the question that waits, unless a write goes on: records go out whole.
    pub(super) fn ask(&mut self) {
        if self.blocked.is_some() {
            return;
        }
        let Some(number) = self.ask_to_send.take() else { return };
        let segment = &mut self.segments[number];
        segment.asked_at = self.now;
        let (bytes, waits) = (24 + 16 * segment.asked, segment.waits);
        self.put(Record::Ask(number), bytes as f64);
        self.rule.wrote(bytes, (self.now, self.now), false, bytes);
        if waits {
            self.window.waits();
        } else {
            self.encode(number);
        }
    }

    fn put(&mut self, record: Record, bytes: f64) {
        self.wire_bytes += bytes;
        self.unsent += bytes;
        self.on_wire.push_back((record, bytes));
    }

    pub(super) fn encode(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        let (mut literal, mut noise, mut small, mut expand) = (0, 0, 0.0, 0.0);
        for &((kind, known), count) in &segment.pages {
            if known {
                continue;
            }
            let Kind { noise: is_noise, ratio, expand: nanoseconds, .. } = KINDS[kind];
            literal += count * PAGE;
            noise += if is_noise { count } else { 0 };
            small += ratio * (count * PAGE) as f64;
            expand += nanoseconds * (count * PAGE) as f64;
        }
        segment.noise = literal > 0 && 8 * (literal / PAGE - noise) < literal / PAGE;
        let (whole, noise) = (segment.whole, segment.noise);
        let compress = self.rule.compresses(whole, noise) && literal >= 1 << 10;
        let segment = &mut self.segments[number];
        let head = 100 + segment.asked / 4 + 8;
        segment.from = literal;
        segment.bytes = head + if compress { small as usize } else { literal };
        segment.expand = if compress { expand } else { 0.0 };
        if compress {
            self.jobs.push_back(number);
        } else {
            segment.encoded = true;
        }
    }

    pub(super) fn compressing(&self, number: usize) -> f64 {
        let pages = &self.segments[number].pages;
        let unknown = pages.iter().filter(|((_, known), _)| !known);
        // Among other pages a stretch of noise is looked at more closely.
        let mixed = !self.segments[number].noise;
        let each = unknown.map(|&((kind, _), count)| {
            let Kind { noise, compress, .. } = KINDS[kind];
            let ns = if noise && mixed { 0.8 } else { compress };
            ns * (count * PAGE) as f64
        });
        each.sum::<f64>() * 1e-9 + 10e-6
    }
}
