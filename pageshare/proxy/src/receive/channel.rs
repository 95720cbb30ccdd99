//! One channel at the receiver: three threads between the other proxy and QEMU.
//!
//! ```text
//! other proxy ──▶ take ──▶ QEMU
//!      ▲            │ questions
//!      │            ▼
//!      ├───────── answer
//!      └───────── reverse ◀── QEMU (return path)
//! ```

use std::net::Shutdown;
use std::sync::{Arc, mpsc};
use std::thread::ScopedJoinHandle;

use pageshare_index::PAGE_SIZE;
use pageshare_wire::receiver::{Effect, Question, Receiver};
use pageshare_wire::record::{Header, Kind};
use pageshare_wire::segment::{Held, Placed};
use tracing::{debug, warn};

use super::addresses::Addresses;
use super::answer;
use super::qemu::{connect, reverse, write};
use super::session::Session;
use super::strangers::Stranger;
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

/// Carries one channel to its end. Whatever fails, QEMU sees its connection closed within the
/// stream, and the sender is told why.
///
/// One that is `silent` lacks a first record of whoever has shown nothing: it has to come soon, unless
/// another channel has brought one.
pub(super) fn run(link: Link, agreed: &Agreed, session: &Session, silent: Option<Stranger>) {
    debug!("channel {} open, scope {:?}", agreed.channel, agreed.scope);
    let Link { reader, writer } = link;
    let fuse = Fuse::new(Vec::new());
    let fail = |error: Error| {
        let why = error.to_string();
        // First: what comes of the word, such as a record that cannot be sent, is not the reason.
        fuse.blow(error);
        writer.abort(&why);
    };
    std::thread::scope(|threads| {
        let (ask, questions) = mpsc::sync_channel(QUESTIONS);
        let (promise, promises) = mpsc::channel();
        let answers = start_in(threads, || {
            let (questions, promise) = (questions, promise);
            let key = &agreed.hash_key;
            answer::run(session, key, &questions, &promise, &writer).unwrap_or_else(fail);
        });
        if let Err(error) = answers {
            return fail(error);
        }
        let take = Take {
            session,
            channel: agreed.channel,
            promises,
            link: &writer,
            fuse: &fuse,
            ask,
            qemu: None,
            silent,
            addresses: Addresses::of_channel(agreed.channel),
        };
        let start_reverse = |qemu: Arc<Socket>| {
            let (link, fuse, fail) = (&writer, &fuse, &fail);
            start_in(threads, move || {
                reverse(session, agreed.channel, (&qemu, fuse), link).unwrap_or_else(fail)
            })
        };
        Receiver::new(agreed.window, agreed.hash_key.clone())
            .map_err(|error| Error::Refused(format!("zstd: {error}")))
            .and_then(|machine| take.run(machine, reader, start_reverse))
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

/// Carries the sender's records to the machine, and does what that asks for.
struct Take<'a> {
    session: &'a Session,
    channel: u32,
    promises: mpsc::Receiver<(u32, Held)>,
    link: &'a LinkWriter,
    fuse: &'a Fuse,
    ask: mpsc::SyncSender<Question>,
    qemu: Option<Arc<Socket>>,
    silent: Option<Stranger>,
    addresses: Addresses,
}

impl Take<'_> {
    fn run<'t>(
        mut self,
        mut machine: Receiver,
        mut link: LinkReader,
        start_reverse: impl Fn(Arc<Socket>) -> Started<'t>,
    ) -> Result<(), Error> {
        let mut body = Body::default();
        let channel = self.channel;
        let mut reverse = None;
        if channel > 0 {
            // QEMU awaits every channel but the first before the guest goes on, and some stay
            // silent for long (`postcopy-preempt`).
            self.reach(&mut reverse, &start_reverse)?;
        }
        while !machine.is_over() {
            let Some(header) = self.next(&mut link, &mut body)? else {
                return Err(Error::Closed { what: "the sending proxy" });
            };
            self.session.account.received(&mut link);
            for (number, held) in self.promises.try_iter() {
                machine.answered(number, held);
            }
            let mut record = Some((header, &*body));
            loop {
                match machine.next(&mut record)? {
                    // The thread that answers has failed if it no longer listens; the fuse has the
                    // reason.
                    Effect::Ask(question) => drop(self.ask.send(question)),
                    Effect::Await => {
                        let unanswered = |_| Error::Refused("nothing answers any more".into());
                        let (number, held) = self.promises.recv().map_err(unanswered)?;
                        machine.answered(number, held);
                    }
                    Effect::Write { bytes, placed, spent } => {
                        self.session.buffers.give(spent);
                        // Who is refused has not begun a migration: nothing of it is counted.
                        if self.qemu.is_none() {
                            self.session.take_qemu()?;
                        }
                        self.follow(bytes, placed);
                        let qemu = self.reach(&mut reverse, &start_reverse)?;
                        write(qemu, channel, bytes)?;
                        let length = bytes.len();
                        self.credit(machine.accepted(length))?;
                    }
                    Effect::Rest => break,
                }
            }
        }
        self.credit(machine.accepted(0))?;
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
                self.session.take_qemu()?;
                let qemu = connect(self.session, self.fuse)?;
                self.session.pass_turn(self.channel);
                *reverse = Some(start_reverse(Arc::clone(&qemu))?);
                Ok(none.insert(qemu))
            }
        }
    }

    /// Says how much QEMU has accepted, if it is time.
    fn credit(&self, accepted: Option<u64>) -> Result<(), Error> {
        if let Some(accepted) = accepted {
            self.link.send(Kind::Credit, 0, &[&accepted.to_le_bytes()])?;
        }
        Ok(())
    }

    /// Notes what the next bytes of the stream bring.
    fn follow(&mut self, bytes: &[u8], placed: &[Placed]) {
        let counts = &self.session.account.counts;
        add(&counts.stream_bytes, bytes.len());
        add(&counts.pages_referenced, placed.iter().filter(|page| !page.new).count());
        {
            let mut recent = self.session.recent();
            for page in placed.iter().filter(|page| page.new) {
                recent.insert(page.hash, &bytes[page.at..page.at + PAGE_SIZE]);
            }
        }
        self.addresses.follow(bytes, placed, self.session);
    }
}
