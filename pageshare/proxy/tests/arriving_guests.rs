//! The memory of a process to which a guest may be arriving is nobody's source: to read what is missing
//! would put zeros there for good, or wait until it comes.

use crate::lab;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use lab::{Guest, Incoming, Kept, Model, Stage, end};
use pageshare::scope::Scope;
use pageshare::sources::{Arrival, Library, Scanned, SourceSpec, arrival, rescan, scan, touched};
use pageshare_index::{HashKey, PAGE_SIZE};
use serde_json::json;

use crate::migrate_postcopy::{in_postcopy, send_the_rest};

/// More than this a booted guest has, and a QEMU without a guest has not.
const MANY: usize = 2000;

fn key() -> HashKey {
    Scope::generate("tenant").expect("a new scope").key.hash_key()
}

/// This process, and whatever QEMU has its guest's UUID.
fn named(pid: u32, uuid: &str) -> [SourceSpec; 2] {
    [format!("pid:{pid}"), format!("qemu:uuid={uuid}")].map(|text| text.parse().expect("a source"))
}

/// No other test's, nor another run's.
fn uuid(number: u32) -> &'static str {
    String::leak(format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id()))
}

/// What is read of each of them, after what was read before.
fn again(sources: &[SourceSpec], before: &[Scanned], key: &HashKey) -> Vec<Scanned> {
    sources
        .iter()
        .zip(before)
        .map(|(source, before)| {
            rescan(&before.library, std::slice::from_ref(source), key, 1).expect("it lives")
        })
        .collect()
}

fn nothing_is_read(scanned: &[Scanned]) -> bool {
    scanned.iter().all(|it| it.bytes == 0 && it.library.pages() == 0)
}

fn wait_for_a_source(guest: &mut Guest, sources: &[SourceSpec], before: &[Scanned], key: &HashKey) {
    lab::wait_for("the guest to be a source", || {
        guest.checksum();
        let found = again(sources, before, key);
        found.iter().all(|it| it.library.pages() > MANY).then_some(())
    });
}

#[test]
fn a_guest_that_comes_by_migration_is_a_source_once_it_has_run_here() {
    let (key, uuid) = (key(), uuid(1));
    let mut source = Guest::running();
    let mut destination = Guest::start(&Model::installed().with_uuid(uuid), &Incoming::Deferred);
    let sources = named(destination.pid(), uuid);
    let first = sources
        .clone()
        .map(|source| scan(&[source], &key, 1).expect("a guest that may be arriving is no error"));
    assert!(nothing_is_read(&first), "it awaits its guest");

    source.execute("migrate-set-parameters", json!({"max-bandwidth": 4 << 20}));
    let directory = tempfile::tempdir().expect("a scratch directory");
    let straight = format!("unix:{}", directory.path().join("straight").display());
    destination.listen(&straight);
    source.migrate(&straight);
    lab::wait_for("pages to arrive", || {
        let there = touched(destination.pid()).expect("our own child");
        (there.iter().map(|run| run.pages as usize).sum::<usize>() > MANY).then_some(())
    });
    assert!(nothing_is_read(&again(&sources, &first, &key)), "some of it is there");
    source.unlimited();
    assert_eq!(source.migration_end(), "completed");
    assert!(nothing_is_read(&again(&sources, &first, &key)), "it has not run");
    destination.resume();
    wait_for_a_source(&mut destination, &sources, &first, &key);
}

#[test]
fn a_guest_that_runs_in_postcopy_is_a_source_once_all_of_it_is_there() {
    let (key, mut stage) = (key(), Stage::set());
    let pid = stage.destination.pid();
    let driver = in_postcopy(&mut stage, &[]);
    lab::wait_for("the guest to have run", || {
        stage.destination.command("ping", "PONG");
        (arrival(pid).expect("our own child") != Some(Arrival::HasNotRun)).then_some(())
    });
    assert_eq!(stage.source.migration_status(), "postcopy-active");
    assert_eq!(arrival(pid).expect("our own child"), Some(Arrival::Postcopy));
    let sources = [format!("pid:{pid}").parse().expect("a source")];
    let first = [scan(&sources, &key, 1).expect("a guest that may be arriving is no error")];
    assert!(nothing_is_read(&first));
    send_the_rest(&mut stage);
    let (output, said) = end(driver);
    assert!(output.status.success(), "{said}");
    wait_for_a_source(&mut stage.destination, &sources, &first, &key);
}

/// Memory full of one byte, and a userfaultfd while it is told so.
const FAULTS: &str = r#"
import ctypes, mmap, os, platform, sys
memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(b"\xa5" * (8 << 20))
number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
print("full", flush=True)
for line in sys.stdin:
    if line == "open\n":
        file = ctypes.CDLL(None, use_errno=True).syscall(number, os.O_CLOEXEC | 1)
        assert file >= 0, os.strerror(ctypes.get_errno())
    else:
        os.close(file)
    print("done", flush=True)
