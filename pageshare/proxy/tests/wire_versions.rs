//! Hosts are upgraded one at a time: a program that speaks the version of the protocol before this
//! one, and one that speaks this one, migrate guests to each other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use pageshare_wire::Versions;

use crate::lab::stand_in::path;
use crate::lab::{self, Model, Pair};
use crate::whole_streams::Way;

/// Migrates a guest, in a scope; the bytes and the memory that arrive are compared by [`Way`].
fn carry(pair: impl FnOnce(&[&str], &[&str]) -> Pair) -> [Option<u64>; 2] {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "tenant");
    let send = ["--scope", &scope, "--ask", "always", "--compress", "always"];
    let pair = pair(&send, &["--scope", &scope]);
    let model = Model::installed();
    let mut way = Way::through(pair, &model, &model, &["return-path", "multifd"]);
    way.migrate();
    let (records, logs) = way.arrived(3);
    for log in logs {
        assert!(log.contains("scope Some(\"tenant\")"), "each has proven that it holds it: {log}");
    }
    records.map(|record| record["wire_version"].as_u64())
}

#[test]
fn a_host_that_is_not_upgraded_yet_sends_to_one_that_is() {
    let [_, received] = carry(|send, receive| Pair::half_upgraded(true, send, receive));
    assert_eq!(received, Some(Versions::OURS.oldest.into()));
}

#[test]
fn a_host_that_is_upgraded_sends_to_one_that_is_not_yet() {
    let [sent, _] = carry(|send, receive| Pair::half_upgraded(false, send, receive));
    assert_eq!(sent, Some(Versions::OURS.oldest.into()));
}

#[test]
fn hosts_that_are_both_upgraded_speak_the_newest_version() {
    assert_eq!(carry(Pair::unix), [Some(Versions::OURS.newest.into()); 2]);
}

#[test]
fn hosts_without_a_common_version_say_which_each_speaks_and_what_to_do() {
    let Versions { oldest, newest } = Versions::OURS;
    for (sends, receives) in [(oldest, newest), (newest, oldest)] {
        let [send, receive] = [sends, receives].map(|version| version.to_string());
        let mut pair = Pair::unix(&["--wire-version", &send], &["--wire-version", &receive]);
        let mut qemu = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
        qemu.write_all(b"QEVM").expect("the proxy takes it");
        // It may be reset, since nobody reads what was written: either way the migration has failed.
        let _ = qemu.read_to_end(&mut Vec::new());
        let words = format!(
            "the sender speaks {sends}, the receiver {receives}; upgrade the older pageshare"
        );
        let error = pair.send.record()["error"].to_string();
        assert!(error.contains(&words), "{error}");
        let log = pair.receive.log();
        assert!(log.contains(&words), "{log}");
    }
}
