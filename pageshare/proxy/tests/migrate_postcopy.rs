//! `pageshare migrate` in postcopy: the guest runs at the destination while its pages are still to come.

use crate::lab;

use std::io::{BufRead, BufReader};
use std::process::Child;

use lab::{Fate, Guest, Incoming, Model, Stage, end};
use serde_json::json;

/// A migration whose guest runs at the destination, and most of whose pages are still to come.
pub(crate) fn in_postcopy(stage: &mut Stage, more: &[&str]) -> Child {
    for guest in [&mut stage.source, &mut stage.destination] {
        guest.capabilities(&["postcopy-ram"]);
    }
    let slow = json!({"max-bandwidth": 4 << 20, "max-postcopy-bandwidth": 1 << 20});
    stage.source.execute("migrate-set-parameters", slow);
    let driver = stage.migrate(more);
    stage.wait_for_bytes();
    stage.source.execute("migrate-start-postcopy", json!({}));
    lab::wait_for("the guest to go first", || {
        (stage.destination.state() == "running").then_some(())
    });
    driver
}

#[test]
fn the_way_to_the_sources_monitor_may_break_and_come_back_while_pages_are_still_to_come() {
    let mut stage = Stage::set();
    let tunnel = stage.tunnel_to_source();
    let mut driver = in_postcopy(&mut stage, &[]);
    tunnel.cut();
    let mut said = BufReader::new(driver.stderr.take().expect("piped")).lines();
    let lost = said.any(|line| line.is_ok_and(|line| line.contains("the source QEMU's monitor")));
    assert!(lost && driver.try_wait().expect("our own child").is_none());
    send_the_rest(&mut stage);
    assert_eq!(stage.source.migration_end(), "completed");
    assert_eq!(stage.destination.checksum(), stage.checksum);
    tunnel.mend();
    assert!(driver.wait().expect("our own child").success());
}

pub(crate) fn send_the_rest(stage: &mut Stage) {
    let fast = json!({"max-postcopy-bandwidth": 1_u64 << 40});
    stage.source.execute("migrate-set-parameters", fast);
}

#[test]
fn the_guest_runs_at_the_destination_while_its_pages_are_still_to_come() {
    let mut stage = Stage::set();
    let driver = in_postcopy(&mut stage, &[]);
    assert_eq!(stage.destination.command("ping", "PONG"), "");
    assert_eq!(stage.source.migration_status(), "postcopy-active");
    // From now on its operator at the destination may pause it.
    stage.destination.execute("stop", json!({}));
    send_the_rest(&mut stage);
    let (output, said) = end(driver);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("paused as its operator left it"), "{said}");
    stage.destination.execute("cont", json!({}));
    assert_eq!(stage.destination.checksum(), stage.checksum);
}

#[test]
fn a_copy_of_a_guest_most_of_which_left_in_postcopy_replaces_no_whole_one() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "tenant");
    let kept = directory.path().join("kept").display().to_string();
    let keep = ["--scope", &scope, "--keep", &kept, "--keep-name", "web1"];
    let copies = || -> Vec<_> {
        let entries = std::fs::read_dir(&kept).expect("a copy was kept");
        entries.map(|entry| entry.expect("readable").file_name()).collect()
    };
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let (output, said) = end(stage.migrate(&keep));
    assert!(output.status.success(), "{said}");
    let whole = copies();
    let mut stage = Stage::set();
    let driver = in_postcopy(&mut stage, &keep);
    send_the_rest(&mut stage);
    let (output, said) = end(driver);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the older one stays"), "{said}");
    assert_eq!(copies(), whole);
}

#[test]
fn a_cut_in_postcopy_ends_nobody_and_can_be_recovered_from() {
    let mut stage = Stage::set();
    let driver = in_postcopy(&mut stage, &[]);
    stage.receiver.kill();
    let (output, said) = end(driver);
    assert!(!output.status.success());
    assert!(said.contains("`migrate-recover`"), "{said}");
    let straight = format!("unix:{}", stage.directory.path().join("straight").display());
    // Out of band: its main thread may wait for a processor that waits for a page.
    lab::wait_for("the destination to notice", || {
        let recover = json!({"uri": straight});
        stage.destination.try_out_of_band("migrate-recover", recover)
    });
    stage.source.execute("migrate", json!({"uri": straight, "resume": true}));
    send_the_rest(&mut stage);
    assert_eq!(stage.source.migration_end(), "completed");
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Arrived, "{said}");
}

/// QEMU before 10.2 leaves such a guest at the destination for good.
#[test]
fn a_guest_that_nobody_has_let_run_in_postcopy_goes_on_at_the_source() {
    let Some(newest) = Model::newest() else { return };
    let mut stage = Stage::holding();
    stage.source = Guest::running_on(&newest);
    stage.destination = Guest::start(&newest, &Incoming::Deferred);
    stage.checksum = stage.source.checksum();
    for guest in [&mut stage.source, &mut stage.destination] {
        guest.capabilities(&["postcopy-ram"]);
    }
    stage.slow(4);
    let mut driver = stage.migrate(&[]);
    stage.wait_for_bytes();
    stage.source.execute("migrate-start-postcopy", json!({}));
    stage.wait_for_the_last_word();
    assert_eq!(stage.source.migration_status(), "postcopy-device");
    driver.kill().expect("our own child");
    driver.wait().expect("our own child");
    stage.release();
    assert_eq!(stage.source.migration_end(), "failed");
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
    assert!(said.contains("has been ended"), "{said}");
    assert_eq!(stage.destination.state_if_alive(), None);
}
