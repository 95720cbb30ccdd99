//! Drivers between monitors of no QEMU.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Mutex;

use super::*;

/// What two monitors say, by command; an answer under `error` is a refusal.
type Says = Arc<Mutex<HashMap<&'static str, Value>>>;

/// A monitor of no QEMU; `cont` is refused once.
fn monitor(directory: &Path, says: &Says) -> Address {
    let path = directory.join(format!("{:p}", Arc::as_ptr(says)));
    let (listener, says) = (UnixListener::bind(&path).unwrap(), Arc::clone(says));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            writeln!(&client, "{}", json!({"QMP": {}})).unwrap();
            for line in BufReader::new(&client).lines().map_while(Result::ok) {
                let asked: Value = serde_json::from_str(&line).unwrap();
                let asked = asked["execute"].as_str().unwrap();
                let mut says = says.lock().unwrap();
                let answer = says.get(asked).cloned().unwrap_or(json!({"return": {}}));
                if asked == "cont" && says.remove("cont").is_none() {
                    says.insert("query-status", json!({"return": {"status": "running"}}));
                }
                writeln!(&client, "{answer}").unwrap();
            }
        }
    });
    Address::Unix(path)
}

fn says(status: &str, run_state: &str) -> Says {
    let info = json!({"status": status, "total-time": 1});
    Arc::new(Mutex::new(HashMap::from([
        ("query-migrate", json!({"return": info})),
        ("query-status", json!({"return": {"status": run_state}})),
    ])))
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
    there.lock().unwrap().insert("cont", locked);
    let mut driver = in_postcopy(directory.path(), &here, &there);
    assert!(driver.refusal.is_some());
    let over = json!({"return": {"status": "completed", "total-time": 1}});
    here.lock().unwrap().insert("query-migrate", over);
    let arrived = Outcome::Arrived { run_state: "running".into() };
    assert_eq!(driver.step(|_| {}).unwrap(), Some(arrived));
}

#[test]
fn a_guest_that_has_run_at_the_destination_and_stands_still_there_is_not_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("postcopy-active", "finish-migrate"), says("", "paused"));
    let mut driver = in_postcopy(directory.path(), &here, &there);
    let failed = json!({"return": {"status": "failed"}});
    here.lock().unwrap().insert("query-migrate", failed);
    let stopped = json!({"return": {"status": "io-error"}});
    there.lock().unwrap().insert("query-status", stopped);
    let asked = driver.step(|_| {}).unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

#[test]
fn a_driver_that_was_killed_before_it_had_taken_all_its_marks_away_has_finished() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("completed", "postmigrate"), says("", "running"));
    here.lock().unwrap().insert("qom-get", json!({"return": "a word"}));
    let none = json!({"error": {"desc": "Device not found"}});
    there.lock().unwrap().insert("qom-get", none);
    let arrived = Outcome::Arrived { run_state: String::new() };
    assert_eq!(driver(directory.path(), &here, &there).resume().unwrap(), arrived);
}

#[test]
fn a_guest_that_a_driver_which_was_killed_let_run_in_postcopy_is_not_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (says("failed", "postmigrate"), says("postcopy-paused", "paused"));
    for says in [&here, &there] {
        says.lock().unwrap().insert("qom-get", json!({"return": "a word"}));
    }
    let asked = driver(directory.path(), &here, &there).resume().unwrap_err().to_string();
    assert!(asked.contains("end neither"), "{asked}");
}

#[test]
fn a_guest_that_has_come_is_not_taken_for_one_that_has_gone() {
    let came = json!({"status": "completed", "socket-address": []});
    assert_eq!(status(&came), "");
    let gone = json!({"status": "completed", "total-time": 900, "ram": {"total": 1}});
    assert_eq!(status(&gone), "completed");
    assert_eq!(status(&json!({"status": "failed"})), "failed");
}
