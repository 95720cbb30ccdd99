//! Threads that encode segments: they gather literals and compress them.

use std::sync::{Arc, Mutex, mpsc};

use pageshare_index::{PAGE_SIZE, PageHash};
use pageshare_wire::ask::Answer;
use pageshare_wire::segment::{Draft, Encoded, Treatment};
use pageshare_wire::{Compressor, PageSet, delta};

use crate::error::Error;
use crate::kept::{Earlier, Version};
use crate::processor::thread_time;
use crate::threads::{self, locked};

/// An earlier version of a page.
pub(super) struct Base {
    /// The page's index among the segment's that are asked for.
    pub(super) page: u16,
    /// The version's hash.
    pub(super) hash: PageHash,
    pub(super) content: BaseContent,
}

/// Where an earlier version's content is.
pub(super) enum BaseContent {
    /// It was sent in this migration.
    Sent(Box<[u8; PAGE_SIZE]>),
    /// It is in a kept copy, out of which it is read once the receiver has affirmed it.
    Kept(Arc<Earlier>, Version),
}

/// A segment to encode, and where to put the result.
pub(super) struct Job {
    pub(super) draft: Draft,
    pub(super) hashes: Vec<PageHash>,
    pub(super) pages: Pages,
    pub(super) compress: bool,
    /// What travels of it looks like noise.
    pub(super) noise: bool,
    pub(super) done: mpsc::SyncSender<Done>,
}

/// How the pages of a segment are to travel.
pub(super) enum Pages {
    /// As the answer allows.
    Answered(Answer, Vec<Base>),
    /// All as references, whatever the answer will be.
    AtOnce,
}

impl Pages {
    /// So many pages asked for, all of which travel as contents.
    pub(super) fn whole(asked: usize) -> Self {
        let answer = Answer { known: PageSet::empty(asked), bases: PageSet::empty(0) };
        Self::Answered(answer, Vec::new())
    }

    /// Whether a kept copy is to be read.
    fn reads(&self) -> bool {
        let Self::Answered(answer, bases) = self else { return false };
        answer.bases.count() > 0
            && bases.iter().any(|base| matches!(base.content, BaseContent::Kept(..)))
    }
}

/// An encoded segment and the seconds of processor time it took.
pub(super) struct Done {
    pub(super) encoded: Encoded,
    pub(super) noise: bool,
    pub(super) seconds: f64,
    /// Pages that travel as differences, and the bytes that this spares before compression.
    pub(super) deltas: usize,
    pub(super) delta_saved: usize,
    /// Of those pages, the ones whose earlier version came out of a kept copy.
    pub(super) deltas_kept: usize,
}

/// The threads, which end when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Workers(mpsc::Sender<Job>);

impl Workers {
    pub(super) fn start(count: usize, level: i32) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..count.max(1) {
            let mut compressor = compressor(level)?;
            let queue = Arc::clone(&queue);
            threads::start(move || {
                compressor.make_ready();
                loop {
                    let job = locked(&queue).recv();
                    let Ok(job) = job else { return };
                    let compressor = job.compress.then_some(&mut compressor);
                    finish(job, compressor);
                }
            })?;
        }
        Ok(Self(jobs))
    }

    /// Has a segment encoded in a thread if it is to be compressed or a disk to be read, else at
    /// once: gathering literals is not worth a switch of threads.
    pub(super) fn encode(&self, job: Job) {
        if job.compress || job.pages.reads() {
            // The threads live as long as this handle.
            let _ = self.0.send(job);
        } else {
            finish(job, None);
        }
    }
}

/// A compressor of this zstd level.
pub(crate) fn compressor(level: i32) -> Result<Compressor, Error> {
    Compressor::new(level).map_err(|error| Error::Refused(format!("zstd level {level}: {error}")))
}

fn finish(job: Job, compressor: Option<&mut Compressor>) {
    let asked = job.draft.asked();
    let Treated { treatments, deltas, kept } = match &job.pages {
        Pages::AtOnce => {
            Treated { treatments: vec![Treatment::AtOnce; asked], ..Treated::default() }
        }
        Pages::Answered(answer, bases) => treat(&job.draft, answer, bases),
    };
    let bytes: usize = deltas.iter().map(|delta| delta.len() + 2).sum();
    let delta_saved = deltas.len() * PAGE_SIZE - bytes;
    // What comes before is done with and without compression.
    let begin = thread_time();
    let encoded = job.draft.encode(job.hashes, &treatments, &deltas, compressor);
    let seconds = thread_time().saturating_sub(begin).as_secs_f64();
    // A channel that has failed no longer waits for its segments.
    let (noise, deltas) = (job.noise, deltas.len());
    let done = Done { encoded, noise, seconds, deltas, delta_saved, deltas_kept: kept };
    let _ = job.done.send(done);
}

/// How the pages asked for are to travel.
#[derive(Default)]
struct Treated {
    treatments: Vec<Treatment>,
    deltas: Vec<Vec<u8>>,
    /// Deltas from versions in a kept copy.
    kept: usize,
}

fn treat(draft: &Draft, answer: &Answer, bases: &[Base]) -> Treated {
    let treatments = (0..draft.asked())
        .map(|page| match answer.known.contains(page) {
            true => Treatment::Reference,
            false => Treatment::Content,
        })
        .collect();
    let mut treated = Treated { treatments, ..Treated::default() };
    if answer.bases.count() > 0 {
        let contents = draft.contents();
        for (number, base) in bases.iter().enumerate() {
            let page = usize::from(base.page);
            let useful =
                answer.bases.contains(number) && treated.treatments[page] == Treatment::Content;
            if let Some(delta) = useful.then(|| base.content.delta_to(contents[page])).flatten() {
                treated.treatments[page] = Treatment::Delta;
                treated.deltas.push(delta);
                treated.kept += usize::from(matches!(base.content, BaseContent::Kept(..)));
            }
        }
    }
    treated
}

impl BaseContent {
    /// What leads from here to `page`; nothing if that is not worth it, or this cannot be read.
    fn delta_to(&self, page: &[u8; PAGE_SIZE]) -> Option<Vec<u8>> {
        match self {
            Self::Sent(content) => delta::encode(content, page),
            Self::Kept(earlier, version) => delta::encode(&earlier.read(*version)?, page),
        }
    }
}
