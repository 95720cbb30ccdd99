//! The units in `pageshare/systemd`: systemd takes them, and this program takes what they say.

use crate::lab;

use std::path::{Path, PathBuf};
use std::process::Command;

const SYSTEM: &str = "/usr/lib/systemd/system";

fn units() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd");
    let entries = std::fs::read_dir(directory).expect("the units");
    entries.map(|entry| entry.expect("readable").path()).collect()
}

/// The unit's command with the values that its first comment gives as an example.
fn command(unit: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(unit).expect("a unit");
    let command = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/pageshare "))
        .expect("a unit that starts pageshare");
    let examples = text.lines().filter_map(|line| line.strip_prefix("#   ")?.split_once('='));
    let mut command = command.to_owned();
    for (name, value) in examples {
        command = command.replace(&format!("${{{name}}}"), value);
        command = command.replace(&format!("${name}"), value);
    }
    command.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn systemd_takes_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        let reason = "systemd-analyze is not installed (package systemd)";
        return lab::lacks(reason, "PAGESHARE_NO_SYSTEMD");
    }
    let root = tempfile::tempdir().expect("a scratch directory");
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    for directory in ["/usr/local/bin", "/usr/lib/systemd", "/etc/systemd/system"] {
        std::fs::create_dir_all(at(directory)).expect("a fresh directory");
    }
    let binary = env!("CARGO_BIN_EXE_pageshare");
    std::fs::copy(binary, at("/usr/local/bin/pageshare")).expect("room for a copy");
    // The units that every unit depends on.
    let copied = Command::new("cp").args(["-a", SYSTEM]).arg(at(SYSTEM)).status();
    assert!(copied.expect("cp starts").success());
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--generators=no"]);
    verify.arg(format!("--root={}", root.path().display()));
    for unit in units() {
        let name = unit.file_name().and_then(|name| name.to_str()).expect("a plain name");
        std::fs::copy(&unit, at("/etc/systemd/system").join(name)).expect("room for a copy");
        verify.arg(name.replace('@', "@web1"));
    }
    let output = verify.output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_unit_may_do_little_but_what_it_is_for() {
    // In tenths, as `--threshold` takes it. What is left: root and the right to trace, for others'
    // memory, and the receiver's network.
    for (name, most) in [("pageshare-index.service", "15"), ("pageshare-receive@.service", "25")] {
        let unit = units().into_iter().find(|unit| unit.ends_with(name)).expect("the unit");
        let analysed = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold", most])
            .arg(unit)
            .output()
            .expect("systemd-analyze is a part of Debian's systemd");
        let said = String::from_utf8_lossy(&analysed.stdout);
        assert!(analysed.status.success(), "{said}");
    }
}

#[test]
fn this_program_takes_what_the_units_say() {
    for unit in units() {
        let words = command(&unit);
        assert!(!words.iter().any(|word| word.contains('$')), "no example for all of {words:?}");
        // Options are read before the help is printed.
        let output = Command::new(env!("CARGO_BIN_EXE_pageshare"))
            .args(&words)
            .arg("--help")
            .output()
            .expect("the program under test starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
    }
}
