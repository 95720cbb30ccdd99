//! One channel at the receiver: three threads between the other proxy and QEMU.
//!
//! ```text
//! other proxy ──▶ take ──▶ QEMU
//!      ▲            │ questions
//!      │            ▼
//!      ├───────── answer
//!      └───────── reverse ◀── QEMU (return path)
//! ```

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use pageshare_index::{HashKey, PAGE_SIZE};
use pageshare_wire::record::{Header, Kind, decode_ask};
use pageshare_wire::segment::SegmentView;
use pageshare_wire::{Chain, WireError};
use tracing::{debug, warn};

use super::answer::{self, Promises, Question};
use super::session::Session;
use crate::error::Error;
use crate::fuse::Fuse;
use crate::handshake::Agreed;
use crate::link::{Link, LinkReader, LinkWriter};
use crate::record::add;
use crate::socket::Socket;

const QEMU: &str = "the destination QEMU";
/// Questions that may wait; behind them the connection itself waits.
const QUESTIONS: usize = 64;
const REVERSE_BYTES: usize = 16 << 10;

/// Carries one channel to its end. Whatever fails, QEMU sees its connection closed within the
/// stream, and the sender is told why.
pub(super) fn run(link: Link, agreed: &Agreed, session: &Session) {
    debug!("channel {} open, scope {:?}", agreed.channel, agreed.scope);
    let Link { reader, writer } = link;
    let fuse = Fuse::new(Vec::new());
    let promises = Promises::default();
    let fail = |error: Error| {
        writer.abort(&error.to_string());
        fuse.blow(error);
    };
    std::thread::scope(|threads| {
        let (ask, questions) = mpsc::sync_channel(QUESTIONS);
        threads.spawn(|| {
            let questions = questions;
            answer::run(session, &questions, &promises, &writer).unwrap_or_else(fail);
        });
        let take = Take {
            session,
            channel: agreed.channel,
            key: &agreed.hash_key,
            window: u64::from(agreed.window),
            promises: &promises,
            link: &writer,
            fuse: &fuse,
            ask,
            chain: Chain::default(),
            next: 0,
            asked: 0,
            accepted: 0,
            qemu: None,
        };
        let start_reverse = |mut qemu: Socket| {
            let (link, fail) = (&writer, &fail);
            threads.spawn(move || reverse(&mut qemu, link).unwrap_or_else(fail))
        };
        take.run(reader, start_reverse).unwrap_or_else(fail);
    });
    session.pass_turn(agreed.channel);
    writer.finish();
    add(&session.account.wire_sent, usize::try_from(writer.bytes()).unwrap_or(usize::MAX));
    if let Some(error) = fuse.error() {
        warn!("channel {}: {error}", agreed.channel);
        session.account.broke(&error.to_string());
    }
}

/// Passes on QEMU's return path until QEMU closes it.
fn reverse(qemu: &mut Socket, link: &LinkWriter) -> Result<(), Error> {
    let mut buffer = vec![0; REVERSE_BYTES];
    loop {
        match qemu.read(&mut buffer) {
            Ok(0) => {
                link.send(Kind::ReverseEnd, 0, &[])?;
                return Ok(());
            }
            Ok(length) => {
                link.send(Kind::Reverse, 0, &[&buffer[..length]])?;
            }
            Err(error) => return Err(Error::lost(QEMU, "reading its return path")(error)),
        }
    }
}

/// Takes the sender's records and rebuilds the stream.
struct Take<'a> {
    session: &'a Session,
    channel: u32,
    key: &'a HashKey,
    window: u64,
    promises: &'a Promises,
    link: &'a LinkWriter,
    fuse: &'a Fuse,
    ask: mpsc::SyncSender<Question>,
    chain: Chain,
    /// Number of the next segment.
    next: u32,
    /// Bytes of pages asked for whose segments have not come.
    asked: u64,
    accepted: u64,
    qemu: Option<Socket>,
}

