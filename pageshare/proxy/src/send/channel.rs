//! One channel at the sender: four threads between QEMU and the other proxy.
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

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use pageshare_index::PAGE_SIZE;
use pageshare_stream::ReturnPath;
use pageshare_wire::WireError;
use pageshare_wire::adaptive::Policy;
use pageshare_wire::ask::{Answer, encode_supply};
use pageshare_wire::record::{Kind, decode_credit};
use tracing::{debug, warn};

use super::credit::Credit;
use super::ingest::{Asked, Ingest, Then, Waiting};
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
    let (link, agreed) = sender.connect(migration.id, number, sender.scope.as_ref())?;
    migration.account.speaks(agreed.version);
    debug!(
        "channel {number} open, version {}, scope {:?}, window {}, round trip {:?}",
        agreed.version, agreed.scope, agreed.window, agreed.round_trip
    );
    let Link { reader, writer } = link;
    let fuse = Fuse::new(vec![Arc::clone(qemu)]);
    let credit = Credit::new(agreed.window, sender.downtime_limit, agreed.round_trip);
    let asked: Asked = Mutex::new(Some(HashMap::new()));
    let line = Line::new(migration, &writer, &credit);
    let (outlet, queue) = line.open();

    let fail = |error: Error| {
        writer.abort(&error.to_string());
        fuse.blow(error);
        credit.wake();
    };
    std::thread::scope(|threads| {
        let ingests = start_in(threads, || {
            let outlet = outlet;
            let ingest = Ingest {
                migration,
                channel: number,
                key: &agreed.hash_key,
                in_scope: agreed.scope.is_some(),
                credit: &credit,
                asked: &asked,
                link: &writer,
                outlet,
                fuse: &fuse,
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
            supply(migration, &writer, &credit, &wanted).unwrap_or_else(fail);
        });
        let listen = Listen { migration, credit: &credit, asked: &asked, line: &line, supplies };
        let started = [ingests, queues, supplying].into_iter().try_for_each(|it| it.map(drop));
        started.and_then(|()| listen.run(reader, qemu)).unwrap_or_else(fail);
        // Nobody will answer any more: whoever waits for an answer waits in vain.
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    });
    migration.account.sent(&writer);
    fuse.error().map_or(Ok(()), Err)
}

/// Sends what references made before their answers turned out to lack.
fn supply(
    migration: &Migration,
    link: &LinkWriter,
    credit: &Credit,
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
        credit.drops(bytes);
    }
    Ok(())
}

/// Takes what the receiver says.
struct Listen<'a> {
    migration: &'a Migration,
    credit: &'a Credit,
    asked: &'a Asked,
    line: &'a Line<'a>,
    supplies: mpsc::Sender<(u32, Vec<u8>)>,
}

impl Listen<'_> {
    fn run(&self, mut link: LinkReader, mut qemu: &Socket) -> Result<(), Error> {
        let mut body = Body::default();
        let (mut reverse_ended, mut said) = (false, ReturnPath::default());
        // The receiver closes the connection once both directions have ended.
        while let Some(header) = link.receive(&mut body)? {
            self.migration.account.received(&mut link);
            match header.kind {
                Kind::Answer => self.answer(header.sequence, &body)?,
                Kind::Credit => {
                    let accepted = decode_credit(&body)?;
                    let Some(more) = self.credit.accepted(accepted) else {
                        return Err(WireError::Protocol("more accepted than sent").into());
                    };
                    let counts = &self.migration.account.counts;
                    counts.stream_accepted.fetch_add(more, Ordering::Relaxed);
                }
                Kind::Reverse => {
                    self.migration.account.heard(&mut said, &body);
                    match qemu.write_all(&body) {
                        // QEMU has ended the migration and no longer listens.
                        Err(_) if self.line.has_ended() => {}
                        other => other.map_err(Error::lost(QEMU, "writing its return path"))?,
                    }
                }
                Kind::ReverseEnd => {
                    qemu.shutdown(Shutdown::Write);
                    reverse_ended = true;
                }
                Kind::Abort => {
                    let reason = String::from_utf8_lossy(&body).into_owned();
                    return Err(WireError::Aborted(reason).into());
                }
                Kind::Ask | Kind::Probe | Kind::Segment | Kind::Supply | Kind::End => {
                    return Err(WireError::Protocol("a sender's record from a receiver").into());
                }
            }
        }
        if !(reverse_ended && self.line.has_ended()) {
            return Err(Error::Closed { what: "the receiving proxy" });
        }
        Ok(())
    }

    fn answer(&self, number: u32, body: &[u8]) -> Result<(), Error> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = asked.as_mut().and_then(|asked| asked.remove(&number));
        drop(asked);
        let waiting = waiting.ok_or(WireError::Protocol("an answer to no question"))?;
        let answer = Answer::decode(body, waiting.asked, waiting.bases.len())?;
        let waited = matches!(waiting.then, Then::Encode { .. });
        self.credit.answered(waiting.since.elapsed(), waited);
        self.learn(&waiting, &answer);
        match waiting.then {
            Then::Encode { draft, whole, hashes, addresses, done } => {
                if let Some(mut versions) = self.migration.versions() {
                    versions.note_unknown(&addresses, &hashes, &draft.contents(), &answer.known);
                }
                let pages = Pages::Answered(answer, waiting.bases);
                self.migration.encode(draft, hashes, pages, whole, done);
            }
            Then::Learn => {}
            Then::Supply(contents) => {
                let counts = &self.migration.account.counts;
                add(&counts.pages_referenced, answer.known.count());
                let missing: Vec<u8> = (0..)
                    .zip(contents.as_chunks::<PAGE_SIZE>().0)
                    .filter(|(page, _)| !answer.known.contains(*page))
                    .flat_map(|(_, content)| *content)
                    .collect();
                self.credit.drops(contents.len() - missing.len());
                if !missing.is_empty() {
                    add(&counts.pages_supplied, missing.len() / PAGE_SIZE);
                    // A thread that has failed supplies nothing more; the fuse has the reason.
                    let _ = self.supplies.send((number, missing));
                }
            }
        }
        Ok(())
    }

    fn learn(&self, waiting: &Waiting, answer: &Answer) {
        let (bytes, saved) = (waiting.asked * PAGE_SIZE, answer.known.count() * PAGE_SIZE);
        self.migration.gains().ask.outcome(bytes, saved);
        if let Some(merged) = &waiting.merged {
            let counts = &self.migration.account.counts;
            let both = (0..waiting.asked)
                .filter(|page| merged.contains(*page) && answer.known.contains(*page));
            add(&counts.merged_asked, merged.count());
            add(&counts.merged_found, both.count());
        }
    }
}
