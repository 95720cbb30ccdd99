//! A guest, the QEMU that it is to go to, and `pageshare migrate` between them.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use pageshare::address::Address;
use serde_json::json;

use super::{Guest, Proxy, Tap, Tunnel, binary, distance, interruptible, wait_for};

/// What became of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs at the destination.
    Arrived,
    /// It runs at the source.
    Stayed,
    /// It runs nowhere.
    Lost,
    /// It runs twice.
    Doubled,
    /// It runs, but its memory is not what it was, or the command said otherwise.
    Changed,
}

/// Two QEMUs and a receiver between them, ready for the command.
pub struct Stage {
    /// Has the guest.
    pub source: Guest,
    /// Awaits it.
    pub destination: Guest,
    /// The proxy at the destination.
    pub receiver: Proxy,
    /// The guest's checksum before.
    pub checksum: String,
    /// Where the files lie.
    pub directory: tempfile::TempDir,
    /// Where the receiver listens.
    pub wire: String,
    /// Where the command finds the destination's monitor, if not at its own place.
    pub to_qmp: Option<Address>,
    /// Where the command finds the source's monitor, if not at its own place.
    pub from_qmp: Option<Address>,
    /// Where the command has the destination await the guest.
    pub incoming: String,
    tap: Option<Tap>,
}

impl Stage {
    /// Ready.
    pub fn set() -> Self {
        Self::build(false)
    }

    /// Ready, and the destination's word that it has loaded will be held back.
    pub fn holding() -> Self {
        Self::build(true)
    }

    fn build(hold: bool) -> Self {
        let (mut source, destination) = (Guest::running(), Guest::awaiting());
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (incoming, tapped) = (directory.path().join("in"), directory.path().join("tap"));
        let tap = hold.then(|| Tap::holding(&tapped, &incoming));
        let qemu = if hold { &tapped } else { &incoming };
        let (receiver, wire) =
            Proxy::receiver(directory.path(), &format!("unix:{}", qemu.display()));
        let checksum = source.checksum();
        let incoming = format!("unix:{}", incoming.display());
        let (to_qmp, from_qmp) = (None, None);
        Self {
            source,
            destination,
            receiver,
            checksum,
            directory,
            wire,
            to_qmp,
            from_qmp,
            incoming,
            tap,
        }
    }

    /// Leads the command to the destination's monitor through a tunnel.
    pub fn tunnel(&mut self) -> Tunnel {
        let at = self.directory.path().join("there.qmp");
        let tunnel = Tunnel::open(at.clone(), self.destination.monitor());
        self.to_qmp = Some(Address::Unix(at));
        tunnel
    }

    /// Leads the command to the source's monitor through a tunnel.
    pub fn tunnel_to_source(&mut self) -> Tunnel {
        let at = self.directory.path().join("here.qmp");
        let tunnel = Tunnel::open(at.clone(), self.source.monitor());
        self.from_qmp = Some(Address::Unix(at));
        tunnel
    }

    /// `pageshare migrate`, not yet started.
    pub fn command(&self, more: &[&str]) -> Command {
        self.command_by(Command::new(binary()), more)
    }

    fn command_by(&self, mut program: Command, more: &[&str]) -> Command {
        let from_qmp = self.from_qmp.clone().unwrap_or_else(|| self.source.monitor());
        let to_qmp = self.to_qmp.clone().unwrap_or_else(|| self.destination.monitor());
        program
            .arg("migrate")
            .arg(from_qmp.to_string())
            .args(["--to-qmp", &to_qmp.to_string()])
            .args(["--to", &self.wire, "--insecure"])
            .args(more)
            .env("TMPDIR", self.directory.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        program
    }

    /// Starts the command.
    pub fn migrate(&self, more: &[&str]) -> Child {
        self.migrate_by(interruptible(), more)
    }

    /// Starts the command by what starts the program.
    pub fn migrate_by(&self, program: Command, more: &[&str]) -> Child {
        let words = [&["--incoming", &self.incoming], more].concat();
        self.command_by(program, &words).spawn().expect("the program under test starts")
    }

    /// Waits until the guest is on its way.
    pub fn wait_for_bytes(&mut self) {
        wait_for("bytes to flow", || {
            let info = self.source.execute("query-migrate", json!({}));
            (info["ram"]["transferred"].as_u64() > Some(1 << 20)).then_some(())
        });
    }

    /// Waits until the destination has loaded everything and said so to nobody but the tap.
    pub fn wait_for_the_last_word(&self) {
        let tap = self.tap.as_ref().expect("a stage that holds it back");
        wait_for("the destination to have loaded", || tap.holds().then_some(()));
    }

    /// Lets go of the destination's last word.
    pub fn release(&self) {
        if let Some(tap) = &self.tap {
            tap.release();
        }
    }

    /// Has the command decide, and asks both QEMUs; with what the command said.
    pub fn resume(&mut self) -> (Fate, String) {
        let output = self.command(&["--resume"]).output().expect("the program under test starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let there = self.destination.state_if_alive().as_deref() == Some("running");
        let here = self.source.state() == "running";
        let (guest, fate) = match (here, there) {
            (true, true) => return (Fate::Doubled, said),
            (false, false) => return (Fate::Lost, said),
            (true, false) => (&mut self.source, Fate::Stayed),
            (false, true) => (&mut self.destination, Fate::Arrived),
        };
        let sound = guest.checksum() == self.checksum && output.status.success() == there;
        (if sound { fate } else { Fate::Changed }, said)
    }

    /// Puts a distance between the proxies, on which a round trip takes so long.
    pub fn apart(&mut self, round_trip: Duration) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback interface");
        let (_, port) = self.wire.rsplit_once(':').expect("an address of TCP");
        let port = port.parse().expect("a port");
        self.wire = format!("tcp:{}", listener.local_addr().expect("a bound socket"));
        distance::stretch(listener, port, round_trip);
    }

    /// Has both QEMUs send pages by so many channels of multifd.
    pub fn channels(&mut self, channels: u64) {
        for guest in [&mut self.source, &mut self.destination] {
            guest.capabilities(&["multifd"]);
            guest.execute("migrate-set-parameters", json!({"multifd-channels": channels}));
        }
    }

    /// Limits QEMU's bandwidth.
    pub fn slow(&mut self, mib_a_second: u64) {
        self.source.execute("migrate-set-parameters", json!({"max-bandwidth": mib_a_second << 20}));
    }
}

/// Waits for a command; what it came to, and what it said on standard error.
pub fn end(command: Child) -> (Output, String) {
    let output = command.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}
