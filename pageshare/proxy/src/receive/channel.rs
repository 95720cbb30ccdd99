//! One channel at the receiver: three threads between the other proxy and QEMU.
//!
//! ```text
//! other proxy ──▶ take ──▶ QEMU
//!      ▲            │ questions
//!      │            ▼
//!      ├───────── answer
//!      └───────── reverse ◀── QEMU (return path)
//! ```

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::sync::{Arc, mpsc};
use std::thread::ScopedJoinHandle;

use pageshare_index::{HashKey, PAGE_SIZE};
use pageshare_wire::ask::{Ask, decode_supply};
use pageshare_wire::record::{Header, Kind, LONGEST_SEGMENT};
use pageshare_wire::segment::{Held, Placed, SegmentView};
use pageshare_wire::{Chain, Expander, WireError};
use tracing::{debug, warn};

use super::addresses::Addresses;
use super::answer::{self, Promises, Question};
use super::qemu::{QEMU, connect, reverse};
use super::session::Session;
use super::strangers::Stranger;
use super::waiting::Waiting;
use crate::error::Error;
use crate::fuse::Fuse;
use crate::handshake::Agreed;
use crate::link::{Body, Link, LinkReader, LinkWriter, PATIENCE};
use crate::record::add;
use crate::socket::Socket;
use crate::threads::start_in;

/// The thread of the return path.
type Started<'t> = Result<ScopedJoinHandle<'t, ()>, Error>;
/// Questions that may wait; behind them the connection itself waits.
const QUESTIONS: usize = 64;
/// A Credit wakes the sender, so there is none for less than this, but at the end. The smallest
/// window is four times as large: it never waits for a Credit that is held back.
const CREDIT_BYTES: u64 = 256 << 10;

