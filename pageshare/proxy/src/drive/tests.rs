//! Drivers between monitors of no QEMU.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Mutex;

use super::*;

/// What a monitor says, by command, and of an object by its place; an answer under `error` is a refusal.
type Says = Arc<Mutex<HashMap<String, Value>>>;

/// A monitor of no QEMU, which keeps the objects that it is given; `cont` is refused once.
fn monitor(directory: &Path, says: &Says) -> Address {
    let path = directory.join(format!("{:p}", Arc::as_ptr(says)));
    // An earlier driver's.
    drop(std::fs::remove_file(&path));
    let (listener, says) = (UnixListener::bind(&path).unwrap(), Arc::clone(says));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            writeln!(&client, "{}", json!({"QMP": {}})).unwrap();
            for line in BufReader::new(&client).lines().map_while(Result::ok) {
                let asked: Value = serde_json::from_str(&line).unwrap();
                let (asked, about) = (asked["execute"].as_str().unwrap(), &asked["arguments"]);
                if let ("object-add", Some(id)) = (asked, about["id"].as_str()) {
                    leave(&says, id, &about["identity"]);
                }
                let mut says = says.lock().unwrap();
                says.insert(format!("was asked {asked}"), Value::Null);
                if let ("object-del", Some(id)) = (asked, about["id"].as_str()) {
                    says.remove(&format!("/objects/{id}"));
                }
                let place = about["path"].as_str().unwrap_or_default();
                let answer = says.get(asked).or_else(|| says.get(place));
                let answer = answer.cloned().unwrap_or(json!({"return": {}}));
                if asked == "cont" && says.remove("cont").is_none() {
                    says.insert("query-status".into(), json!({"return": {"status": "running"}}));
                }
                writeln!(&client, "{answer}").unwrap();
            }
        }
    });
    Address::Unix(path)
}

fn says(status: &str, run_state: &str) -> Says {
    let says = Says::default();
    now(&says, status, run_state);
    says
}

/// What it says from now on.
fn now(says: &Says, status: &str, run_state: &str) {
    let info = json!({"status": status, "total-time": 1});
    let status = json!({"status": run_state});
    for (asked, answer) in [("query-migrate", info), ("query-status", status)] {
        says.lock().unwrap().insert(asked.into(), json!({"return": answer}));
    }
}

/// Has it hold an object with this word.
fn leave(says: &Says, id: &str, word: &Value) {
    says.lock().unwrap().insert(format!("/objects/{id}"), json!({"return": word}));
}

/// Two of one migration, which has been begun by a driver that noted where the guest has run, if so.
fn begun(here: &Says, there: &Says, ran: Option<&str>) {
    for says in [here, there] {
        leave(says, "pageshare-migration", &json!("a word"));
    }
    if let Some(place) = ran {
        leave(here, "pageshare-ran", &json!(format!("a word {place}")));
    }
}

/// A driver between two such monitors.
fn driver(directory: &Path, here: &Says, there: &Says) -> Driver {
    let [source, destination] = [here, there].map(|says| monitor(directory, says));
    let source = Qmp::connect("the source", &source, LOADING).unwrap();
    Driver::new(source, destination, Arc::default()).unwrap()
}

/// The same, with the guest in postcopy and let run at the destination.
fn in_postcopy(directory: &Path, here: &Says, there: &Says) -> Driver {
    let mut driver = driver(directory, here, there);
    while !driver.ran_there {
        assert_eq!(driver.step(|_| {}).unwrap(), None);
    }
    driver
}

#[test]
fn a_destination_that_refuses_to_run_in_postcopy_is_told_again() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-active", "finish-migrate"), says("", "paused"));
    let locked = json!({"error": {"desc": "Failed to get \"write\" lock"}});
    there.lock().unwrap().insert("cont".into(), locked);
    let mut driver = in_postcopy(directory.path(), &here, &there);
    assert!(driver.refusal.is_some());
    now(&here, "completed", "postmigrate");
    let arrived = Outcome::Arrived { run_state: "running".into() };
    assert_eq!(driver.step(|_| {}).unwrap(), Some(arrived));
}

#[test]
fn a_guest_that_has_run_at_the_destination_and_stands_still_there_is_not_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-active", "finish-migrate"), says("", "paused"));
    let mut driver = in_postcopy(directory.path(), &here, &there);
    now(&here, "failed", "finish-migrate");
    now(&there, "", "io-error");
    let asked = driver.step(|_| {}).unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

#[test]
fn a_driver_that_was_killed_before_it_had_taken_all_its_marks_away_has_finished() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("completed", "postmigrate"), says("", "running"));
    for id in ["pageshare-migration", "pageshare-arrived"] {
        leave(&here, id, &json!("a word"));
    }
    let arrived = Outcome::Arrived { run_state: String::new() };
    assert_eq!(driver(directory.path(), &here, &there).resume().unwrap(), arrived);
}

