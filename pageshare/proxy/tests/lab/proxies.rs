//! The two proxies, as an operator starts them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use pageshare_wire::Versions;
use serde_json::Value;
use tempfile::TempDir;

use super::guest::Guest;
use super::{Kept, distance, hangs, pki, wait_for};

/// The program under test: this build's, or the one that `PAGESHARE_BINARY` names.
pub fn binary() -> &'static str {
    hangs::watched();
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var("PAGESHARE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_pageshare").into())
    })
}

/// A program that speaks the version of the protocol before this one alone, and what it is told for
/// that: the release that `PAGESHARE_PREVIOUS` names, or this build.
pub fn previous() -> (String, Vec<String>) {
    std::env::var("PAGESHARE_PREVIOUS").map_or_else(
        |_| {
            let version = Versions::OURS.oldest.to_string();
            (binary().to_owned(), vec!["--wire-version".to_owned(), version])
        },
        |program| (program, Vec::new()),
    )
}

/// One proxy; killed when dropped.
pub struct Proxy {
    child: Kept,
    log: PathBuf,
    record: PathBuf,
}

impl Proxy {
    /// A receiver alone, listening at the address returned, for a QEMU at `qemu`.
    pub fn receiver(directory: &Path, qemu: &str) -> (Self, String) {
        let [port] = super::guest::ports();
        let wire = format!("tcp:127.0.0.1:{port}");
        let words = ["--insecure", "--listen", &wire, "--qemu", qemu].map(str::to_owned);
        (Self::spawn(Command::new(binary()), directory, "receive", &words), wire)
    }

    /// A sender alone, for one migration, whose receiver is to be at the listener returned; with the path
    /// at which it awaits QEMU.
    pub fn sender(directory: &Path, more: &[&str]) -> (Self, TcpListener, PathBuf) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface");
        let wire = format!("tcp:{}", listener.local_addr().expect("a bound socket"));
        let path = directory.join("out");
        let to = format!("unix:{}", path.display());
        let words = ["--once", "--insecure", "--listen", &to, "--to", &wire];
        let words: Vec<String> = words.iter().chain(more).map(|word| (*word).to_owned()).collect();
        (Self::spawn(Command::new(binary()), directory, "send", &words), listener, path)
    }

    /// `pageshare ROLE` with these arguments, by a command that starts the program.
    pub fn spawn(mut program: Command, directory: &Path, role: &str, words: &[String]) -> Self {
        let log = directory.join(format!("{role}.log"));
        let record = directory.join(format!("{role}.json"));
        let out = std::fs::File::create(&log).expect("the scratch directory is writable");
        let child = program
            .arg(role)
            .args(words)
            .arg("--record")
            .arg(&record)
            .env("PAGESHARE_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a file descriptor"))
            .stderr(out)
            .spawn()
            .expect("the program under test starts");
        let mut proxy = Self { child: Kept(child), log, record };
        wait_for(&format!("`pageshare {role}` to listen"), || {
            let ended = proxy.child.try_wait().expect("our own child");
            assert!(ended.is_none(), "`pageshare {role}` ended: {}", proxy.log());
            proxy.log().contains("waiting for").then_some(())
        });
        proxy
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of a proxy with `--once`.
    pub fn end(&mut self) -> ExitStatus {
        wait_for("the proxy to end", || self.child.try_wait().expect("our own child"))
    }

    /// The record of the one migration that it wrote down.
    pub fn record(&mut self) -> Value {
        self.end();
        let text = std::fs::read_to_string(&self.record)
            .unwrap_or_else(|_| panic!("no record was written: {}", self.log()));
        assert_eq!(text.lines().count(), 1, "one migration, one line: {text}");
        serde_json::from_str(&text).expect("a record is JSON")
    }
}

/// One connection, and the one to port `to` that it is to be passed on to; what comes back is passed
/// back already.
fn between(listener: &TcpListener, to: u16) -> (TcpStream, TcpStream) {
    let (from, _) = listener.accept().expect("the sending proxy connects");
    let to = TcpStream::connect(("127.0.0.1", to)).expect("the receiving proxy listens");
    let (mut back_from, mut back_to) =
        (to.try_clone().expect("a socket"), from.try_clone().expect("a socket"));
    std::thread::spawn(move || {
        // The connections end as the proxies end them.
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Both);
    });
    (from, to)
}

