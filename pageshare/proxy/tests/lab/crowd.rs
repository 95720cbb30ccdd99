//! Many who connect to a receiver, show no certificate, and say nothing; and the receiver under them.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Proxy, binary, pki};

/// Connects again and again to one address until it is dropped.
pub struct Crowd {
    over: Arc<AtomicBool>,
    came: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// So many connections a second, of which so many at most are open here at once; each says these
    /// words, and comes from this address of loopback.
    pub fn press(
        wire: &str,
        a_second: u32,
        open: usize,
        words: &'static [u8],
        from: [u8; 4],
    ) -> Self {
        let address = wire.strip_prefix("tcp:").expect("TCP").to_owned();
        let (over, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (end, counted) = (Arc::clone(&over), Arc::clone(&came));
        let thread = std::thread::spawn(move || {
            let mut idle = VecDeque::new();
            let (begin, mut next) = (Instant::now(), Duration::ZERO);
            while !end.load(Ordering::SeqCst) {
                // Paced by a fixed schedule: what a busy machine delays is made up for.
                std::thread::sleep(next.saturating_sub(begin.elapsed()));
                next += Duration::from_secs(1) / a_second;
                if let Ok(mut stranger) = come(&address, from) {
                    // It may have been closed already.
                    let _ = stranger.write_all(words);
                    counted.fetch_add(1, Ordering::SeqCst);
                    idle.push_back(stranger);
                }
                if idle.len() > open {
                    idle.pop_front();
                }
            }
        });
        Self { over, came, thread: Some(thread) }
    }

    /// How many have connected.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::SeqCst)
    }
}

fn come(address: &str, from: [u8; 4]) -> std::io::Result<TcpStream> {
    let to: SocketAddr = address.parse().expect("an address");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(2))?;
    Ok(socket.into())
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // One that has failed has ended too.
            let _ = thread.join();
        }
    }
}

/// A receiver that may open few files, with certificates for it and for its senders.
pub struct Crowded {
    /// The receiver, which stays for several migrations.
    pub receiver: Proxy,
    /// Where it listens.
    pub wire: String,
    /// What the destination QEMU awaits.
    pub from: String,
    /// What a sender to it says of TLS.
    tls: Vec<String>,
    _directory: tempfile::TempDir,
}

impl Crowded {
    /// It may open so many files, whatever the limit is here.
    pub fn start(files: u32) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        pki::certificates(directory.path(), "destination.example", "source.example");
        let tls = ["--tls-dir", directory.path().to_str().expect("a plain path")];
        let tls = tls.map(str::to_owned).to_vec();
        let name = ["--tls-name", "destination.example"].map(str::to_owned);
        Self::receiving(files, directory, &tls.clone(), [tls, name.to_vec()].concat())
    }

    /// The same without TLS.
    pub fn insecure(files: u32) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let insecure = vec!["--insecure".to_owned()];
        Self::receiving(files, directory, &insecure.clone(), insecure)
    }

    fn receiving(
        files: u32,
        directory: tempfile::TempDir,
        here: &[String],
        tls: Vec<String>,
    ) -> Self {
        let [port] = super::guest::ports();
        let wire = format!("tcp:127.0.0.1:{port}");
        let from = format!("unix:{}", directory.path().join("in").display());
        let mut program = Command::new("prlimit");
        program.args([&format!("--nofile={files}:{files}"), binary()]);
        let words = ["--listen", &wire, "--qemu", &from].map(str::to_owned);
        let words = [&words[..], here].concat();
        let receiver = Proxy::spawn(program, directory.path(), "receive", &words);
        Self { receiver, wire, from, tls, _directory: directory }
    }

    /// A sender for one migration to it, its files in `directory`; and what the source migrates to.
    pub fn sender(&self, directory: &Path) -> (Proxy, String) {
        let to = format!("unix:{}", directory.join("out").display());
        let words = ["--once", "--ask=always", "--listen", &to, "--to", &self.wire];
        let words = [&words.map(str::to_owned)[..], &self.tls].concat();
        (Proxy::spawn(Command::new(binary()), directory, "send", &words), to)
    }

    /// Files that the receiver has open, its threads, and the most memory it ever had, in KiB.
    pub fn room(&self) -> (usize, u64, u64) {
        let process = format!("/proc/{}", self.receiver.pid());
        let files = std::fs::read_dir(format!("{process}/fd")).expect("our own child").count();
        let status = std::fs::read_to_string(format!("{process}/status")).expect("our own child");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let field = line.and_then(|line| line.split_whitespace().next());
            field.and_then(|field| field.parse().ok()).expect("a number")
        };
        (files, number("Threads:"), number("VmHWM:"))
    }
}
