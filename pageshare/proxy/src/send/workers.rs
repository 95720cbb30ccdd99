//! Threads that encode segments: they gather literals and compress them.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

use pageshare_index::PageHash;
use pageshare_wire::PageSet;
use pageshare_wire::segment::{Compressor, Draft, Encoded};

use crate::error::Error;

/// A segment to encode, and where to put the result.
pub(super) struct Job {
    pub(super) draft: Draft,
    pub(super) hashes: Vec<PageHash>,
    pub(super) known: PageSet,
    pub(super) compress: bool,
    pub(super) done: mpsc::SyncSender<Done>,
}

/// An encoded segment and the seconds it took.
pub(super) struct Done {
    pub(super) encoded: Encoded,
    pub(super) seconds: f64,
}

/// The threads, which end when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Workers(mpsc::Sender<Job>);

impl Workers {
    pub(super) fn start(threads: usize, level: i32) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads.max(1) {
            let mut compressor = Compressor::new(level)
                .map_err(|error| Error::Refused(format!("zstd level {level}: {error}")))?;
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

fn finish(job: Job, compressor: Option<&mut Compressor>) {
    let begin = Instant::now();
    let encoded = job.draft.encode(job.hashes, &job.known, compressor);
    // A channel that has failed no longer waits for its segments.
    let _ = job.done.send(Done { encoded, seconds: begin.elapsed().as_secs_f64() });
}
