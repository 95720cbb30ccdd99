//! A small real guest in real QEMUs, under TCG, and the two proxies between them.
//!
//! The guest is Debian's cloud kernel with an initramfs of busybox and a shell script. It is
//! booted once for each test program and saved; every QEMU then starts from that state.

#![allow(dead_code, unused_imports, unreachable_pub)] // Each test program uses its own part of this.

mod crowd;
mod distance;
mod guest;
mod hangs;
pub mod host;
mod initramfs;
mod kept;
pub mod pki;
mod proxies;
mod stage;
pub mod stand_in;
mod tap;
mod tunnel;
mod xorshift;

pub use crowd::{Crowd, Crowded};
pub use guest::{Guest, Incoming, Model, ports};
pub use kept::Kept;
pub use proxies::{Pair, Proxy, binary};
pub use stage::{Fate, Stage, end};
pub use tap::Tap;
pub use tunnel::Tunnel;
pub use xorshift::Xorshift;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pageshare::scope::Scope;
use serde_json::Value;

/// A limit that only a hang exceeds, however busy the machine is.
pub const HANGS: Duration = Duration::from_secs(180);

/// Waits until `done` says something, or fails with `what` after [`HANGS`].
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < HANGS {
        if let Some(result) = done() {
            return result;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain for {what}");
}

/// Sends a signal to a process.
pub fn signal(name: &str, pid: u32) {
    let kill = format!("kill -{name} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh starts").success());
}

/// What starts the program under test so that it ignores a hangup, as `nohup` does.
pub fn without_hangups() -> Command {
    by_env("--ignore-signal=HUP")
}

/// What starts the program under test as at a terminal, also where the tests run behind a shell's `&`,
/// which has everything ignore Ctrl-C.
pub fn interruptible() -> Command {
    by_env("--default-signal=INT")
}

fn by_env(option: &str) -> Command {
    let mut program = Command::new("env");
    program.args([option, binary()]);
    program
}

/// Makes a scope; returns its file in `directory`.
pub fn scope(directory: &Path, name: &str) -> String {
    let file = directory.join(format!("{name}.json"));
    Scope::generate(name).and_then(|scope| scope.save(&file)).expect("a new scope");
    file.to_str().expect("a plain path").to_owned()
}

/// A count in a migration's record.
pub fn count(record: &Value, name: &str) -> u64 {
    record[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {record}"))
}

/// What a test needs cannot be had here. The test fails, unless this environment variable says that
/// it is known; then the test's output says what was not done, past the capture of output.
pub fn lacks(reason: &str, variable: &str) {
    let known = std::env::var_os(variable).is_some();
    assert!(known, "{reason}; where that cannot be changed, set {variable}=1 to go without");
    let _ = writeln!(std::io::stderr(), "skipped, as {variable} allows: {reason}");
}

/// A file that a prerequisite package installs.
pub fn required(path: &str, package: &str) -> PathBuf {
    assert!(
        Path::new(path).exists(),
        "{path} is missing: install {package} (see setup/apt/pageshare.txt)"
    );
    PathBuf::from(path)
}
