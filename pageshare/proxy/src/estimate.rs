//! What a migration would cost: a sample of the VM's pages is asked for, and the unknown ones
//! compressed, without sending any.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash};
use pageshare_wire::ask::{Answer, Ask};
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Draft;
use pageshare_wire::{Compressor, PageSet, WireError};
use serde::Serialize;

use crate::error::Error;
use crate::link::{Body, Link};
use crate::send::{self, Sender, compressor};
use crate::sources::{self, Run};

/// Pages asked for, or compressed, at a time: as many as a segment of a migration holds.
const BATCH: usize = 64;
/// Saving less than this share of the bytes is not worth the processor time.
const WORTH: f64 = 0.1;

/// The prediction for one pass over the guest's memory. A guest that writes meanwhile adds to
/// both ways of migrating alike.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Bytes of the guest's memory that it has ever touched.
    pub memory_bytes: u64,
    /// Share of those that are zero pages.
    pub zero_share: f64,
    /// Pages asked for.
    pub sampled_pages: usize,
    /// Share of them that the destination has.
    pub found_share: f64,
    /// Bytes that the rest compresses to, each.
    pub compressed_share: f64,
    /// Bytes that QEMU alone would send.
    pub plain_bytes: f64,
    /// Bytes that the sender would send.
    pub bytes: f64,
    /// Seconds that QEMU alone would take at the link's speed.
    pub plain_seconds: f64,
    /// Seconds with the proxies: the slowest of link, hashing and compressing.
    pub seconds: f64,
    /// Processor seconds of the sender for hashing and compressing.
    pub cpu_seconds: f64,
    /// Whether it saves at least a tenth of the bytes and takes no longer.
    pub worth_it: bool,
}

/// Samples one page in `sample` of process `pid`, for a link of `link` bytes a second.
///
/// # Errors
/// If the process may not be read, the receiver cannot be asked, or nothing is in the sample.
pub fn estimate(sender: &Sender, pid: u32, sample: usize, link: f64) -> Result<Estimate, Error> {
    let memory = Memory::open(pid)?;
    let mut wire = None;
    let mut compressor = compressor(sender.level)?;
    let mut asked = 0_u32;

    let mut seen = Seen::default();
    let pages = memory.sample(sample, |batch| {
        // Not before: a receiver to whom nothing is shown does not wait for long for a first question.
        let (wire, agreed) = match &mut wire {
            Some(open) => open,
            none => none.insert(sender.ask_only(sender.scope.as_ref())?),
        };
        seen.look(batch, &agreed.hash_key, &mut compressor, |hashes| {
            let number = asked;
            asked = asked.wrapping_add(1);
            ask(wire, number, hashes)
        })
    })?;
    match wire {
        Some((mut wire, _)) => send::end_questions(&mut wire)?,
        None => sender.greet()?,
    }

    seen.predict(&pages, link, sender.threads)
}

/// What has come of the sample so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// Pages asked for, and those of them that the destination has.
    sampled: usize,
    found: usize,
    /// Bytes of the others, and what they compress to.
    rest: usize,
    compressed: usize,
    /// Seconds.
    hashing: f64,
    compressing: f64,
}

impl Seen {
    /// Has `known` say which of the next pages of the sample are there, and compresses the others.
    pub(crate) fn look(
        &mut self,
        batch: &[u8],
        key: &HashKey,
        compressor: &mut Compressor,
        known: impl FnOnce(Vec<PageHash>) -> Result<PageSet, Error>,
    ) -> Result<(), Error> {
        let begin = Instant::now();
        let pages: Vec<&[u8; PAGE_SIZE]> = batch.as_chunks().0.iter().collect();
        let hashes: Vec<PageHash> = key.hash_pages(&pages);
        self.hashing += begin.elapsed().as_secs_f64();
        self.sampled += pages.len();
        let known = known(hashes)?;
        self.found += known.count();
        let unknown: Vec<u8> = batch
            .chunks(PAGE_SIZE)
            .enumerate()
            .filter(|(index, _)| !known.contains(*index))
            .flat_map(|(_, page)| page.iter().copied())
            .collect();
        self.rest += unknown.len();
        let begin = Instant::now();
        let mut draft = Draft::new(unknown);
        let length = draft.stream_bytes();
        draft.add(pageshare_stream::Token::Bytes, length, false);
        let encoded = draft.encode(Vec::new(), &[], &[], Some(compressor));
        self.compressing += begin.elapsed().as_secs_f64();
        self.compressed += encoded.payload().len();
        Ok(())
    }

