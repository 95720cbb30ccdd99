//! Ends the program, with the name of the test, when a test hangs: else nobody would ever know which.

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::HANGS;

/// The tests that run, and since when.
static RUNNING: LazyLock<Mutex<HashMap<ThreadId, (String, Instant)>>> = LazyLock::new(|| {
    std::thread::spawn(watch);
    Mutex::default()
});

/// One of them, for as long as its thread lives.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let id = std::thread::current().id();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// The test that calls this is watched until it ends.
pub fn watched() {
    thread_local! {
        static SELF: Running = {
            let test = std::thread::current();
            let entry = (test.name().unwrap_or("a thread of a test").to_owned(), Instant::now());
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(test.id(), entry);
            Running
        };
    }
    SELF.with(|_| {});
}

fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for (test, since) in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).values() {
            // Each of a test's steps may take so long, and it has many; none has needed a tenth.
            if since.elapsed() > HANGS * 4 {
                // Past the capture of output.
                let _ = writeln!(std::io::stderr(), "{test} hangs since {:?}", since.elapsed());
                end();
            }
        }
    }
}

/// Ends the program, and whatever it has started.
fn end() -> ! {
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        // One may have ended by itself.
        let _ = Command::new("sh").args(["-c", &format!("kill -KILL {children}")]).status();
    }
    std::process::exit(1);
}