#[test]
fn a_guest_that_a_driver_which_was_killed_let_run_in_postcopy_is_not_ended_and_runs_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-active", "finish-migrate"), says("", "paused"));
    begun(&here, &there, Some("here"));
    drop(in_postcopy(directory.path(), &here, &there));
    now(&here, "failed", "postmigrate");
    now(&there, "", "paused");
    let asked = driver(directory.path(), &here, &there).resume().unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
    let mut resumed = driver(directory.path(), &here, &there);
    let Address::Unix(path) = resumed.destination.monitor().address() else { unreachable!() };
    std::fs::remove_file(path).unwrap();
    let asked = resumed.resume().unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

#[test]
fn a_guest_that_a_driver_was_killed_before_it_let_run_is_not_taken_for_one_that_is_paused() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-active", "finish-migrate"), says("", "paused"));
    begun(&here, &there, Some("there"));
    let mut resumed = driver(directory.path(), &here, &there);
    let resumed = std::thread::spawn(move || resumed.resume().unwrap());
    while !there.lock().unwrap().contains_key("was asked cont") {
        assert!(!resumed.is_finished());
        std::thread::sleep(SHORT_POLL);
    }
    now(&here, "completed", "postmigrate");
    assert_eq!(resumed.join().unwrap(), Outcome::Arrived { run_state: "running".into() });
}

#[test]
fn a_guest_that_another_migration_has_let_run_has_not_run_in_this() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("failed", "postmigrate"), says("postcopy-paused", "paused"));
    begun(&here, &there, None);
    leave(&here, "pageshare-ran", &json!("another here"));
    let asked = driver(directory.path(), &here, &there).resume().unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

#[test]
fn a_guest_that_a_driver_of_before_may_have_let_run_in_postcopy_is_not_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("failed", "postmigrate"), says("postcopy-paused", "paused"));
    begun(&here, &there, None);
    let asked = driver(directory.path(), &here, &there).resume().unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

/// From QEMU 10.2 on a source takes its guest back if the destination fails before it may let it run.
#[test]
fn a_guest_that_nobody_has_let_run_in_postcopy_is_ended_at_the_destination() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("failed", "running"), says("postcopy-paused", "paused"));
    begun(&here, &there, Some("here"));
    let stayed = Outcome::Stayed(Loss::Ended);
    assert_eq!(driver(directory.path(), &here, &there).resume().unwrap(), stayed);
}

#[test]
fn a_destination_that_loads_the_devices_in_postcopy_is_not_let_run() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-device", "finish-migrate"), says("", "paused"));
    let mut driver = driver(directory.path(), &here, &there);
    assert_eq!(driver.step(|_| {}).unwrap(), None);
    let said = driver.destination.monitor().ask(Qmp::run_state).unwrap();
    assert_eq!(said, "paused");
}

#[test]
fn a_driver_that_is_told_to_end_before_the_migration_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("", "running"), says("", "inmigrate"));
    let mut driver = driver(directory.path(), &here, &there);
    driver.stop.store(true, Ordering::SeqCst);
    let said = driver.prepare(Some("tcp:host:1"), None).unwrap_err().to_string();
    assert!(said.contains("stays at the source"), "{said}");
    for says in [here, there] {
        let says = says.lock().unwrap();
        assert!(!says.keys().any(|asked| asked.starts_with("/objects")), "{says:?}");
        assert!(!says.contains_key("was asked migrate-incoming"), "{says:?}");
    }
}

/// QEMU ignores one at the destination, but for a source that does not know it, and waits for ever
/// where the source alone has it on.
#[test]
fn an_acknowledgement_that_the_source_does_not_wait_for_is_no_difference() {
    let directory = tempfile::tempdir().unwrap();
    let said = |on: Option<bool>| {
        let list = on.map(|on| json!({"capability": "switchover-ack", "state": on}));
        json!({"return": list.into_iter().collect::<Vec<_>>()})
    };
    for (source, destination, ready) in [
        (Some(false), Some(true), true),
        (Some(true), Some(false), false),
        (None, Some(true), false),
    ] {
        let (here, there) = (says("", "running"), says("", "inmigrate"));
        for (says, on) in [(&here, source), (&there, destination)] {
            says.lock().unwrap().insert("query-migrate-capabilities".into(), said(on));
        }
        let prepared = driver(directory.path(), &here, &there).prepare(None, None);
        assert_eq!(prepared.is_ok(), ready, "{prepared:?}");
    }
}

/// As QEMU refuses to cancel where postcopy has begun since it was asked.
#[test]
fn a_migration_that_cannot_be_cancelled_any_more_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("active", "running"), says("", "inmigrate"));
    let refused = json!({"error": {"desc": "Postcopy migration in progress, cannot cancel."}});
    here.lock().unwrap().insert("migrate_cancel".into(), refused);
    assert!(!driver(directory.path(), &here, &there).cancel().unwrap());
}

#[test]
fn a_guest_that_has_come_is_not_taken_for_one_that_has_gone() {
    let came = json!({"status": "completed", "socket-address": []});
    assert_eq!(status(&came), "");
    let gone = json!({"status": "completed", "total-time": 900, "ram": {"total": 1}});
    assert_eq!(status(&gone), "completed");
    assert_eq!(status(&json!({"status": "failed"})), "failed");
}