    /// What that makes of all pages, for a link of `link` bytes a second.
    ///
    /// # Errors
    /// If none of those with content was in the sample.
    pub(crate) fn predict(
        &self,
        pages: &Pages,
        link: f64,
        threads: usize,
    ) -> Result<Estimate, Error> {
        let content = pages.touched - pages.zeros;
        if self.sampled == 0 && content > 0 {
            return Err(Error::Refused(format!(
                "none of the {content} pages that are not zero was sampled: lower --sample"
            )));
        }
        let share = |part: usize, whole: usize| number(part) / number(whole.max(1));
        let sampled = Sampled {
            touched: pages.touched,
            zero_share: share(pages.zeros, pages.touched),
            sampled: self.sampled,
            found_share: share(self.found, self.sampled),
            compressed_share: share(self.compressed, self.rest),
            hash_seconds_a_page: self.hashing / number(self.sampled.max(1)),
            compress_seconds_a_byte: self.compressing / number(self.rest.max(1)),
        };
        Ok(predict(&sampled, link, threads))
    }
}

struct Sampled {
    touched: usize,
    zero_share: f64,
    sampled: usize,
    found_share: f64,
    compressed_share: f64,
    hash_seconds_a_page: f64,
    compress_seconds_a_byte: f64,
}

fn predict(sampled: &Sampled, link: f64, threads: usize) -> Estimate {
    /// A page's word; a zero page's word and byte; a page's hash in an Ask.
    const WORD: f64 = 8.0;
    const ZERO: f64 = 9.0;
    const HASH: f64 = 16.0;
    let page = number(PAGE_SIZE);
    let pages = number(sampled.touched) * (1.0 - sampled.zero_share);
    let zeros = number(sampled.touched) - pages;
    let unknown = pages * (1.0 - sampled.found_share) * page;
    let plain_bytes = pages * (page + WORD) + zeros * ZERO;
    let bytes = unknown * sampled.compressed_share + pages * HASH;
    let hashing = pages * sampled.hash_seconds_a_page;
    let compressing = unknown * sampled.compress_seconds_a_byte;
    let (plain_seconds, on_link) = (plain_bytes / link, bytes / link);
    let seconds = on_link.max(hashing).max(compressing / number(threads.max(1)));
    Estimate {
        memory_bytes: (sampled.touched * PAGE_SIZE) as u64,
        zero_share: sampled.zero_share,
        sampled_pages: sampled.sampled,
        found_share: sampled.found_share,
        compressed_share: sampled.compressed_share,
        plain_bytes,
        bytes,
        plain_seconds,
        seconds,
        cpu_seconds: hashing + compressing,
        worth_it: bytes < (1.0 - WORTH) * plain_bytes && seconds <= plain_seconds,
    }
}

fn ask(wire: &mut Link, number: u32, hashes: Vec<PageHash>) -> Result<PageSet, Error> {
    let asked = hashes.len();
    let ask = Ask { hashes, bases: Vec::new() };
    wire.writer.send(Kind::Probe, number, &[&ask.encode()])?;
    let mut body = Body::default();
    match wire.reader.receive(&mut body)? {
        Some(header) if header.kind == Kind::Answer && header.sequence == number => {
            Ok(Answer::decode(&body, asked, 0)?.known)
        }
        Some(header) if header.kind == Kind::Abort => {
            Err(WireError::Aborted(String::from_utf8_lossy(&body).into_owned()).into())
        }
        Some(_) => Err(WireError::Protocol("no answer to an estimate's question").into()),
        None => Err(Error::Closed { what: "the receiving proxy" }),
    }
}

/// Pages of a process.
#[derive(Default)]
pub(crate) struct Pages {
    touched: usize,
    zeros: usize,
}

/// A process's memory, of which no more is held here than a batch.
pub(crate) struct Memory {
    file: File,
    touched: Vec<Run>,
}

