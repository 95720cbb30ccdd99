//! `pageshare migrate` that was killed, or has lost the last word: `--resume` lets the guest run exactly
//! once, and touches no other QEMU.

use crate::lab;

use std::os::unix::net::UnixListener;

use lab::{Fate, Guest, Incoming, Model, Stage, end};
use pageshare::address::Address;
use serde_json::json;

#[test]
fn whatever_moment_the_driver_is_killed_at_one_guest_runs_after_resume() {
    let transferred = |stage: &mut Stage, bytes: u64| {
        let info = stage.source.execute("query-migrate", json!({}));
        info["ram"]["transferred"].as_u64() >= Some(bytes)
    };
    let moments: [&dyn Fn(&mut Stage) -> bool; 5] = [
        &|_| true,
        &|stage| transferred(stage, 1 << 16),
        &|stage| transferred(stage, 8 << 20),
        &|stage| stage.source.state() != "running",
        &|stage| stage.source.migration_status() == "completed",
    ];
    for moment in moments {
        let mut stage = Stage::set();
        stage.slow(80);
        let mut driver = stage.migrate(&[]);
        lab::wait_for("the moment", || moment(&mut stage).then_some(()));
        driver.kill().expect("our own child");
        driver.wait().expect("our own child");
        let (fate, said) = stage.resume();
        assert!(matches!(fate, Fate::Arrived | Fate::Stayed), "{fate:?}: {said}");
    }
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
fn a_destination_that_gives_no_answer_is_not_said_to_have_ended() {
    let mut stage = Stage::set();
    abandoned(&mut stage);
    let silent = stage.directory.path().join("silent");
    let _accepts_nothing = UnixListener::bind(&silent).expect("a fresh path");
    stage.to_qmp = Some(Address::Unix(silent));
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
    assert!(said.contains("the destination's QEMU does not answer"), "{said}");
    assert!(!said.contains("ended"), "{said}");
}

/// A migration that has failed, and whose driver was killed before that.
fn abandoned(stage: &mut Stage) {
    stage.slow(1);
    let mut driver = stage.migrate(&[]);
    stage.wait_for_bytes();
    driver.kill().expect("our own child");
    driver.wait().expect("our own child");
    stage.receiver.kill();
    assert_eq!(stage.source.migration_end(), "failed");
}

/// A migration that has completed, and whose driver was killed before it could let the guest run.
fn completed(stage: &mut Stage) {
    let tunnel = stage.tunnel();
    stage.slow(1 << 20);
    let mut driver = stage.migrate(&[]);
    stage.wait_for_the_last_word();
    tunnel.cut();
    stage.release();
    assert_eq!(stage.source.migration_end(), "completed");
    driver.kill().expect("our own child");
    driver.wait().expect("our own child");
    stage.to_qmp = None;
}

/// Another guest, which its operator has paused: as good as one that has arrived and may not run.
fn stranger() -> Guest {
    let mut stranger = Guest::running();
    stranger.execute("stop", json!({}));
    stranger
}

#[test]
fn a_machine_that_was_started_in_the_destinations_place_is_not_let_run() {
    let mut stage = Stage::holding();
    completed(&mut stage);
    // Someone has started the destination again, and not told it to await anything.
    stage.destination = Guest::start(&Model::installed(), &Incoming::Nowhere);
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Lost, "{said}");
    assert!(said.contains("is not the one that this migration goes to"), "{said}");
    assert_eq!(stage.destination.state(), "prelaunch");
}

#[test]
fn nothing_is_resumed_and_nobody_ended_where_nothing_has_begun() {
    let mut stage = Stage::set();
    stage.destination = stranger();
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
    assert!(said.contains("there is nothing to resume"), "{said}");
    assert_eq!(stage.destination.state(), "paused");
}

#[test]
fn a_stranger_at_the_destinations_address_is_neither_ended_nor_let_run() {
    for (mut stage, leave, fate) in [
        (Stage::set(), abandoned as fn(&mut Stage), Fate::Stayed),
        (Stage::holding(), completed, Fate::Arrived),
    ] {
        leave(&mut stage);
        let mut stranger = stranger();
        stage.to_qmp = Some(stranger.monitor());
        let (_, said) = stage.resume();
        assert!(said.contains("is not the one that this migration goes to"), "{said}");
        assert_eq!(stranger.state(), "paused");
        stage.to_qmp = None;
        let (resumed, said) = stage.resume();
        assert_eq!(resumed, fate, "{said}");
        // Once more, and nothing happens.
        let (resumed, said) = stage.resume();
        assert_eq!(resumed, fate, "{said}");
        assert!(
            said.contains("nothing to resume")
                || said.contains("has gone to the destination already"),
            "{said}"
        );
    }
}

#[test]
fn a_destination_that_awaits_another_machine_is_left_as_it_is() {
    let mut stage = Stage::set();
    let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let other = Model::installed().with_uuid(uuid);
    stage.destination = Guest::start(&other, &Incoming::DeferredToRun);
    let (output, said) = end(stage.migrate(&[]));
    assert!(!output.status.success());
    assert!(said.contains("awaits another machine") && said.contains(uuid), "{said}");
    assert_eq!(stage.destination.state(), "inmigrate");
    // Its leave to start by itself is not taken either.
    let straight = format!("unix:{}", stage.directory.path().join("straight").display());
    stage.source.unlimited();
    stage.destination.listen(&straight);
    stage.source.migrate(&straight);
    assert_eq!(stage.source.migration_end(), "completed");
    lab::wait_for("it to run", || (stage.destination.state() == "running").then_some(()));
}