impl Take<'_> {
    fn run<'t>(
        mut self,
        mut link: LinkReader,
        start_reverse: impl Fn(Socket) -> std::thread::ScopedJoinHandle<'t, ()>,
    ) -> Result<(), Error> {
        let mut body = Vec::new();
        let mut stream = Vec::new();
        let mut reverse = None;
        loop {
            let Some(header) = link.receive(&mut body)? else {
                return Err(Error::Closed { what: "the sending proxy" });
            };
            match header.kind {
                Kind::Ask => self.question(header.sequence, &body)?,
                Kind::Probe => {
                    let question = Question {
                        number: header.sequence,
                        hashes: decode_ask(&body)?,
                        keep: false,
                    };
                    self.put(question);
                }
                Kind::Segment => {
                    self.expand(header, &body, &mut stream)?;
                    let qemu = match &mut self.qemu {
                        Some(qemu) => qemu,
                        none => {
                            self.session.await_turn(self.channel);
                            let (qemu, other) = connect(self.session, self.fuse)?;
                            self.session.pass_turn(self.channel);
                            reverse = Some(start_reverse(other));
                            none.insert(qemu)
                        }
                    };
                    qemu.write_all(&stream).map_err(Error::lost(QEMU, "writing the stream"))?;
                    self.accepted += stream.len() as u64;
                    self.link.send(Kind::Credit, 0, &[&self.accepted.to_le_bytes()])?;
                }
                Kind::End => break,
                Kind::Abort => {
                    let reason = String::from_utf8_lossy(&body).into_owned();
                    return Err(WireError::Aborted(reason).into());
                }
                Kind::Answer | Kind::Credit | Kind::Reverse | Kind::ReverseEnd => {
                    return Err(WireError::Protocol("a receiver's record from a sender").into());
                }
            }
        }
        add(&self.session.account.wire_received, usize::try_from(link.bytes()).unwrap_or(0));
        match (&self.qemu, reverse) {
            (Some(qemu), Some(reverse)) => {
                qemu.shutdown(Shutdown::Write);
                // A thread that panicked has ended too.
                let _ = reverse.join();
            }
            // QEMU closed before it sent a byte: there is nothing to pass on.
            _ => drop(self.link.send(Kind::ReverseEnd, 0, &[])?),
        }
        Ok(())
    }

    fn question(&mut self, number: u32, body: &[u8]) -> Result<(), Error> {
        let hashes = decode_ask(body)?;
        self.asked += (hashes.len() * PAGE_SIZE) as u64;
        if self.asked > self.window + pageshare_wire::record::LONGEST_SEGMENT as u64 {
            return Err(WireError::Protocol("more asked than fits the window").into());
        }
        self.put(Question { number, hashes, keep: true });
        Ok(())
    }

    fn put(&self, question: Question) {
        // The thread that answers has failed if it no longer listens; the fuse has the reason.
        let _ = self.ask.send(question);
    }

    fn expand(&mut self, header: Header, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if header.sequence != self.next {
            return Err(WireError::Protocol("order of the segments").into());
        }
        self.next = self.next.wrapping_add(1);
        let held = self.promises.take(header.sequence);
        let asked = (held.hashes.len() * PAGE_SIZE) as u64;
        self.asked = self.asked.saturating_sub(asked);
        out.clear();
        let view = SegmentView::parse(body)?;
        let mut recent = self.session.recent();
        view.expand(header.sequence, &held, self.key, &mut self.chain, out, |hash, content| {
            recent.insert(hash, content);
        })?;
        drop(recent);
        let account = &self.session.account;
        add(&account.stream_bytes, out.len());
        add(&account.pages_referenced, held.known.count());
        Ok(())
    }
}

/// Connects to QEMU; a second handle is for its return path.
fn connect(session: &Session, fuse: &Fuse) -> Result<(Socket, Socket), Error> {
    let qemu = Socket::connect(QEMU, &session.receiver.qemu)?;
    let clone = || qemu.try_clone().map_err(Error::lost(QEMU, "setting up the channel"));
    let (other, fused) = (clone()?, clone()?);
    fuse.protect(fused);
    Ok((qemu, other))
}