/// Carries one channel to its end. Whatever fails, QEMU sees its connection closed within the
/// stream, and the sender is told why.
///
/// One that is `silent` lacks a first record of whoever has shown nothing: it has to come soon, unless
/// another channel has brought one.
pub(super) fn run(link: Link, agreed: &Agreed, session: &Session, silent: Option<Stranger>) {
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
        let answers = start_in(threads, || {
            let questions = questions;
            let key = &agreed.hash_key;
            answer::run(session, key, &questions, &promises, &writer).unwrap_or_else(fail);
            promises.close();
        });
        if let Err(error) = answers {
            return fail(error);
        }
        let take = |expander| Take {
            session,
            channel: agreed.channel,
            key: &agreed.hash_key,
            window: u64::from(agreed.window),
            promises: &promises,
            link: &writer,
            fuse: &fuse,
            ask,
            chain: Chain::default(),
            expander,
            next: 0,
            asked: 0,
            accepted: 0,
            credited: 0,
            qemu: None,
            silent,
            waiting: Waiting::new(agreed.window.into()),
            supplies: HashMap::new(),
            addresses: Addresses::of_channel(agreed.channel),
        };
        let start_reverse = |qemu: Arc<Socket>| {
            let (link, fail) = (&writer, &fail);
            start_in(threads, move || reverse(session, &qemu, link).unwrap_or_else(fail))
        };
        Expander::new()
            .map_err(|error| Error::Refused(format!("zstd: {error}")))
            .and_then(|expander| take(expander).run(reader, start_reverse))
            .unwrap_or_else(fail);
    });
    session.pass_turn(agreed.channel);
    writer.finish();
    session.account.sent(&writer);
    if let Some(error) = fuse.error() {
        if session.is_known() {
            warn!("channel {}: {error}", agreed.channel);
            session.account.broke(&error.to_string());
        } else {
            session.receiver.metrics.turned_away(&error.to_string());
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
    expander: Expander,
    /// Number of the segment that is expanded next.
    next: u32,
    /// Bytes of pages asked for whose segments have not been expanded.
    asked: u64,
    accepted: u64,
    /// Of those, the ones that the sender has been told of.
    credited: u64,
    qemu: Option<Arc<Socket>>,
    silent: Option<Stranger>,
    waiting: Waiting,
    supplies: HashMap<u32, Vec<u8>>,
    addresses: Addresses,
}

impl Take<'_> {
    fn run<'t>(
        mut self,
        mut link: LinkReader,
        start_reverse: impl Fn(Arc<Socket>) -> Started<'t>,
    ) -> Result<(), Error> {
        let mut body = Body::default();
        let mut stream = Vec::new();
        let mut reverse = None;
        if self.channel > 0 {
            // QEMU awaits every channel but the first before the guest goes on, and some stay
            // silent for long (`postcopy-preempt`).
            self.reach(&mut reverse, &start_reverse)?;
        }
        loop {
            let Some(header) = self.next(&mut link, &mut body)? else {
                return Err(Error::Closed { what: "the sending proxy" });
            };
            self.session.account.received(&mut link);
            match header.kind {
                Kind::Ask => self.question(header.sequence, &body)?,
                Kind::Probe => {
                    let ask = Ask::decode(&body)?;
                    self.put(Question { number: header.sequence, ask, keep: false });
                }
                Kind::Segment => {
                    let bytes = self.segment(header.sequence, &body, &mut stream)?;
                    self.pass_on(bytes, &mut reverse, &start_reverse)?;
                }
                Kind::Supply => {
                    self.supply(header.sequence, &body)?;
                    while self.resume(&mut stream)? {
                        self.pass_on(&stream, &mut reverse, &start_reverse)?;
                    }
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
        // What references lack may come behind the End.
        while !self.waiting.is_empty() {
            match link.receive(&mut body)? {
                Some(header) if header.kind == Kind::Supply => {
                    self.supply(header.sequence, &body)?;
                    while self.resume(&mut stream)? {
                        self.pass_on(&stream, &mut reverse, &start_reverse)?;
                    }
                }
                Some(_) => return Err(WireError::Protocol("no Supply behind the End").into()),
                None => return Err(Error::Closed { what: "the sending proxy" }),
            }
        }
        self.session.account.received(&mut link);
        if self.accepted > self.credited {
            self.credit()?;
        }
        match (&self.qemu, reverse) {
            (Some(qemu), Some(reverse)) => {
                qemu.shutdown(Shutdown::Write);
                // A thread that panicked has ended too.
                let _ = reverse.join();
            }
            // QEMU closed the main channel before it sent a byte: there is nothing to pass on.
            _ => drop(self.link.send(Kind::ReverseEnd, 0, &[])?),
        }
        Ok(())
    }

    /// The sender's next record.
    fn next(&mut self, link: &mut LinkReader, body: &mut Body) -> Result<Option<Header>, Error> {
        let mut first = None;
        if self.silent.is_some() && !self.session.is_known() {
            match link.receive(body) {
                Ok(Some(header)) => {
                    self.session.becomes_known();
                    first = Some(header);
                }
                // Another channel has brought one meanwhile.
                Err(error) if error.is_late() && self.session.is_known() => {}
                Err(error) if error.is_late() => {
                    let words = format!("it has sent nothing of a migration in {PATIENCE:?}");
                    return Err(Error::Refused(words));
                }
                ended => return ended,
            }
        }
        if self.silent.take().is_some() {
            link.lift_deadline()?;
        }
        first.map_or_else(|| link.receive(body), |header| Ok(Some(header)))
    }

    /// Writes expanded bytes to QEMU, connecting to it first if need be.
    fn pass_on<'t>(
        &mut self,
        stream: &[u8],
        reverse: &mut Option<std::thread::ScopedJoinHandle<'t, ()>>,
        start_reverse: &impl Fn(Arc<Socket>) -> Started<'t>,
    ) -> Result<(), Error> {
        if stream.is_empty() {
            return Ok(());
        }
        let qemu = self.reach(reverse, start_reverse)?;
        (&mut &*qemu).write_all(stream).map_err(Error::lost(QEMU, "writing the stream"))?;
        self.accepted += stream.len() as u64;
        if self.accepted - self.credited >= CREDIT_BYTES { self.credit() } else { Ok(()) }
    }

    /// The connection to QEMU, made when it is wanted first.
    fn reach<'t>(
        &mut self,
        reverse: &mut Option<std::thread::ScopedJoinHandle<'t, ()>>,
        start_reverse: &impl Fn(Arc<Socket>) -> Started<'t>,
    ) -> Result<&Socket, Error> {
        match &mut self.qemu {
            Some(qemu) => Ok(qemu),
            none => {
                self.session.await_turn(self.channel);
                let qemu = connect(self.session, self.fuse)?;
                self.session.pass_turn(self.channel);
                *reverse = Some(start_reverse(Arc::clone(&qemu))?);
                Ok(none.insert(qemu))
            }
        }
    }

    /// Says how much QEMU has accepted.
    fn credit(&mut self) -> Result<(), Error> {
        self.credited = self.accepted;
        self.link.send(Kind::Credit, 0, &[&self.accepted.to_le_bytes()])?;
        Ok(())
    }

    fn question(&mut self, number: u32, body: &[u8]) -> Result<(), Error> {
        let ask = Ask::decode(body)?;
        self.asked += (ask.hashes.len() * PAGE_SIZE) as u64;
        if self.asked > self.window + LONGEST_SEGMENT as u64 {
            return Err(WireError::Protocol("more asked than fits the window").into());
        }
        self.promises.expect(number)?;
        self.put(Question { number, ask, keep: true });
        Ok(())
    }

    fn put(&self, question: Question) {
        // The thread that answers has failed if it no longer listens; the fuse has the reason.
        let _ = self.ask.send(question);
    }

    /// The stream bytes of a segment, expanded to `out` if need be; none, where it has to wait.
    fn segment<'b>(
        &mut self,
        number: u32,
        body: &'b [u8],
        out: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Error> {
        out.clear();
        let behind = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        if number != self.next.wrapping_add(behind) {
            return Err(WireError::Protocol("order of the segments").into());
        }
        let view = SegmentView::parse(body)?;
        let mut held = None;
        if self.waiting.is_empty() {
            let mut promised = self.promises.take(number);
            if self.complete(&view, number, &mut promised)? {
                if promised.hashes.is_empty()
                    && let Some(bytes) = view.verbatim()
                {
                    self.next = number.wrapping_add(1);
                    view.join(number, &[], &mut self.chain)?;
                    self.follow(bytes, &[]);
                    return Ok(bytes);
                }
                self.expand(&view, promised, out)?;
                return Ok(out);
            }
            held = Some(promised);
        }
        self.waiting.push(body, view.stream_bytes(), held)?;
        Ok(&[])
    }

    fn supply(&mut self, number: u32, body: &[u8]) -> Result<(), Error> {
        let contents = decode_supply(body, &mut self.expander)?;
        let supplied: usize = self.supplies.values().map(Vec::len).sum();
        let within = (supplied + contents.len()) as u64 <= self.asked;
        if !within || self.supplies.insert(number, contents).is_some() {
            return Err(WireError::Protocol("a Supply that nothing lacks").into());
        }
        Ok(())
    }

    /// Whether all that a segment refers to is there. Takes its Supply, which may have come before it:
    /// what asks, and what is asked for, are sent by different threads.
    fn complete(
        &mut self,
        view: &SegmentView<'_>,
        number: u32,
        held: &mut Held,
    ) -> Result<bool, Error> {
        if view.missing(held)? == 0 {
            return Ok(true);
        }
        let supply = self.supplies.remove(&number);
        let complete = supply.is_some();
        held.supplied = supply.unwrap_or_default();
        Ok(complete)
    }

    /// Expands the first segment that waits to `out`, if it can be now; whether it could.
    fn resume(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        out.clear();
        let Some(mut first) = self.waiting.take_first() else { return Ok(false) };
        let mut held = first.held.take().unwrap_or_else(|| self.promises.take(self.next));
        let view = SegmentView::parse(&first.body)?;
        if !self.complete(&view, self.next, &mut held)? {
            first.held = Some(held);
            self.waiting.put_back(first);
            return Ok(false);
        }
        self.expand(&view, held, out)?;
        Ok(true)
    }

    fn expand(
        &mut self,
        view: &SegmentView<'_>,
        held: Held,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let asked = (held.hashes.len() * PAGE_SIZE) as u64;
        self.asked = self.asked.saturating_sub(asked);
        let placed =
            view.expand(number, &held, self.key, &mut self.chain, &mut self.expander, out)?;
        self.session.buffers.give(held.contents);
        self.follow(out, &placed);
        Ok(())
    }

    /// Notes what the next bytes of the stream bring.
    fn follow(&mut self, bytes: &[u8], placed: &[Placed]) {
        let account = &self.session.account;
        add(&account.stream_bytes, bytes.len());
        add(&account.pages_referenced, placed.iter().filter(|page| !page.new).count());
        {
            let mut recent = self.session.recent();
            for page in placed.iter().filter(|page| page.new) {
                recent.insert(page.hash, &bytes[page.at..page.at + PAGE_SIZE]);
            }
        }
        self.addresses.follow(bytes, placed, self.session);
    }
}
