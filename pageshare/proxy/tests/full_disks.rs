//! A disk that takes no more: what is said of it, and that no half of anything stays.

use crate::lab;

use std::fs::{File, read, write};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

use lab::Proxy;
use lab::stand_in::MIGRATION;

/// A shell that will start a program whose files may have so many times 512 bytes.
fn limited(blocks: u32) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, lab::binary()]);
    shell
}

#[test]
fn what_standard_output_does_not_take_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a plain path").to_owned();
    write(at("stream"), b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04")
        .expect("the scratch directory is writable");
    let (scope, stream) = (at("scope.json"), at("stream"));
    for words in
        [&["scope", "test", &scope][..], &["inspect", &stream], &["inspect", "--json", &stream]]
    {
        let full = File::create("/dev/full").expect("a device");
        let output = Command::new(lab::binary()).args(words).stdout(full).output();
        let output = output.expect("pageshare starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("pageshare: cannot write to standard output: "), "{said}");
    }
    let full = File::create("/dev/full").expect("a device");
    let mut nowhere = Command::new(lab::binary());
    let status = nowhere.args(["inspect", "/nowhere"]).stderr(full).status();
    assert_eq!(status.expect("pageshare starts").code(), Some(1));
}

#[test]
fn a_scope_that_could_not_be_written_is_not_in_the_way_of_another() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("scope.json");
    let scope = |mut program: Command| {
        program.args(["scope", "test"]).arg(&path).output().expect("pageshare starts")
    };
    let output = scope(limited(0));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("File too large"), "{said}");
    assert!(scope(Command::new(lab::binary())).status.success());
}

#[test]
fn a_record_that_does_not_fit_leaves_no_half_of_a_line() {
    const BLOCKS: u32 = 4096;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    // The record's file alone comes to the limit.
    let before = "{\"version\":1}\n".repeat(BLOCKS as usize * 512 / 14);
    write(at("send.json"), &before).expect("the scratch directory is writable");
    let to = format!("unix:{}", at("out").display());
    let words = ["--once", "--insecure", "--listen", &to, "--to", "unix:/nowhere/wire"];
    let words = words.map(str::to_owned);
    let mut sender = Proxy::spawn(limited(BLOCKS), directory.path(), "send", &words);
    let mut source = UnixStream::connect(at("out")).expect("the proxy listens");
    source.write_all(MIGRATION).expect("the proxy takes it");
    sender.end();
    assert!(sender.log().contains("File too large"), "{}", sender.log());
    assert!(read(at("send.json")).expect("it is there") == before.as_bytes());
}