impl Memory {
    /// Of process `pid`.
    pub(crate) fn open(pid: u32) -> Result<Self, Error> {
        let open = || {
            let file = sources::memory(pid)?;
            if let Some(why) = sources::arrival(pid)? {
                return Err(io::Error::other(why.to_string()));
            }
            Ok(Self { file, touched: sources::touched(pid)? })
        };
        open().map_err(|error: io::Error| Error::File {
            what: "memory of process",
            path: pid.to_string(),
            reason: match error.kind() {
                io::ErrorKind::NotFound => "there is no such process".into(),
                io::ErrorKind::Other => error.to_string(),
                _ => format!("{error} (run as root or as the user that owns it)"),
            },
        })
    }

    /// Counts all pages, and takes one in `sample` of those that are not zero, a batch at a time.
    pub(crate) fn sample(
        &self,
        sample: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Pages, Error> {
        const STRETCH: usize = 256;
        let sample = sample.max(1);
        let mut pages = Pages::default();
        let mut buffer = vec![0; STRETCH * PAGE_SIZE];
        let mut batch = Vec::with_capacity(BATCH * PAGE_SIZE);
        let mut turn = 0;
        for run in &self.touched {
            let mut at = run.address;
            let end = run.address + u64::from(run.pages) * PAGE_SIZE as u64;
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                // What the guest gives back meanwhile is no longer there.
                let Ok(length) = self.file.read_at(&mut buffer[..wanted], at) else { break };
                for page in buffer[..length].chunks_exact(PAGE_SIZE) {
                    pages.touched += 1;
                    if page.iter().all(|byte| *byte == 0) {
                        pages.zeros += 1;
                        continue;
                    }
                    turn = (turn + 1) % sample;
                    if turn == 0 {
                        batch.extend_from_slice(page);
                    }
                    if batch.len() == BATCH * PAGE_SIZE {
                        take(&batch)?;
                        batch.clear();
                    }
                }
                at += wanted as u64;
            }
        }
        if !batch.is_empty() {
            take(&batch)?;
        }
        Ok(pages)
    }
}

#[allow(clippy::cast_precision_loss)] // A prediction needs no 53 bits.
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(found_share: f64, compressed_share: f64) -> Sampled {
        Sampled {
            touched: 1 << 18,
            zero_share: 0.5,
            sampled: 1000,
            found_share,
            compressed_share,
            hash_seconds_a_page: 2e-6,
            compress_seconds_a_byte: 3e-9,
        }
    }

    #[test]
    fn a_sample_comes_in_batches_and_leaves_out_no_page() {
        let mut memory = vec![0_u8; 8 << 20];
        memory.iter_mut().step_by(PAGE_SIZE).for_each(|byte| *byte = 1);
        // Nobody but the kernel reads it.
        std::hint::black_box(&mut memory);
        let process = Memory::open(std::process::id()).unwrap();
        for sample in [1, 7] {
            let mut batches = Vec::new();
            let take = |batch: &[u8]| {
                batches.push(batch.len() / PAGE_SIZE);
                Ok(())
            };
            let pages = process.sample(sample, take).unwrap();
            let content = pages.touched - pages.zeros;
            assert!(content >= memory.len() / PAGE_SIZE, "{content}");
            assert_eq!(batches.iter().sum::<usize>(), content / sample);
            let (_, whole) = batches.split_last().unwrap();
            assert!(whole.iter().all(|pages| *pages == BATCH), "{batches:?}");
        }
    }

    #[test]
    fn a_sample_of_nothing_is_no_estimate() {
        let judged = |zeros| Seen::default().predict(&Pages { touched: 3, zeros }, 125e6, 2);
        assert!(judged(1).unwrap_err().to_string().contains("none of the 2 pages"));
        assert!(judged(3).is_ok());
    }

    #[test]
    fn half_found_and_half_compressed_takes_a_quarter_of_the_bytes() {
        let estimate = predict(&sampled(0.5, 0.5), 125e6, 2);
        let share = estimate.bytes / estimate.plain_bytes;
        assert!((0.25..0.26).contains(&share), "{share}");
        assert!(estimate.worth_it);
    }

    #[test]
    fn nothing_found_and_nothing_compressed_is_not_worth_it() {
        assert!(!predict(&sampled(0.0, 1.0), 125e6, 2).worth_it);
    }

    #[test]
    fn a_link_faster_than_hashing_is_not_worth_it() {
        assert!(!predict(&sampled(0.5, 0.5), 10e9, 2).worth_it);
    }
}
