//! What ignores a hangup, as `nohup` has it, outlives the terminal that it was started from.

use crate::lab;

use std::io::{ErrorKind, IoSlice, Read};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use lab::stand_in::{MIGRATION, carry, path};
use lab::{Proxy, Stage, binary, signal, without_hangups};
use pageshare::address::Address;
use pageshare::socket::Socket;

/// A sender and a receiver for many migrations, each started by such a command.
struct Proxies {
    both: [Proxy; 2],
    destination: UnixListener,
    to: String,
    directory: tempfile::TempDir,
}

impl Proxies {
    fn start(by: impl Fn() -> Command) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
        let (to, wire, from) = (at("out"), at("wire"), at("in"));
        let destination = UnixListener::bind(path(&from)).expect("a fresh socket");
        let spawn = |role: &str, words: [&str; 4]| {
            let metrics = at(&format!("{role}.metrics"));
            let words = [&["--insecure", "--metrics", &metrics], &words[..]].concat();
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            Proxy::spawn(by(), directory.path(), role, &words)
        };
        let receive = spawn("receive", ["--listen", &wire, "--qemu", &from]);
        let send = spawn("send", ["--listen", &to, "--to", &wire]);
        Self { both: [send, receive], destination, to, directory }
    }

    /// Carries one migration, the `nth` one, until both have written it down: by then they listen to
    /// signals.
    fn carry(&self, nth: usize) {
        let (arrived, _) = carry(&self.to, &self.destination, MIGRATION, &[]);
        assert!(arrived == MIGRATION);
        for role in ["send", "receive"] {
            let record = self.directory.path().join(format!("{role}.json"));
            lab::wait_for(&format!("the record of `pageshare {role}`"), || {
                let lines = std::fs::read_to_string(&record).ok()?.lines().count();
                (lines == nth).then_some(())
            });
        }
    }

    fn signal(&self, name: &str) {
        self.both.iter().for_each(|proxy| signal(name, proxy.pid()));
    }

    fn end(&mut self) -> [Option<i32>; 2] {
        self.both.each_mut().map(|proxy| proxy.end().code())
    }
}

#[test]
fn proxies_that_ignore_a_hangup_serve_on_and_end_when_they_are_told_to() {
    let mut proxies = Proxies::start(without_hangups);
    proxies.carry(1);
    proxies.signal("HUP");
    proxies.carry(2);
    proxies.signal("TERM");
    assert_eq!(proxies.end(), [Some(130); 2]);
}

#[test]
fn a_hangup_that_nobody_ignores_ends_the_proxies_and_their_sockets() {
    let by_default = || {
        let mut program = Command::new("env");
        program.args(["--default-signal=HUP", binary()]);
        program
    };
    let mut proxies = Proxies::start(by_default);
    proxies.carry(1);
    proxies.signal("HUP");
    assert_eq!(proxies.end(), [Some(130); 2]);
    for socket in ["out", "wire", "send.metrics", "receive.metrics"] {
        assert!(!proxies.directory.path().join(socket).exists(), "{socket} is left behind");
    }
}

#[test]
fn a_migration_that_ignores_a_hangup_goes_on() {
    let mut stage = Stage::set();
    stage.slow(16);
    let driver = stage.migrate_by(without_hangups(), &[]);
    stage.wait_for_bytes();
    signal("HUP", driver.id());
    let output = driver.wait_with_output().expect("our own child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stage.destination.checksum(), stage.checksum);
}

/// A host that is frozen or swapping acknowledges what comes and takes none of it; QEMU alone would wait.
#[test]
fn a_peer_that_takes_nothing_for_long_is_waited_for() {
    let host = TcpListener::bind("127.0.0.1:0").expect("the loopback interface");
    let address = Address::Tcp(host.local_addr().expect("a bound socket").to_string());
    let socket = Socket::connect("the receiver", &address).expect("it listens");
    let bytes = [IoSlice::new(&[7; 1 << 16])];
    while socket.write_now(&bytes).is_ok() {}
    // Longer than the connection's own limits are.
    socket.set_read_timeout(Some(Duration::from_secs(25))).expect("a connected socket");
    let heard = (&socket).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::WouldBlock), "it has been given up");
}
