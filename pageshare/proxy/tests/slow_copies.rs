//! A kept copy that is long in reaching its disk holds up nobody.

use crate::lab;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command};

use lab::stand_in::{LOADED, MIGRATION, leave, path};
use lab::{Proxy, Stage, binary, signal};

/// Both proxies, for many migrations; one of them keeps copies.
struct Place {
    directory: tempfile::TempDir,
    destination: UnixListener,
    to: String,
    wire: String,
    both: [Proxy; 2],
}

impl Place {
    /// The one with this role keeps them.
    fn keeping(keeper: &str) -> Self {
        Self::start(keeper, &[])
    }

    /// The same; the sender is told more.
    fn start(keeper: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let (to, wire, from) =
            ["out", "wire", "in"].map(|name| format!("unix:{}", at(name))).into();
        let destination = UnixListener::bind(path(&from)).expect("a fresh socket");
        let (scope, kept) = (lab::scope(directory.path(), "tenant"), at("kept"));
        let spawn = |role: &str, words: &[&str]| {
            let keep = if role == keeper { &["--keep", &kept][..] } else { &[] };
            let words = [&["--insecure", "--scope", &scope], words, keep].concat();
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            Proxy::spawn(Command::new(binary()), directory.path(), role, &words)
        };
        let receive = spawn("receive", &["--listen", &wire, "--qemu", &from]);
        let send = spawn("send", &[&["--listen", &to, "--to", &wire], more].concat());
        Self { directory, destination, to, wire, both: [send, receive] }
    }

    /// Has a guest arrive whose copy is whole and not finished: the last step looks at whatever lies
    /// beside the copy, and opening a pipe lasts until somebody writes to it.
    fn arrive(&self) {
        let mut source = UnixStream::connect(path(&self.to)).expect("the proxy listens");
        source.write_all(MIGRATION).expect("the proxy takes it");
        let (mut end, _) = self.destination.accept().expect("the proxy connects");
        end.read_exact(&mut [0; MIGRATION.len()]).expect("what was sent");
        let made = Command::new("mkfifo").arg(self.pipe()).status().expect("mkfifo starts");
        assert!(made.success());
        source.shutdown(Shutdown::Write).expect("a connected socket");
        end.read_to_end(&mut Vec::new()).expect("a half-close");
        end.write_all(&LOADED).expect("the proxy listens");
        drop(end);
        source.read_to_end(&mut Vec::new()).expect("a half-close");
        lab::wait_for("the copy to be whole", || {
            let head = std::fs::read(self.unfinished()?).ok()?;
            // It is written last.
            (head.first()? != &0).then_some(())
        });
    }

    fn pipe(&self) -> PathBuf {
        self.directory.path().join("kept/0123456789abcdef.kept")
    }

    fn unfinished(&self) -> Option<PathBuf> {
        let mut kept = std::fs::read_dir(self.directory.path().join("kept")).ok()?.flatten();
        let mut paths = kept.by_ref().map(|entry| entry.path());
        paths.find(|path| path.extension().is_some_and(|end| end == "partial"))
    }

    /// Lets the copy be finished, for which it has waited until now.
    fn finish(&self) {
        assert!(self.unfinished().is_some());
        std::fs::write(self.pipe(), "").expect("somebody reads");
        lab::wait_for("the copy", || self.unfinished().is_none().then_some(()));
    }
}

#[test]
fn a_sender_whose_copy_is_not_finished_listens_on() {
    let place = Place::keeping("send");
    place.arrive();
    let connect = || UnixStream::connect(path(&place.to)).expect("the proxy listens");
    // Of one that waits it is asked whether a migration runs.
    let waiting = connect();
    leave(connect());
    drop(waiting);
    place.finish();
}

/// QEMU, or who drives it, tries again as soon as it has been told of an end.
#[test]
fn a_sender_for_one_migration_ends_behind_the_one_that_began_before_the_first_was_finished() {
    let metrics = tempfile::tempdir().expect("a scratch directory");
    let metrics = metrics.path().join("metrics");
    let served = format!("unix:{}", metrics.display());
    let mut place = Place::start("send", &["--once", "--metrics", &served]);
    place.arrive();
    let mut source = UnixStream::connect(path(&place.to)).expect("the proxy listens");
    source.write_all(MIGRATION).expect("the proxy takes it");
    lab::wait_for("the second to have begun", || {
        let mut scraper = UnixStream::connect(&metrics).ok()?;
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut said = String::new();
        scraper.read_to_string(&mut said).ok()?;
        said.contains("pageshare_migrations_running{vm=\"\"} 2").then_some(())
    });
    std::fs::write(place.pipe(), "").expect("somebody reads");
    lab::wait_for("the first to be told", || {
        place.both[0].log().contains(" ended: ").then_some(())
    });
    let (mut end, _) = place.destination.accept().expect("the proxy connects");
    end.read_exact(&mut [0; MIGRATION.len()]).expect("what was sent");
    source.write_all(MIGRATION).expect("the proxy takes it");
    source.shutdown(Shutdown::Write).expect("a connected socket");
    let mut rest = Vec::new();
    end.read_to_end(&mut rest).expect("a half-close");
    assert!(rest == MIGRATION, "{}", place.both[0].log());
    drop(end);
    assert!(place.both[0].end().success(), "{}", place.both[0].log());
    assert!(!metrics.exists(), "the metrics' socket is left behind");
}

