//! A kept copy that is long in reaching its disk holds up nobody.

use crate::lab;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use lab::stand_in::{LOADED, MIGRATION, leave, path};
use lab::{Proxy, binary};

/// Both proxies, for many migrations; one of them keeps copies.
struct Place {
    directory: tempfile::TempDir,
    destination: UnixListener,
    to: String,
    wire: String,
    _both: [Proxy; 2],
}

impl Place {
    /// The one with this role keeps them.
    fn keeping(keeper: &str) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let (to, wire, from) =
            ["out", "wire", "in"].map(|name| format!("unix:{}", at(name))).into();
        let destination = UnixListener::bind(path(&from)).expect("a fresh socket");
        let (scope, kept) = (lab::scope(directory.path(), "tenant"), at("kept"));
        let spawn = |role: &str, words: [&str; 4]| {
            let keep = if role == keeper { &["--keep", &kept][..] } else { &[] };
            let words = [&["--insecure", "--scope", &scope], &words[..], keep].concat();
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            Proxy::spawn(Command::new(binary()), directory.path(), role, &words)
        };
        let receive = spawn("receive", ["--listen", &wire, "--qemu", &from]);
        let send = spawn("send", ["--listen", &to, "--to", &wire]);
        Self { directory, destination, to, wire, _both: [send, receive] }
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
