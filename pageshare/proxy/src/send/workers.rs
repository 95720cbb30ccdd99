//! Threads that encode segments: they gather literals and compress them.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use pageshare_index::{PAGE_SIZE, PageHash};
use pageshare_wire::ask::Answer;
use pageshare_wire::segment::{Draft, Encoded, Treatment};
use pageshare_wire::{Compressor, delta};

use crate::error::Error;
use crate::processor::thread_time;

/// Earlier versions of a segment's pages: the page's index among those asked for, the version's
/// hash, its content.
pub(super) type Bases = Vec<(u16, PageHash, Box<[u8; PAGE_SIZE]>)>;

/// A segment to encode, and where to put the result.
pub(super) struct Job {
    pub(super) draft: Draft,
    pub(super) hashes: Vec<PageHash>,
    pub(super) pages: Pages,
    pub(super) compress: bool,
    pub(super) done: mpsc::SyncSender<Done>,
}

/// How the pages of a segment are to travel.
pub(super) enum Pages {
    /// As the answer allows.
    Answered(Answer, Bases),
    /// All as references, whatever the answer will be.
    AtOnce,
}

/// An encoded segment and the seconds of processor time it took.
pub(super) struct Done {
    pub(super) encoded: Encoded,
    pub(super) seconds: f64,
    /// Pages that travel as differences, and the bytes that this spares before compression.
    pub(super) deltas: usize,
    pub(super) delta_saved: usize,
}

/// The threads, which end when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Workers(mpsc::Sender<Job>);

impl Workers {
    pub(super) fn start(threads: usize, level: i32) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads.max(1) {
            let mut compressor = compressor(level)?;
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    finish(job, Some(&mut compressor));
                }
            });
        }
        Ok(Self(jobs))
    }

    /// Has a segment encoded in a thread if it is to be compressed, else at once: gathering
    /// literals is not worth a switch of threads.
    pub(super) fn encode(&self, job: Job) {
        if job.compress {
            // The threads live as long as this handle.
            let _ = self.0.send(job);
        } else {
            finish(job, None);
        }
    }
}

/// A compressor of this zstd level.
pub(super) fn compressor(level: i32) -> Result<Compressor, Error> {
    Compressor::new(level).map_err(|error| Error::Refused(format!("zstd level {level}: {error}")))
}

fn finish(job: Job, compressor: Option<&mut Compressor>) {
    let asked = job.draft.asked();
    let (treatments, deltas) = match &job.pages {
        Pages::AtOnce => (vec![Treatment::AtOnce; asked], Vec::new()),
        Pages::Answered(answer, bases) => treat(&job.draft, answer, bases),
    };
    let bytes: usize = deltas.iter().map(|delta| delta.len() + 2).sum();
    let delta_saved = deltas.len() * PAGE_SIZE - bytes;
    // What comes before is done with and without compression.
    let begin = thread_time();
    let encoded = job.draft.encode(job.hashes, &treatments, &deltas, compressor);
    let seconds = thread_time().saturating_sub(begin).as_secs_f64();
    // A channel that has failed no longer waits for its segments.
    let _ = job.done.send(Done { encoded, seconds, deltas: deltas.len(), delta_saved });
}

fn treat(draft: &Draft, answer: &Answer, bases: &Bases) -> (Vec<Treatment>, Vec<Vec<u8>>) {
    let mut treatments: Vec<Treatment> = (0..draft.asked())
        .map(|page| match answer.known.contains(page) {
            true => Treatment::Reference,
            false => Treatment::Content,
        })
        .collect();
    let mut deltas = Vec::new();
    if answer.bases.count() > 0 {
        let contents = draft.contents();
        for (number, (page, _, base)) in bases.iter().enumerate() {
            let page = usize::from(*page);
            let useful = answer.bases.contains(number) && treatments[page] == Treatment::Content;
            if let Some(delta) = useful.then(|| delta::encode(base, contents[page])).flatten() {
                treatments[page] = Treatment::Delta;
                deltas.push(delta);
            }
        }
    }
    (treatments, deltas)
}
