//! Where segments leave, in order.
//!
//! A segment that is ready while none before it waits is sent by the thread that has read it: for
//! bytes that pass through, a switch of threads costs more than all else that is done to them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use pageshare_wire::record::Kind;

use super::machine::Machine;
use super::migration::Migration;
use super::workers::Done;
use crate::error::Error;
use crate::link::{LinkWriter, Sent};
use crate::record::add;

/// What is sent next, in order.
enum Next {
    /// The segment of this number, once it is encoded.
    Segment(u32, mpsc::Receiver<Done>),
    /// QEMU has closed its writing side; so many segments came before.
    End(u32),
}

/// What both ends of the queue share.
pub(super) struct Line<'a> {
    migration: &'a Migration,
    link: &'a LinkWriter,
    machine: &'a Machine,
    /// Segments in the queue that have not been sent.
    queued: AtomicUsize,
}

/// Takes segments in order.
pub(super) struct Outlet<'a> {
    line: &'a Line<'a>,
    queue: mpsc::Sender<Next>,
}

/// Sends those that could not go at once.
pub(super) struct Queue<'a> {
    line: &'a Line<'a>,
    waiting: mpsc::Receiver<Next>,
}

impl<'a> Line<'a> {
    pub(super) fn new(
        migration: &'a Migration,
        link: &'a LinkWriter,
        machine: &'a Machine,
    ) -> Self {
        Self { migration, link, machine, queued: AtomicUsize::new(0) }
    }

    pub(super) fn open(&'a self) -> (Outlet<'a>, Queue<'a>) {
        let (queue, waiting) = mpsc::channel();
        (Outlet { line: self, queue }, Queue { line: self, waiting })
    }

    fn send(&self, number: u32, done: Done) -> Result<(), Error> {
        let head = self.machine.leaves(number, &done.encoded);
        let payload = done.encoded.payload();
        let sent = self.link.send(Kind::Segment, number, &[&head, payload])?;
        account(self.migration, &done, head.len() + payload.len(), sent);
        self.migration.account.sent(self.link);
        self.migration.buffers.give(done.encoded.into_payload());
        Ok(())
    }
}

impl Outlet<'_> {
    /// Sends this segment, at once or when it is encoded and its turn.
    pub(super) fn put(&self, number: u32, encoded: mpsc::Receiver<Done>) -> Result<(), Error> {
        // Only this end adds to the queue: an empty one stays empty.
        if self.line.queued.load(Ordering::SeqCst) == 0
            && let Ok(done) = encoded.try_recv()
        {
            return self.line.send(number, done);
        }
        self.line.queued.fetch_add(1, Ordering::SeqCst);
        // A queue that has failed takes nothing more; the fuse has the reason.
        let _ = self.queue.send(Next::Segment(number, encoded));
        Ok(())
    }

    /// QEMU has closed its writing side; so many segments came before.
    pub(super) fn end(&self, segments: u32) {
        let _ = self.queue.send(Next::End(segments));
    }
}

impl Queue<'_> {
    /// Sends what is in the queue until the End, or until nothing more can come.
    pub(super) fn run(&self) -> Result<(), Error> {
        while let Ok(next) = self.waiting.recv() {
            match next {
                Next::Segment(number, encoded) => {
                    // The encoder lets go of a segment only when the channel is over.
                    let Ok(done) = encoded.recv() else { return Ok(()) };
                    self.line.send(number, done)?;
                    self.line.queued.fetch_sub(1, Ordering::SeqCst);
                }
                Next::End(segments) => {
                    self.line.machine.ends();
                    self.line.link.send(Kind::End, segments, &[])?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn account(migration: &Migration, done: &Done, bytes: usize, sent: Sent) {
    let counts = &migration.account.counts;
    add(&counts.pages_referenced, done.encoded.references());
    add(&counts.pages_delta, done.deltas);
    add(&counts.delta_saved, done.delta_saved);
    add(&counts.pages_delta_kept, done.deltas_kept);
    migration.wrote(bytes, done.encoded.stream_bytes(), sent);
    if let Some((from, to)) = done.encoded.compression() {
        migration.gains().compressed(done.noise, (from, to), done.seconds);
        add(&counts.compressed_from, from);
        add(&counts.compressed_to, to);
    }
}