/// Passes one connection on to port `to`, but for one bit of byte `at`.
fn damage(listener: &TcpListener, to: u16, at: usize) {
    let (mut from, mut to) = between(listener, to);
    let mut bad = [0];
    let sound = std::io::copy(&mut Read::by_ref(&mut from).take(at as u64), &mut to);
    if sound.is_ok() && from.read_exact(&mut bad).is_ok() {
        let _ = to.write_all(&[bad[0] ^ 1]);
        let _ = std::io::copy(&mut from, &mut to);
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes one connection on to port `to`, at most so many bytes every 500 µs.
fn delay(listener: &TcpListener, to: u16, bytes: usize) {
    let (mut from, mut to) = between(listener, to);
    let mut buffer = vec![0; bytes];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        std::thread::sleep(std::time::Duration::from_micros(500));
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Both proxies, for one migration.
pub struct Pair {
    /// At the source.
    pub send: Proxy,
    /// At the destination.
    pub receive: Proxy,
    /// What the source migrates to.
    pub to: String,
    /// What the destination awaits.
    pub from: String,
    /// Where the sender connects.
    pub wire: String,
    directory: TempDir,
}

impl Pair {
    /// Unix sockets towards both QEMUs.
    pub fn unix(send: &[&str], receive: &[&str]) -> Self {
        Self::secure(&[&["--insecure"], send].concat(), &[&["--insecure"], receive].concat())
    }

    /// TCP towards both QEMUs.
    pub fn tcp(send: &[&str], receive: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let [out, inward] = super::guest::ports();
        let (to, from) = (format!("tcp:127.0.0.1:{out}"), format!("tcp:127.0.0.1:{inward}"));
        Self::start(
            directory,
            to,
            from,
            &[&["--insecure"], send].concat(),
            &[&["--insecure"], receive].concat(),
        )
    }

    /// Unix sockets towards both QEMUs, and nothing said about TLS.
    pub fn secure(send: &[&str], receive: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let (to, from) = (at("out"), at("in"));
        Self::start(directory, to, from, send, receive)
    }

    /// Unix sockets, nothing asked or compressed, and between the proxies a connection that flips
    /// one bit of byte `at`.
    pub fn damaged(at: usize) -> Self {
        let [broken, sound] = super::guest::ports();
        let listener = TcpListener::bind(("127.0.0.1", broken)).expect("a free port");
        std::thread::spawn(move || damage(&listener, sound, at));
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let (to, from) = (at("out"), at("in"));
        let off = ["--insecure", "--ask", "never", "--compress", "never"];
        Self::wired(directory, to, from, (&off, &["--insecure"]), (broken, sound))
    }

    /// Unix sockets, nothing asked, and between the proxies a connection of at most so many bytes
    /// every 500 µs.
    pub fn slow(bytes: usize) -> Self {
        let [sends_to, listens_at] = super::guest::ports();
        let listener = TcpListener::bind(("127.0.0.1", sends_to)).expect("a free port");
        // Else the kernel comes to hold megabytes for the other end, which no link does.
        let held = socket2::SockRef::from(&listener).set_recv_buffer_size(bytes);
        held.expect("a fresh socket");
        std::thread::spawn(move || delay(&listener, listens_at, bytes));
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let (to, from) = (at("out"), at("in"));
        let send = ["--insecure", "--ask", "never"];
        Self::wired(directory, to, from, (&send, &["--insecure"]), (sends_to, listens_at))
    }

    /// Unix sockets, TLS, and between the proxies a link on which a round trip takes so long.
    pub fn distant(round_trip: Duration, more: &[&str]) -> Self {
        let [sends_to, listens_at] = super::guest::ports();
        let listener = TcpListener::bind(("127.0.0.1", sends_to)).expect("a free port");
        distance::stretch(listener, listens_at, round_trip);
        let directory = tempfile::tempdir().expect("a scratch directory");
        pki::certificates(directory.path(), "destination.example", "source.example");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let (to, from) = (at("out"), at("in"));
        let tls = directory.path().to_str().expect("a plain path").to_owned();
        let receive = ["--tls-dir", &tls];
        let send = [&["--tls-dir", &tls, "--tls-name", "destination.example"], more].concat();
        Self::wired(directory, to, from, (&send, &receive), (sends_to, listens_at))
    }

    fn start(
        directory: TempDir,
        to: String,
        from: String,
        send: &[&str],
        receive: &[&str],
    ) -> Self {
        let [port] = super::guest::ports();
        Self::wired(directory, to, from, (send, receive), (port, port))
    }

    fn wired(
        directory: TempDir,
        to: String,
        from: String,
        (send, receive): (&[&str], &[&str]),
        ports: (u16, u16),
    ) -> Self {
        Self::of([binary(), binary()], directory, (to, from), (send, receive), ports)
    }

    /// Unix sockets towards both QEMUs, and one proxy, the sender's or the receiver's, of the version
    /// before this one.
    pub fn half_upgraded(sender_is_older: bool, send: &[&str], receive: &[&str]) -> Self {
        let (older, told) = previous();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let mut programs = [binary(), binary()];
        let mut words = [[&["--insecure"], send].concat(), [&["--insecure"], receive].concat()];
        let at = usize::from(!sender_is_older);
        programs[at] = &older;
        words[at].extend(told);
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let ends = (at("out"), at("in"));
        let [port] = super::guest::ports();
        Self::of(programs, directory, ends, (&words[0], &words[1]), (port, port))
    }

    fn of(
        [sender, receiver]: [&str; 2],
        directory: TempDir,
        (to, from): (String, String),
        (send, receive): (&[&str], &[&str]),
        (sends_to, listens_at): (u16, u16),
    ) -> Self {
        let wire = format!("tcp:127.0.0.1:{listens_at}");
        let words = |given: &[&str], more: &[&str]| -> Vec<String> {
            given.iter().chain(more).map(|word| (*word).to_owned()).collect()
        };
        let receiving = words(&["--once", "--listen", &wire, "--qemu", &from], receive);
        let receive = Proxy::spawn(Command::new(receiver), directory.path(), "receive", &receiving);
        let wire = format!("tcp:127.0.0.1:{sends_to}");
        let sending = words(&["--once", "--listen", &to, "--to", &wire], send);
        let send = Proxy::spawn(Command::new(sender), directory.path(), "send", &sending);
        Self { send, receive, to, from, wire, directory }
    }

    /// Migrates a guest between QEMUs that have the capabilities for it, and lets it run at the
    /// destination.
    pub fn carry(&self, source: &mut Guest, destination: &mut Guest) {
        destination.listen(&self.from);
        source.migrate(&self.to);
        assert_eq!(source.migration_end(), "completed", "{}", self.logs());
        destination.resume();
    }

    /// What both say, for a failing test.
    pub fn logs(&self) -> String {
        format!("send:\n{}\nreceive:\n{}", self.send.log(), self.receive.log())
    }

    /// Where their files lie.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
