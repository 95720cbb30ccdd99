//! The connection between the proxies: whole records in and out, plain or in TLS.

mod tls;

use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use pageshare_wire::record::{HEADER_BYTES, Header, Kind};

use crate::error::Error;
use crate::socket::{Socket, Until};
use crate::threads::locked;

pub use tls::{ClientTls, ServerTls, TlsFiles};

const PEER: &str = "the other proxy";
const HANDSHAKE: &str = "setting up the connection";

/// Read ahead, for small records. What is longer is read where it is wanted, not copied there.
const SMALL: usize = 4 << 10;

/// A peer that has not agreed on anything after this long is none.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How long a last word may take.
const PARTING: Duration = Duration::from_secs(1);

/// What becomes of a socket once TLS, if any, is set up: the two directions of a link.
pub struct Link {
    /// Receives records.
    pub reader: LinkReader,
    /// Sends records.
    pub writer: LinkWriter,
}

/// When a handshake that begins now has to be over: TLS's and ours, however slowly the peer talks.
#[must_use]
pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// The receiving direction.
pub struct LinkReader {
    inner: BufReader<ReadHalf>,
    checksums: bool,
    bytes: u64,
}

/// The sending direction, which several threads share: each record goes out whole.
pub struct LinkWriter {
    inner: Mutex<WriteHalf>,
    /// Why the channel has failed, if it has: nothing else is sent any more.
    reason: OnceLock<String>,
    socket: Arc<Socket>,
    checksums: bool,
    bytes: AtomicU64,
}

/// A record's body, in a buffer that serves many of them.
#[derive(Default)]
pub struct Body {
    /// It never becomes shorter, since what is added must be zeroed.
    buffer: Vec<u8>,
    length: usize,
}

impl Body {
    fn resize(&mut self, length: usize) -> &mut [u8] {
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        self.length = length;
        &mut self.buffer[..length]
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// How a write went.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// When it began, once other threads' writes had ended.
    pub began: Instant,
    /// When the kernel had taken all of it.
    pub ended: Instant,
    /// It had to wait, since as much as may was waiting in the kernel.
    pub waited: bool,
}

enum ReadHalf {
    Plain(Until),
    Tls(tls::TlsReader),
}

enum WriteHalf {
    Plain(Arc<Socket>),
    Tls(tls::TlsWriter),
}

impl Link {
    /// A link without TLS, whose records carry checksums; its handshake has until `end`.
    #[must_use]
    pub fn plain(socket: Arc<Socket>, end: Instant) -> Self {
        let read = Until { socket: Arc::clone(&socket), end: Some(end) };
        let write = Arc::clone(&socket);
        Self::of(ReadHalf::Plain(read), WriteHalf::Plain(write), socket, true)
    }

    fn of(read: ReadHalf, write: WriteHalf, socket: Arc<Socket>, checksums: bool) -> Self {
        let reader =
            LinkReader { inner: BufReader::with_capacity(SMALL, read), checksums, bytes: 0 };
        let (inner, reason, bytes) = (Mutex::new(write), OnceLock::new(), AtomicU64::new(0));
        let writer = LinkWriter { inner, reason, socket, checksums, bytes };
        Self { reader, writer }
    }

    /// Whether records carry a CRC32C, which they do when there is no TLS.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.writer.checksums
    }
}

/// A peer that lets a handshake wait.
pub(crate) fn silent() -> Error {
    Error::Refused(format!("{PEER} does not answer (is it pageshare?)"))
}

