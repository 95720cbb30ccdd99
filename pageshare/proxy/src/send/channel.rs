//! One channel at the sender: four threads between QEMU and the other proxy, and one that watches QEMU.
//!
//! ```text
//! QEMU ──▶ ingest ──(ask, or a segment that waits for nothing)──▶ other proxy
//!             │ segments, in order          │
//!             ▼                             ▼
//!           queue ◀── encode ◀── answers ── listen ──▶ QEMU (return path)
//!                                              │ what references made too early lack
//!                                              ▼
//!                                           supply ──▶ other proxy
//! ```

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use pageshare_index::PAGE_SIZE;
use pageshare_stream::ReturnPath;
use pageshare_wire::adaptive::Policy;
use pageshare_wire::ask::{Answer, encode_supply};
use pageshare_wire::record::Kind;
use pageshare_wire::sender::{Answered, Heard};
use pageshare_wire::window::Window;
use tracing::{debug, warn};

use super::ingest::{Ingest, Unsent, Waiting};
use super::machine::Machine;
use super::migration::Migration;
use super::outlet::Line;
use super::workers::{Pages, compressor};
use crate::error::Error;
use crate::fuse::Fuse;
use crate::link::{Body, Link, LinkReader, LinkWriter};
use crate::record::add;
use crate::socket::Socket;
use crate::threads::start_in;

const QEMU: &str = "the source QEMU";

/// Carries one connection of QEMU's to its end. Whatever fails, QEMU sees a closed connection,
/// takes the migration for failed, and keeps its VM.
pub(super) fn run(qemu: &Arc<Socket>, migration: &Migration, number: u32) {
    if let Err(error) = carry(qemu, migration, number) {
        warn!("channel {number}: {error}");
        migration.account.broke(&error.to_string());
    }
    qemu.shutdown(Shutdown::Both);
}

fn carry(qemu: &Arc<Socket>, migration: &Migration, number: u32) -> Result<(), Error> {
    let sender = &migration.sender;
    let (link, agreed) = migration.connect(number)?;
    migration.account.speaks(agreed.version);
    debug!(
        "channel {number} open, version {}, scope {:?}, window {}, round trip {:?}",
        agreed.version, agreed.scope, agreed.window, agreed.round_trip
    );
    let Link { reader, writer } = link;
    let fuse = Fuse::new(vec![Arc::clone(qemu)]);
    let window = Window::new(agreed.window, sender.downtime_limit, agreed.round_trip);
    let machine = Machine::new(window);
    let line = Line::new(migration, &writer, &machine);
    let (outlet, queue) = line.open();

    let fail = |error: Error| {
        let why = error.to_string();
        // In this order: no more is taken from QEMU, and that it is cut off is not taken for the end
        // of its stream, whatever time the word on it takes.
        machine.give_up();
        fuse.blow(error);
        writer.abort(&why);
    };
    // Nobody else would notice, where the receiver takes nothing any more: QEMU has closed the main
    // channel although it is still to hear there that the guest is loaded, or one of a migration that
    // has failed.
    let is_lost = || {
        let account = &migration.account;
        let failed = account.is_broken() || number == 0 && account.awaits_word();
        failed && qemu.is_hung_up()
    };
    std::thread::scope(|threads| {
        let ingests = start_in(threads, || {
            let outlet = outlet;
            let ingest = Ingest {
                migration,
                channel: number,
                key: &agreed.hash_key,
                in_scope: agreed.scope.is_some(),
                machine: &machine,
                link: &writer,
                outlet,
            };
            ingest.run(qemu).unwrap_or_else(fail);
        });
        let queues = start_in(threads, || {
            let queue = queue;
            queue.run().unwrap_or_else(fail);
        });
        let (supplies, wanted) = mpsc::channel();
        let supplying = start_in(threads, || {
            let wanted = wanted;
            supply(migration, &writer, &machine, &wanted).unwrap_or_else(fail);
        });
        let watches = start_in(threads, || machine.watch(is_lost).unwrap_or_else(fail));
        let listen = Listen { migration, machine: &machine, supplies };
        let started =
            [ingests, queues, supplying, watches].into_iter().try_for_each(|it| it.map(drop));
        started.and_then(|()| listen.run(reader, qemu)).unwrap_or_else(fail);
        machine.give_up();
    });
    migration.account.sent(&writer);
    fuse.error().map_or(Ok(()), Err)
}