#[test]
fn a_receiver_whose_copy_is_not_finished_takes_the_next_guest() {
    let place = Place::keeping("receive");
    place.arrive();
    // Of another tenant: no copy is kept of it, and that there is a pipe is nothing to it.
    let elsewhere = tempfile::tempdir().expect("a scratch directory");
    let to = format!("unix:{}", elsewhere.path().join("out").display());
    let words = ["--insecure", "--once", "--listen", &to, "--to", &place.wire].map(str::to_owned);
    let mut sender = Proxy::spawn(Command::new(binary()), elsewhere.path(), "send", &words);
    let mut source = UnixStream::connect(path(&to)).expect("the proxy listens");
    source.write_all(MIGRATION).expect("the proxy takes it");
    source.shutdown(Shutdown::Write).expect("a connected socket");
    place.destination.set_nonblocking(true).expect("a socket");
    let (mut end, _) = lab::wait_for("the next guest", || place.destination.accept().ok());
    end.set_nonblocking(false).expect("a socket");
    let mut arrived = Vec::new();
    end.read_to_end(&mut arrived).expect("a half-close");
    assert!(arrived == MIGRATION);
    drop(end);
    assert!(sender.record()["error"].is_null(), "{}", sender.log());
    place.finish();
}

/// Has a guest migrate by the command, whose copy is whole and not finished; with the rest of what it
/// says, and the pipe that the copy waits for.
fn migrate(stage: &mut Stage) -> (Child, BufReader<ChildStderr>, PathBuf) {
    let directory = stage.directory.path();
    let (scope, kept) = (lab::scope(directory, "tenant"), directory.join("kept"));
    let record = directory.join("migrate.json");
    let words = ["--scope", &scope, "--keep"].map(OsStr::new);
    let words =
        words.into_iter().chain([kept.as_os_str(), "--record".as_ref(), record.as_os_str()]);
    let words: Vec<&str> = words.map(|word| word.to_str().expect("a plain path")).collect();
    stage.slow(1);
    let mut driver = stage.migrate(&words);
    stage.wait_for_bytes();
    let pipe = kept.join("0123456789abcdef.kept");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    stage.slow(1 << 20);
    let mut said = BufReader::new(driver.stderr.take().expect("a pipe"));
    let (mut lines, wanted) = (String::new(), "the copy of this VM is still being written");
    while !lines.contains(wanted) {
        let length = said.read_line(&mut lines).expect("it says something");
        assert!(length > 0, "it has ended: {lines}");
    }
    assert!(lines.contains("the guest runs at the destination"), "{lines}");
    (driver, said, pipe)
}

/// Waits for the end; the pages kept by its record, and what else was said.
fn end(stage: &Stage, driver: Child, mut rest: impl Read) -> (Option<u64>, String) {
    let mut said = String::new();
    rest.read_to_string(&mut said).expect("text");
    let output = driver.wait_with_output().expect("our own child");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("downtime"), "the table is there");
    let record = std::fs::read(stage.directory.path().join("migrate.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("a record is JSON");
    (record["proxy"]["pages_kept"].as_u64(), said)
}

#[test]
fn a_migration_whose_copy_is_not_finished_waits_for_it_and_says_so() {
    let mut stage = Stage::set();
    let (driver, rest, pipe) = migrate(&mut stage);
    std::fs::write(pipe, "").expect("somebody reads");
    let (kept, said) = end(&stage, driver, rest);
    assert!(kept > Some(0) && said.contains("kept a copy of"), "{kept:?}: {said}");
}

#[test]
fn who_does_not_want_to_wait_for_a_copy_gives_it_up_and_is_told_so() {
    let mut stage = Stage::set();
    let (driver, rest, _pipe) = migrate(&mut stage);
    signal("INT", driver.id());
    let (kept, said) = end(&stage, driver, rest);
    assert!(kept == Some(0) && said.contains("is given up, as you wish"), "{kept:?}: {said}");
}
