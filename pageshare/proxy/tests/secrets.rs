//! What is secret, a scope's key and a host's TLS key, is in nothing that a proxy leaves: logs at
//! their loudest, records, its command line, its folder, a core dump.

use crate::lab;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::Proxy;
use lab::pki::certificates;
use lab::stand_in::path;

const SIGABRT: i32 = 6;

/// What must not be found: the ways in which programs write a key down.
struct Secret {
    name: &'static str,
    forms: Vec<Vec<u8>>,
}

impl Secret {
    fn of_scope(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a scope");
        let scope: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let hex = scope["key"].as_str().expect("a key").to_owned();
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a digit"))
            .collect();
        let list = format!("{bytes:?}");
        let forms = vec![hex.clone().into_bytes(), hex.to_uppercase().into_bytes()];
        Self {
            name: "the scope's key",
            forms: [forms, vec![list.trim_matches(['[', ']']).as_bytes().to_vec(), bytes]].concat(),
        }
    }

    fn of_tls(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a key");
        let line = text.lines().find(|line| !line.starts_with('-')).expect("a key in PEM");
        Self { name: "the TLS key", forms: vec![line.as_bytes().to_vec()] }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        let found = |form: &Vec<u8>| bytes.windows(form.len()).any(|window| window == form);
        self.forms.iter().any(found)
    }
}

fn contents(directory: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            found.extend(std::fs::read(entry.path()).expect("readable"));
        }
    }
    found
}

#[test]
fn no_log_record_or_command_line_has_a_key() {
    let private = tempfile::tempdir().expect("a scratch directory");
    certificates(private.path(), "destination.example", "source.example");
    let scope = lab::scope(private.path(), "tenant");
    let secrets = [
        Secret::of_scope(Path::new(&scope)),
        Secret::of_tls(&private.path().join("server-key.pem")),
        Secret::of_tls(&private.path().join("client-key.pem")),
    ];
    let given = ["--scope", scope.as_str(), "--tls-dir", private.path().to_str().expect("a path")];
    let folder = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let (to, from, wire) = (at("out"), at("in"), at("wire"));
    let loud = |role: &str, words: &[&str]| {
        let mut program = Command::new("env");
        program.args(["PAGESHARE_LOG=trace", lab::binary()]);
        let words: Vec<String> =
            words.iter().chain(&given).chain(&["--once"]).map(|word| (*word).into()).collect();
        Proxy::spawn(program, folder.path(), role, &words)
    };
    let mut receive =
        loud("receive", &["--listen", &wire, "--qemu", &from, "--peer", "source.example"]);
    let mut send =
        loud("send", &["--listen", &to, "--to", &wire, "--tls-name", "destination.example"]);
    let told: Vec<u8> = [send.pid(), receive.pid()]
        .iter()
        .flat_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs"))
        .collect();
    let destination = UnixListener::bind(path(&from)).expect("a fresh socket");
    let mut source = UnixStream::connect(path(&to)).expect("the proxy listens");
    source.write_all(b"memory").expect("open");
    source.shutdown(Shutdown::Write).expect("open");
    let mut arrived = Vec::new();
    let (mut end, _) = destination.accept().expect("the receiver connects");
    end.read_to_end(&mut arrived).expect("a stream");
    drop(end);
    let records = format!("{}{}", send.record(), receive.record());
    let logs = format!("{}{}", send.log(), receive.log());
    assert_eq!(arrived, b"memory", "{logs}");
    assert!(logs.contains("TRACE"), "the logs are at their loudest: {logs}");
    let left = contents(folder.path());
    for secret in &secrets {
        for (where_, bytes) in [
            ("the logs", logs.as_bytes()),
            ("the records", records.as_bytes()),
            ("the command lines", &told),
            ("the folder", &left),
        ] {
            assert!(!secret.is_in(bytes), "{} is in {where_}", secret.name);
        }
    }
}

/// A program in a folder where it may leave a core of any size.
fn with_cores(program: &str, folder: &Path) -> Command {
    let mut command = Command::new("prlimit");
    command.args(["--core=unlimited", program]);
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Aborts a program once it is `ready`; returns whether it left a core, as the kernel says.
fn aborts_with_a_core(mut command: Command, ready: impl Fn(u32) -> bool) -> bool {
    let mut child = command.spawn().expect("it starts");
    lab::wait_for("the program", || ready(child.id()).then_some(()));
    lab::signal("ABRT", child.id());
    let status = child.wait().expect("a child");
    assert_eq!(status.signal(), Some(SIGABRT));
    status.core_dumped()
}

#[test]
fn an_abort_leaves_no_core_that_would_hold_a_key() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let mut other = with_cores("sleep", folder.path());
    other.arg("60");
    let is = |pid: u32, name: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    if !aborts_with_a_core(other, |pid| is(pid, "sleep")) {
        return lab::lacks("no program leaves a core here", "PAGESHARE_WITHOUT_CORES");
    }
    let scope = lab::scope(folder.path(), "tenant");
    let listening = folder.path().join("wire");
    let wire = format!("unix:{}", listening.display());
    let qemu = format!("unix:{}", folder.path().join("qemu").display());
    let mut receive = with_cores(lab::binary(), folder.path());
    receive.args(["receive", "--insecure", "--listen", &wire, "--qemu", &qemu, "--scope", &scope]);
    std::fs::remove_file(folder.path().join("core")).unwrap_or_default();
    assert!(!aborts_with_a_core(receive, |_| listening.exists()), "pageshare left a core");
    std::fs::remove_file(&scope).expect("it was made");
    let left = contents(folder.path());
    assert!(left.is_empty(), "{} bytes were left", left.len());
}
