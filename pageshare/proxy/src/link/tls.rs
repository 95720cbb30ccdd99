//! TLS with certificates on both sides. Reading and writing run in different threads, so the
//! session stands behind a lock that nobody holds while waiting for the network.

use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tracing::warn;

use super::{HANDSHAKE, Link, PEER, ReadHalf, WriteHalf, silent};
use crate::error::Error;
use crate::socket::{Socket, Until};
use crate::threads::locked;

/// Where this host's certificates lie.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate authorities that the peer's certificate may come from.
    pub authorities: PathBuf,
    /// This host's certificate, with intermediates behind it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// How to connect.
pub struct ClientTls(Arc<ClientConfig>);

/// How to accept.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Names of which the client's certificate must bear one; empty for any client of the
    /// authorities.
    peers: Vec<String>,
}

impl TlsFiles {
    /// The three files as QEMU and libvirt lay them out: `ca-cert.pem`, and `SIDE-cert.pem` and
    /// `SIDE-key.pem` for `server` or `client`.
    #[must_use]
    pub fn in_directory(directory: &Path, side: &str) -> Self {
        Self {
            authorities: directory.join("ca-cert.pem"),
            certificate: directory.join(format!("{side}-cert.pem")),
            key: directory.join(format!("{side}-key.pem")),
        }
    }