impl LinkReader {
    /// It is known who this is: from now on the peer may take its time.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn lift_deadline(&mut self) -> Result<(), Error> {
        let lifted = match self.inner.get_mut() {
            ReadHalf::Plain(until) => until.lift(),
            ReadHalf::Tls(reader) => reader.lift(),
        };
        lifted.map_err(Error::lost(PEER, HANDSHAKE))
    }

    /// What is waited for from now on has to come until then.
    pub(crate) fn limit(&mut self, end: Instant) {
        match self.inner.get_mut() {
            ReadHalf::Plain(until) => until.end = Some(end),
            ReadHalf::Tls(reader) => reader.limit(end),
        }
    }

    /// The next record; nothing when the peer has closed the connection between records.
    ///
    /// # Errors
    /// If the connection breaks, closes within a record, or brings what is no record.
    pub fn receive(&mut self, body: &mut Body) -> Result<Option<Header>, Error> {
        let mut head = [0; HEADER_BYTES];
        let lost = Error::lost(PEER, "waiting for its next record");
        match self.inner.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(lost(error)),
        }
        self.fill(&mut head[1..])?;
        let header = Header::decode(&head)?;
        self.fill(body.resize(header.length as usize))?;
        header.check(body, self.checksums)?;
        self.bytes += (HEADER_BYTES + body.len()) as u64;
        Ok(Some(header))
    }

    /// Fills a fixed message of the handshake.
    ///
    /// # Errors
    /// If the connection breaks or closes first.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        self.inner.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Closed { what: PEER },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(),
            _ => Error::Lost { what: PEER, doing: "receiving", source: error },
        })
    }

    /// Bytes of records received since this was asked last.
    pub fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl LinkWriter {
    /// Sends one record whose body comes in parts.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn send(&self, kind: Kind, sequence: u32, body: &[&[u8]]) -> Result<Sent, Error> {
        let header = Header::of(kind, sequence, body, self.checksums).encode();
        let mut parts: Vec<&[u8]> = vec![&header];
        parts.extend(body);
        self.write(&parts)
    }

    /// Sends bytes as they are: a message of the handshake.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn write(&self, parts: &[&[u8]]) -> Result<Sent, Error> {
        let mut inner = locked(&self.inner);
        if self.reason.get().is_some() {
            return Err(Error::lost(PEER, "sending")(io::ErrorKind::ConnectionAborted.into()));
        }
        let began = Instant::now();
        let waited = inner.write_parts(parts).map_err(Error::lost(PEER, "sending"))?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Sent { began, ended: Instant::now(), waited })
    }

    /// Says why the channel fails, behind the record that another thread may just be sending, and
    /// closes the connection; the first reason counts. A thread that is stuck in a write, whose peer
    /// takes nothing, is woken by that.
    pub fn abort(&self, reason: &str) {
        if self.reason.set(reason.to_owned()).is_err() {
            return;
        }
        let end = Instant::now() + PARTING;
        let mut inner = self.inner.try_lock();
        while matches!(inner, Err(TryLockError::WouldBlock)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            inner = self.inner.try_lock();
        }
        if let Ok(mut inner) = inner {
            let body = [reason.as_bytes()];
            let header = Header::of(Kind::Abort, 0, &body, self.checksums).encode();
            // The peer may be the one that is gone.
            let _ = self.socket.set_write_timeout(Some(PARTING));
            let _ = inner.write_parts(&[&header, body[0]]);
        }
        self.close();
    }

    /// Closes the connection in order: the peer can tell it from one that was cut.
    pub fn finish(&self) {
        let mut inner = locked(&self.inner);
        if let WriteHalf::Tls(writer) = &mut *inner {
            // A peer that is gone needs no goodbye.
            let _ = writer.say_goodbye();
        }
        drop(inner);
        self.close();
    }

    /// Closes both directions at once.
    fn close(&self) {
        self.socket.shutdown(Shutdown::Both);
    }

    /// Bytes of records and of the handshake sent since this was asked last, without TLS's own.
    pub fn take_bytes(&self) -> u64 {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}

impl WriteHalf {
    fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<bool> {
        match self {
            Self::Plain(socket) => socket.write_parts(parts),
            Self::Tls(writer) => writer.write_parts(parts),
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(reader) => reader.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn why_a_channel_ends_is_said_behind_what_another_thread_is_sending() {
        let link = |end: UnixStream| Link::plain(Arc::new(Socket(end.into())), deadline());
        let (here, there) = UnixStream::pair().unwrap();
        let (writer, mut reader) = (link(here).writer, link(there).reader);
        std::thread::scope(|threads| {
            // More than the kernel takes before somebody reads.
            threads.spawn(|| writer.send(Kind::Reverse, 0, &[&[7; 4 << 20]]).unwrap());
            while writer.inner.try_lock().is_ok() {
                std::thread::yield_now();
            }
            threads.spawn(|| writer.abort("why"));
            let mut body = Body::default();
            let mut next = || reader.receive(&mut body).unwrap().map(|header| header.kind);
            assert_eq!(next(), Some(Kind::Reverse));
            assert_eq!(next(), Some(Kind::Abort));
            assert_eq!(next(), None);
        });
    }
}