/// Sends what references made before their answers turned out to lack.
fn supply(
    migration: &Migration,
    link: &LinkWriter,
    machine: &Machine,
    wanted: &mpsc::Receiver<(u32, Vec<u8>)>,
) -> Result<(), Error> {
    let mut compressor = match migration.sender.compress {
        Policy::Never => None,
        Policy::Adaptive | Policy::Always => Some(compressor(migration.sender.level)?),
    };
    for (sequence, contents) in wanted {
        let bytes = contents.len();
        let supply = encode_supply(contents, compressor.as_mut());
        let sent = link.send(Kind::Supply, sequence, &[&supply])?;
        migration.wrote(supply.len(), bytes, sent);
        machine.supplied(bytes);
    }
    Ok(())
}

/// Takes what the receiver says.
struct Listen<'a> {
    migration: &'a Migration,
    machine: &'a Machine,
    supplies: mpsc::Sender<(u32, Vec<u8>)>,
}

impl Listen<'_> {
    fn run(&self, mut link: LinkReader, mut qemu: &Socket) -> Result<(), Error> {
        let mut body = Body::default();
        let mut said = ReturnPath::default();
        // The receiver closes the connection once both directions have ended.
        while let Some(header) = link.receive(&mut body)? {
            self.migration.account.received(&mut link);
            match self.machine.hears(header, &body)? {
                Heard::Answer(answered) => self.answer(header.sequence, answered),
                Heard::Accepted(more) => {
                    let counts = &self.migration.account.counts;
                    counts.stream_accepted.fetch_add(more, Ordering::Relaxed);
                }
                Heard::Reverse(bytes) => {
                    self.migration.account.heard(&mut said, bytes);
                    match qemu.write_all(bytes) {
                        // QEMU has ended the migration and no longer listens.
                        Err(_) if self.machine.has_ended() => {}
                        other => other.map_err(Error::lost(QEMU, "writing its return path"))?,
                    }
                }
                Heard::ReverseEnd => qemu.shutdown(Shutdown::Write),
            }
        }
        if self.machine.is_over() {
            Ok(())
        } else {
            Err(Error::Closed { what: "the receiving proxy" })
        }
    }

    fn answer(&self, number: u32, answered: Answered<Waiting>) {
        let Answered { answer, with, missing } = answered;
        self.learn(&with, &answer);
        if let Some(missing) = missing {
            let counts = &self.migration.account.counts;
            add(&counts.pages_referenced, answer.known.count());
            add(&counts.pages_supplied, missing.len() / PAGE_SIZE);
            if !missing.is_empty() {
                // A thread that has failed supplies nothing more; the fuse has the reason.
                let _ = self.supplies.send((number, missing));
            }
        }
        if let Some(segment) = with.segment {
            let Unsent { draft, whole, hashes, addresses, bases, done } = segment;
            if let Some(mut versions) = self.migration.versions() {
                versions.note_unknown(&addresses, &hashes, &draft.contents(), &answer.known);
            }
            let pages = Pages::Answered(answer, bases);
            self.migration.encode(draft, hashes, pages, whole, done);
        }
    }

    fn learn(&self, waiting: &Waiting, answer: &Answer) {
        let (asked, found) = (answer.known.length(), answer.known.count());
        self.migration.gains().ask.outcome(asked * PAGE_SIZE, found * PAGE_SIZE);
        if let Some(merged) = &waiting.merged {
            let counts = &self.migration.account.counts;
            let both =
                (0..asked).filter(|page| merged.contains(*page) && answer.known.contains(*page));
            add(&counts.merged_asked, merged.count());
            add(&counts.merged_found, both.count());
        }
    }
}