    /// The configuration of the side that connects.
    ///
    /// # Errors
    /// If a file cannot be read or does not hold what it should.
    pub fn client(&self) -> Result<ClientTls, Error> {
        let (chain, key) = (self.chain()?, self.private_key()?);
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)
            .map(|config| ClientTls(Arc::new(config)))
            .map_err(tls)
    }

    /// The configuration of the side that accepts.
    ///
    /// # Errors
    /// If a file cannot be read or does not hold what it should.
    pub fn server(&self, peers: Vec<String>) -> Result<ServerTls, Error> {
        let (chain, key) = (self.chain()?, self.private_key()?);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider())
                .build()
                .map_err(|error| Error::Tls(error.to_string()))?;
        ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map(|config| ServerTls { config: Arc::new(config), peers })
            .map_err(tls)
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let path = &self.authorities;
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unusable(path, &error))?;
        }
        Ok(roots)
    }

    /// This host's certificate and its intermediates; says if no other host will take it today.
    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        use CertificateError as Bad;
        let chain = certificates(&self.certificate)?;
        let judge =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider());
        let judge = judge.build().map_err(|error| Error::Tls(error.to_string()))?;
        // Whether the other hosts' authorities signed it, only they know.
        let why = match judge.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()) {
            Err(rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. })) => {
                "has expired: other hosts will refuse it; renew it"
            }
            Err(rustls::Error::InvalidCertificate(
                Bad::NotValidYet | Bad::NotValidYetContext { .. },
            )) => "is not valid yet: other hosts will refuse it; see whether the clock is right",
            _ => return Ok(chain),
        };
        let path = self.certificate.display();
        warn!("{path} {why}, and start pageshare again");
        Ok(chain)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unusable(&self.key, &error))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let file = File::open(path).map_err(|error| unusable(path, &error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(BufReader::new(file)).collect();
    let found = found.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it holds no certificate in PEM"));
    }
    Ok(found)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::File {
        what: "TLS needs",
        path: path.display().to_string(),
        reason: format!("{reason} (see --tls-dir, or --insecure to go without)"),
    }
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` wants it.
fn tls(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

impl ClientTls {
    /// Makes a link of a fresh connection to a host whose certificate must bear `name`; all of the
    /// handshake has until `end`.
    ///
    /// # Errors
    /// If the handshake fails on either side.
    pub fn link(&self, socket: Arc<Socket>, name: &str, end: Instant) -> Result<Link, Error> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::Tls(format!("`{name}` can be no certificate's name")))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(tls)?;
        let (mut connection, mut until) = (connection.into(), Until { socket, end: Some(end) });
        shake(&mut until, &mut connection)?;
        Ok(link(until, connection))
    }
}

impl ServerTls {
    /// Makes a link of an accepted connection; all of the handshake has until `end`.
    ///
    /// # Errors
    /// If the handshake fails on either side, or the client is none of the peers.
    pub fn link(&self, socket: Arc<Socket>, end: Instant) -> Result<Link, Error> {
        let connection = ServerConnection::new(Arc::clone(&self.config)).map_err(tls)?;
        let (mut connection, mut until) = (connection.into(), Until { socket, end: Some(end) });
        shake(&mut until, &mut connection)?;
        self.check_name(&connection)?;
        Ok(link(until, connection))
    }

    fn check_name(&self, connection: &Connection) -> Result<(), Error> {
        if self.peers.is_empty() {
            return Ok(());
        }
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(|| Error::Tls("the peer has no name".into()))?;
        let certificate = rustls::server::ParsedCertificate::try_from(certificate).map_err(tls)?;
        let known = self.peers.iter().any(|peer| {
            ServerName::try_from(peer.as_str())
                .is_ok_and(|name| rustls::client::verify_server_name(&certificate, &name).is_ok())
        });
        if known {
            return Ok(());
        }
        Err(Error::Tls(format!(
            "the peer's certificate bears none of the names that may connect ({})",
            self.peers.join(", ")
        )))
    }
}

/// Runs the handshake to its end. The limit stays: pageshare's own handshake follows.
fn shake(until: &mut Until, connection: &mut Connection) -> Result<(), Error> {
    while connection.is_handshaking() {
        connection.complete_io(until).map_err(|error| {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
            match (error.kind(), cause) {
                (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, None) => silent(),
                (io::ErrorKind::UnexpectedEof, None) => Error::Closed { what: PEER },
                (_, None) => Error::Lost { what: PEER, doing: HANDSHAKE, source: error },
                (_, Some(cause)) => {
                    let advice = advice(cause);
                    Error::Tls(format!("the handshake with {PEER} failed: {error}{advice}"))
                }
            }
        })?;
    }
    Ok(())
}

/// What an operator can do about it.
fn advice(error: &rustls::Error) -> &'static str {
    use CertificateError as Bad;
    use rustls::Error::{AlertReceived, InvalidCertificate};
    match error {
        InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "; renew the certificate in the other host's --tls-dir"
        }
        InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "; see whether both hosts' clocks are right"
        }
        InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "; if it is the right host, name it with --tls-name as its certificate does"
        }
        InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "; ca-cert.pem must be of the authority that signed the other host's certificate"
        }
        AlertReceived(AlertDescription::CertificateExpired) => {
            "; renew the certificate in this host's --tls-dir"
        }
        AlertReceived(_) => "; its log says why it refused",
        _ => "",
    }
}

fn link(until: Until, mut connection: Connection) -> Link {
    connection.set_buffer_limit(None);
    let socket = Arc::clone(&until.socket);
    let session = Arc::new(Mutex::new(connection));
    let writer = TlsWriter {
        session: Arc::clone(&session),
        socket: Arc::clone(&socket),
        sealed: Vec::new(),
    };
    let reader = TlsReader { session, until, sealed: vec![0; 64 << 10], fresh: 0..0 };
    Link::of(ReadHalf::Tls(reader), WriteHalf::Tls(writer), socket, false)
}

/// Takes sealed bytes off the socket and opens them.
pub(super) struct TlsReader {
    session: Arc<Mutex<Connection>>,
    until: Until,
    sealed: Vec<u8>,
    /// Sealed bytes that the session has not taken yet: it takes no more than it can keep open.
    fresh: Range<usize>,
}

impl TlsReader {
    pub(super) fn lift(&mut self) -> io::Result<()> {
        self.until.lift()
    }

    pub(super) fn limit(&mut self, end: Instant) {
        self.until.end = Some(end);
    }
}

impl Read for TlsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match locked(&self.session).reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.fresh.is_empty() {
                self.fresh = 0..self.until.read(&mut self.sealed)?;
            }
            let mut sealed = &self.sealed[self.fresh.clone()];
            let mut session = locked(&self.session);
            // An end of file is passed on too: the session tells a clean end from a cut.
            self.fresh.start += session.read_tls(&mut sealed)?;
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

/// Seals bytes and puts them on the socket.
pub(super) struct TlsWriter {
    session: Arc<Mutex<Connection>>,
    socket: Arc<Socket>,
    /// What the kernel did not take at once.
    sealed: Vec<u8>,
}

/// Takes what the kernel takes at once.
struct AtOnce<'a>(&'a Socket);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_now(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_now(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsWriter {
    pub(super) fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<bool> {
        let mut session = locked(&self.session);
        for part in parts {
            session.writer().write_all(part)?;
        }
        drop(session);
        self.flush()
    }

    /// TLS's own end, without which a connection counts as cut.
    pub(super) fn say_goodbye(&mut self) -> io::Result<()> {
        locked(&self.session).send_close_notify();
        self.flush().map(drop)
    }

    /// Writes what is sealed. Only what the kernel does not take at once is copied, since the
    /// session is not held while the kernel is waited for. Returns whether it was.
    fn flush(&mut self) -> io::Result<bool> {
        self.sealed.clear();
        let mut session = locked(&self.session);
        let mut full = false;
        while session.wants_write() && !full {
            match session.write_tls(&mut AtOnce(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => full = true,
                Err(error) => return Err(error),
            }
        }
        while session.wants_write() {
            session.write_tls(&mut self.sealed)?;
        }
        drop(session);
        Ok(self.socket.write_parts(&[&self.sealed])? || full)
    }
}
