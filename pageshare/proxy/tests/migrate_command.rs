//! `pageshare migrate`: the guest runs exactly once, whatever is killed.

mod lab;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Guest, Proxy, binary};
use serde_json::{Value, json};

/// Two QEMUs and a receiver between them, ready for the command.
struct Stage {
    source: Guest,
    destination: Guest,
    receiver: Proxy,
    wire: String,
    incoming: String,
    checksum: String,
    directory: tempfile::TempDir,
}

impl Stage {
    fn set() -> Self {
        let (mut source, destination) = (Guest::running(), Guest::awaiting());
        let directory = tempfile::tempdir().expect("a scratch directory");
        let incoming = format!("unix:{}", directory.path().join("in").display());
        let (receiver, wire) = Proxy::receiver(directory.path(), &incoming);
        let checksum = source.checksum();
        Self { source, destination, receiver, wire, incoming, checksum, directory }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .arg("migrate")
            .arg(self.source.monitor().to_string())
            .args(["--to-qmp", &self.destination.monitor().to_string()])
            .args(["--to", &self.wire, "--insecure"])
            .args(more)
            .env("TMPDIR", self.directory.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn migrate(&self, more: &[&str]) -> Child {
        let incoming = ["--incoming", &self.incoming];
        self.command(&[&incoming, more].concat()).spawn().expect("the program under test starts")
    }

    /// Has the command decide; then exactly one guest runs, with its memory.
    fn resume(&mut self) {
        let output = self.command(&["--resume"]).output().expect("the program under test starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let there = self.destination.state_if_alive().as_deref() == Some("running");
        let here = self.source.state() == "running";
        assert!(here != there, "here {here}, there {there}: {said}");
        assert_eq!(output.status.success(), there, "{said}");
        let guest = if there { &mut self.destination } else { &mut self.source };
        assert_eq!(guest.checksum(), self.checksum, "{said}");
    }

    fn slow(&mut self, mib_a_second: u64) {
        self.source.execute("migrate-set-parameters", json!({"max-bandwidth": mib_a_second << 20}));
    }
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a record was written");
    serde_json::from_str(&text).expect("a record is JSON")
}

#[test]
fn the_guest_arrives_and_the_summary_says_what_it_took() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let record = stage.directory.path().join("record.json");
    let path = record.to_str().expect("a plain path");
    let output = stage.migrate(&["--record", path]).wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("downtime"));
    assert_eq!(stage.source.state(), "postmigrate");
    assert_eq!(stage.destination.state(), "running");
    assert_eq!(stage.destination.checksum(), stage.checksum);
    let record = read(&record);
    assert_eq!(record["outcome"], "arrived");
    assert!(record["proxy"]["error"].is_null(), "{record}");
    let left: Vec<_> = std::fs::read_dir(stage.directory.path())
        .expect("readable")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("pageshare-"))
        .collect();
    assert!(left.is_empty(), "{left:?} is left behind");
}

#[test]
fn whatever_moment_the_driver_is_killed_at_one_guest_runs_after_resume() {
    // Before, in and after the transfer, and around its end.
    for delay in [20, 300, 900, 1300, 1500] {
        let mut stage = Stage::set();
        stage.slow(80);
        let mut driver = stage.migrate(&[]);
        std::thread::sleep(Duration::from_millis(delay));
        driver.kill().expect("our own child");
        driver.wait().expect("our own child");
        stage.resume();
    }
}

#[test]
fn the_guest_stays_when_the_receiver_is_killed() {
    let mut stage = Stage::set();
    stage.slow(40);
    let driver = stage.migrate(&[]);
    lab::wait_for("bytes to flow", || {
        let info = stage.source.execute("query-migrate", json!({}));
        (info["ram"]["transferred"].as_u64() > Some(1 << 20)).then_some(())
    });
    stage.receiver.kill();
    let output = driver.wait_with_output().expect("our own child");
    assert!(!output.status.success());
    assert_eq!(stage.source.state(), "running");
    assert_eq!(stage.source.checksum(), stage.checksum);
    lab::wait_for("the destination to end", || stage.destination.has_ended().then_some(()));
}

#[test]
fn a_destination_that_awaits_nothing_is_refused_and_the_guest_is_not_touched() {
    let mut stage = Stage::set();
    stage.destination = Guest::running();
    let output = stage.migrate(&[]).wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("awaits no migration"), "{said}");
    assert_eq!(stage.source.state(), "running");
}

/// Kills the driver or the receiver at random moments, a fifth of them just when the destination
/// has loaded everything and the source may not know. `PAGESHARE_KILLS` says how many,
/// `PAGESHARE_SEED` repeats a run.
#[test]
#[ignore = "long: cargo test -p pageshare --test migrate_command -- --ignored --nocapture"]
fn random_kills_lose_and_double_no_guest() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let kills = number("PAGESHARE_KILLS", 100);
    let mut state = number("PAGESHARE_SEED", 0x9e37_79b9_7f4a_7c15);
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut arrived, mut stayed) = (0, 0);
    for kill in 0..kills {
        let mut stage = Stage::set();
        stage.slow(80);
        let mut driver = stage.migrate(&[]);
        let (at_the_end, of_the_driver) = (kill % 5 == 0, random(2) == 0);
        if at_the_end {
            lab::wait_for("the destination to have loaded, or to have ended", || {
                let state = stage.destination.state_if_alive();
                let loaded = state.as_deref() != Some("inmigrate");
                loaded.then_some(())
            });
        } else {
            std::thread::sleep(Duration::from_millis(random(2500)));
        }
        if of_the_driver {
            driver.kill().expect("our own child");
        } else {
            stage.receiver.kill();
        }
        driver.wait().expect("our own child");
        stage.resume();
        if stage.source.state() == "running" {
            stayed += 1;
        } else {
            arrived += 1;
        }
    }
    println!("{kills} kills: {arrived} guests arrived, {stayed} stayed, none lost or doubled");
    assert_eq!(arrived + stayed, kills);
}