"#;

#[test]
fn of_a_process_whose_faults_are_served_an_index_hands_out_nothing() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (key, page, index) = (key(), [0xa5; PAGE_SIZE], directory.path().join("index"));
    let python = lab::required("/usr/bin/python3", "python3");
    let python = Command::new(python)
        .args(["-c", FAULTS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut python = Kept(python);
    let mut said = BufReader::new(python.stdout.take().expect("it is piped")).lines();
    let mut orders = python.stdin.take().expect("it is piped");
    let mut obeys = |order: &str| {
        orders.write_all(order.as_bytes()).expect("it lives");
        assert!(said.next().is_some_and(|line| line.is_ok()), "it has ended: {order}");
    };
    let source = format!("pid:{}", python.id()).parse::<SourceSpec>().expect("a source");
    let scanned = || scan(std::slice::from_ref(&source), &key, 1).expect("our own child");
    let has = |library: &Library| library.copy(key.hash(&page), &mut [0; PAGE_SIZE]);
    let loaded = || Library::load(&index, key.clone()).expect("what was just written");

    obeys("");
    let before = scanned();
    assert!(has(&before.library));
    std::fs::write(&index, before.library.encode()).expect("the scratch directory is writable");
    assert!(has(&loaded()));
    obeys("open\n");
    assert!(nothing_is_read(&[scanned()]));
    assert!(!has(&loaded()), "the index names it");
    obeys("close\n");
    assert!(has(&scanned().library) && has(&loaded()));
}

/// A QEMU that awaits a guest.
fn awaiting(more: &[&str]) -> Kept {
    let program = lab::required("/usr/bin/qemu-system-x86_64", "qemu-system-x86");
    let qemu = Command::new(program)
        .args(["-S", "-incoming", "defer", "-m", "32M", "-accel", "tcg", "-nodefaults"])
        .args(["-display", "none", "-vga", "none"])
        .args(more)
        .stdin(Stdio::null())
        .spawn()
        .expect("QEMU starts");
    let qemu = Kept(qemu);
    lab::wait_for("QEMU to have its threads", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", qemu.id()));
        (threads.expect("our own child").count() > 2).then_some(())
    });
    qemu
}

/// What `pageshare index` says until it has looked at these sources three times.
fn said_by_an_index(directory: &Path, sources: &[SourceSpec]) -> String {
    let index = Command::new(lab::binary())
        .args(["index", "--every", "1", "--scope", &lab::scope(directory, "test"), "--out"])
        .arg(directory.join("index"))
        .args(sources.iter().map(|source| format!("--source={source}")))
        .stderr(Stdio::piped())
        .spawn()
        .expect("pageshare starts");
    let mut index = Kept(index);
    let mut said = String::new();
    let mut lines = BufReader::new(index.stderr.take().expect("it is piped")).lines();
    while said.matches(" pages, ").count() < 3 {
        let line = lines.next().unwrap_or_else(|| panic!("it has ended: {said}"));
        said += &(line.expect("words") + "\n");
    }
    said
}

#[test]
fn a_guest_that_is_left_out_is_spoken_of_once_if_somebody_can_do_something_or_has_named_it() {
    for (number, words, of_all, of_the_named) in [
        (2, &[][..], 2, "its threads do not tell whether the guest has run; start it with"),
        (3, &["-name", "debug-threads=on"][..], 1, "it has not run here yet"),
    ] {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let uuid = uuid(number);
        let qemu = awaiting(&[&["-uuid", uuid], words].concat());
        let said = said_by_an_index(directory.path(), &named(qemu.id(), uuid));
        assert_eq!(said.matches("is left out").count(), of_all, "{said}");
        let pid = format!("memory of process {} is left out", qemu.id());
        let line = said.lines().find(|line| line.contains(&pid));
        assert!(line.is_some_and(|line| line.contains(of_the_named)), "{said}");
        assert_eq!(said.matches("debug-threads=on").count(), 2 * usize::from(words.is_empty()));
    }
}

#[test]
fn what_a_guest_would_cost_is_not_looked_for_while_it_may_be_arriving() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "test");
    let qemu = awaiting(&["-name", "debug-threads=on"]);
    let pid = qemu.id().to_string();
    let index = directory.path().join("index").display().to_string();
    let (source, there) = (format!("--source=pid:{pid}"), format!("--there=here={index}"));
    let pageshare = |words: &[&str]| {
        let output = Command::new(lab::binary()).args(words).output().expect("pageshare starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (indexed, said) = pageshare(&["index", "--scope", &scope, &source, "--out", &index]);
    assert!(indexed, "{said}");
    for words in [
        &["plan", "--scope", &scope, &source, &there][..],
        &["estimate", &pid, "--to", "tcp:127.0.0.1:1", "--insecure"],
    ] {
        let (done, said) = pageshare(words);
        assert!(!done && said.contains("may be arriving"), "{words:?}: {said}");
    }
}
