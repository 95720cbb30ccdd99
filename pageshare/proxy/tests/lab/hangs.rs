//! Ends the program, with the name of the test, when a test hangs: else nobody would ever know which. Of
//! one that is told to end no guest stays.

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::HANGS;

type Tests = HashMap<ThreadId, (String, Instant)>;

/// The tests that run, and since when.
static RUNNING: LazyLock<Mutex<Tests>> = LazyLock::new(|| {
    std::thread::spawn(watch);
    Mutex::default()
});

/// One of them, for as long as its thread lives.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        running().remove(&std::thread::current().id());
    }
}

/// The test that calls this is watched until it ends; each call begins its time anew, so that a
/// benchmark may take as long as its many guests do.
pub fn watched() {
    thread_local! {
        static SELF: Running = const { Running };
    }
    let test = std::thread::current();
    let entry = (test.name().unwrap_or("a thread of a test").to_owned(), Instant::now());
    running().insert(test.id(), entry);
    SELF.with(|_| {});
}

fn running() -> MutexGuard<'static, Tests> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    // A terminal's signals reach the guests too, and `nohup` may have them ignored.
    let mut told = Signals::new([SIGTERM]).expect("it can be caught");
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if told.pending().next().is_some() {
            end();
        }
        // Each of a test's steps may take so long, and it has many; none has needed a tenth.
        let hangs = running().values().find(|(_, since)| since.elapsed() > HANGS * 4).cloned();
        // The lock is given back by now: a test that ends for lack of its guests takes it.
        if let Some((test, since)) = hangs {
            // Past the capture of output.
            let _ = writeln!(std::io::stderr(), "{test} hangs since {:?}", since.elapsed());
            end();
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
