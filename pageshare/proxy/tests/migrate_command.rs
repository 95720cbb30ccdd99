//! `pageshare migrate`: the guest runs exactly once, whatever is killed.

mod lab;

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Output};
use std::time::Duration;

use lab::{Fate, Guest, Stage};
use serde_json::{Value, json};

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a record was written");
    serde_json::from_str(&text).expect("a record is JSON")
}

/// Waits for a command; what it came to, and what it said on standard error.
fn end(command: Child) -> (Output, String) {
    let output = command.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn the_guest_arrives_and_the_summary_says_what_it_took() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let record = stage.directory.path().join("record.json");
    let path = record.to_str().expect("a plain path");
    let (output, said) = end(stage.migrate(&["--record", path]));
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
        let (fate, said) = stage.resume();
        assert!(matches!(fate, Fate::Arrived | Fate::Stayed), "{fate:?}: {said}");
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
    let (_, said) = end(stage.migrate(&[]));
    assert!(said.contains("awaits no migration"), "{said}");
    assert_eq!(stage.source.state(), "running");
}

#[test]
fn the_guest_runs_once_when_the_last_word_is_lost_with_the_receiver() {
    let mut stage = Stage::holding();
    stage.slow(1 << 20);
    let mut driver = stage.migrate(&[]);
    stage.wait_for_the_last_word();
    stage.receiver.kill();
    stage.release();
    driver.wait().expect("our own child");
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
}

#[test]
fn the_guest_runs_once_when_the_last_word_is_lost_with_the_driver() {
    let mut stage = Stage::holding();
    stage.slow(1 << 20);
    let mut driver = stage.migrate(&[]);
    stage.wait_for_the_last_word();
    driver.kill().expect("our own child");
    driver.wait().expect("our own child");
    stage.release();
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
}

#[test]
fn the_exit_code_says_where_the_guest_is_when_nothing_can_be_written() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let mut driver = stage.migrate(&["--record", "/dev/full"]);
    // Nobody reads what it says.
    drop((driver.stdout.take(), driver.stderr.take()));
    assert_eq!(driver.wait().expect("our own child").code(), Some(0));
    assert_eq!(stage.destination.state(), "running");
}

#[test]
fn a_receiver_that_cannot_write_its_record_serves_on() {
    let mut stage = Stage::set();
    let record = stage.directory.path().join("receive.json");
    std::fs::create_dir(record).expect("the scratch directory is writable");
    stage.slow(1 << 20);
    let (output, said) = end(stage.migrate(&[]));
    assert!(output.status.success(), "{said}");
    lab::wait_for("the receiver to say so", || {
        stage.receiver.log().contains("receive.json").then_some(())
    });
    let address = stage.wire.strip_prefix("tcp:").expect("TCP");
    let mut stranger = TcpStream::connect(address).expect("the receiver listens");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").expect("connected");
    drop(stranger);
    lab::wait_for("the receiver to turn a stranger away", || {
        stage.receiver.log().contains("turned away").then_some(())
    });
}

#[test]
fn a_migration_that_does_not_begin_leaves_no_socket() {
    let mut stage = Stage::set();
    stage.destination = Guest::running();
    let socket = stage.directory.path().join("out");
    let (_, said) = end(stage.migrate(&["--listen", &format!("unix:{}", socket.display())]));
    assert!(said.contains("awaits no migration"), "{said}");
    assert!(!socket.exists(), "it is left behind");
}

#[test]
fn the_downtime_limit_that_an_operator_has_set_stays_as_it_is() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    stage.source.execute("migrate-set-parameters", json!({"downtime-limit": 1234}));
    let (output, said) = end(stage.migrate(&[]));
    assert!(output.status.success(), "{said}");
    let parameters = stage.source.execute("query-migrate-parameters", json!({}));
    assert_eq!(parameters["downtime-limit"], 1234);
}
