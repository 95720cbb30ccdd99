//! Records the golden streams in `testdata/streams`: small guests, migrated between two real
//! QEMUs, with every connection of the source written to a file on its way. Each is recorded with
//! the installed QEMU and with the newer ones that `setup/qemu-newer` has unpacked. Streams of a version
//! that none of them has any more stay as they are.
//!
//! ```text
//! cargo run -p pageshare --example record-streams [DIRECTORY] [VERSION]
//! ```

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pageshare::address::Address;
use pageshare::inspect::inspect;
use pageshare::qmp::Qmp;
use serde_json::{Value, json};

/// A boot sector that counts in memory for ever: `mov ax,800; mov ds,ax; inc word [0]; jmp $-4`.
const COUNTING: [u8; 11] = [0xb8, 0x00, 0x08, 0x8e, 0xd8, 0xff, 0x06, 0x00, 0x00, 0xeb, 0xfa];

/// The installed one, and the newer ones.
const QEMUS: [&str; 3] = [
    "/usr/bin/qemu-system-x86_64",
    "build/qemu-newer/root/usr/bin/qemu-system-x86_64",
    "build/qemu-newer/testing/root/usr/bin/qemu-system-x86_64",
];

struct Case {
    name: &'static str,
    capabilities: &'static [&'static str],
    parameters: fn() -> Value,
    /// Bytes a second; slow enough for a second round where the case needs one.
    bandwidth: u64,
}

static CASES: [Case; 5] = [
    Case {
        name: "precopy",
        capabilities: &["return-path"],
        parameters: || json!({}),
        bandwidth: 1 << 40,
    },
    Case {
        name: "xbzrle",
        capabilities: &["return-path", "xbzrle"],
        parameters: || json!({"xbzrle-cache-size": 1 << 22, "downtime-limit": 1}),
        bandwidth: 1 << 20,
    },
    Case {
        name: "multifd",
        capabilities: &["return-path", "multifd"],
        parameters: || json!({"multifd-channels": 2}),
        bandwidth: 1 << 40,
    },
    Case {
        name: "ignore-shared",
        capabilities: &["return-path", IGNORE_SHARED],
        parameters: || json!({}),
        bandwidth: 1 << 40,
    },
    Case {
        name: "postcopy",
        capabilities: &["return-path", POSTCOPY],
        parameters: || json!({}),
        bandwidth: 100 << 10,
    },
];

/// What both QEMUs map does not travel.
const IGNORE_SHARED: &str = "x-ignore-shared";
/// The guest goes first.
const POSTCOPY: &str = "postcopy-ram";

fn main() {
    let target = std::env::args().nth(1).unwrap_or_else(|| "testdata/streams".to_owned());
    let target = PathBuf::from(target);
    std::fs::create_dir_all(&target).expect("the directory is writable");
    let wanted = std::env::args().nth(2);
    let known = target.join("streams.json");
    let mut contents: BTreeMap<String, Value> = std::fs::read_to_string(&known)
        .map(|text| serde_json::from_str(&text).expect("what an earlier run has written"))
        .unwrap_or_default();
    let qemus = QEMUS.map(|qemu| (version(qemu), qemu));
    let qemus = qemus.iter().filter(|(version, _)| wanted.as_ref().is_none_or(|it| it == version));
    for ((version, qemu), case) in qemus.flat_map(|it| CASES.iter().map(move |case| (it, case))) {
        // Whether a page is sent twice, so that there is a delta, is a matter of moments.
        let (streams, _) = (0..20)
            .map(|_| record(case, Path::new(qemu), version))
            .find(|(_, deltas)| case.name != "xbzrle" || *deltas > 0)
            .expect("a page is sent twice in one of so many migrations");
        for (name, stream) in streams {
            let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
            std::fs::write(scratch.path(), &stream).expect("a scratch file");
            let inspection = inspect(scratch.path()).expect("it was just written");
            contents.insert(name.clone(), json!(inspection));
            let small = zstd::bulk::compress(&stream, 19).expect("zstd has memory");
            std::fs::write(target.join(format!("{name}.zst")), small).expect("writable");
        }
    }
    let text = serde_json::to_string_pretty(&contents).expect("plain values");
    std::fs::write(known, text + "\n").expect("writable");
}

/// The version of a QEMU, as its machine types are named: `10.0`.
fn version(qemu: &str) -> String {
    let output = Command::new(qemu).arg("--version").output();
    let output = output.expect("QEMU is installed, and setup/qemu-newer has run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.split("version ").nth(1).expect("QEMU says its version");
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Every channel of one migration, by name, and how many bytes of deltas QEMU sent.
fn record(case: &Case, program: &Path, version: &str) -> (Vec<(String, Vec<u8>)>, u64) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let mut floppy = vec![0; 512];
    floppy[..COUNTING.len()].copy_from_slice(&COUNTING);
    floppy[510..].copy_from_slice(&[0x55, 0xaa]);
    floppy.resize(1_474_560, 0);
    std::fs::write(at("floppy"), floppy).expect("writable");

    let machine = format!("pc-i440fx-{version}");
    let mut machine = vec!["-M".to_owned(), machine];
    if case.capabilities.contains(&IGNORE_SHARED) {
        let memory = at("memory");
        machine[1].push_str(",memory-backend=pc.ram");
        machine.push("-object".to_owned());
        machine.push(format!(
            "memory-backend-file,id=pc.ram,size=2M,share=on,mem-path={}",
            memory.display()
        ));
    }
    let start = |monitor: &str, incoming| {
        let mut command = Command::new(program);
        command.args(&machine);
        Qemu::start(command, &at(monitor), &at("floppy"), incoming)
    };
    let (mut source, mut destination) = (start("a", false), start("b", true));
    for qemu in [&mut source, &mut destination] {
        let list: Vec<Value> = case
            .capabilities
            .iter()
            .map(|name| json!({"capability": name, "state": true}))
            .collect();
        qemu.tell("migrate-set-capabilities", json!({"capabilities": list}));
        let mut parameters = (case.parameters)();
        parameters["max-bandwidth"] = case.bandwidth.into();
        qemu.tell("migrate-set-parameters", parameters);
    }
    source.wait_until_it_counts();
    let listener = UnixListener::bind(at("tee")).expect("a fresh path");
    destination.tell("migrate-incoming", json!({"uri": format!("unix:{}", at("in").display())}));
    source.tell("migrate", json!({"uri": format!("unix:{}", at("tee").display())}));
    let channels = if case.capabilities.contains(&"multifd") { 3 } else { 1 };
    let tees: Vec<_> = (0..channels)
        .map(|_| {
            let (from, _) = listener.accept().expect("QEMU connects");
            let to = UnixStream::connect(at("in")).expect("QEMU listens");
            std::thread::spawn(move || tee(from, to))
        })
        .collect();
    if case.capabilities.contains(&POSTCOPY) {
        let begun = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let info = source.tell("query-migrate", json!({}));
            info["ram"]["transferred"].as_u64() > Some(50_000)
        });
        assert!(begun, "no byte flows");
        source.tell("migrate-start-postcopy", json!({}));
    }
    let deltas = loop {
        let info = source.tell("query-migrate", json!({}));
        match info["status"].as_str() {
            Some("completed") => break info["xbzrle-cache"]["bytes"].as_u64().unwrap_or_default(),
            Some("failed") => panic!("the migration failed: {info}"),
            _ => {}
        }
        // Slow cases end when the guest's few pages fit the downtime after all.
        if info["ram"]["dirty-sync-count"].as_u64() > Some(8) {
            source.tell("migrate-set-parameters", json!({"downtime-limit": 2000}));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    drop((source, destination));
    let streams = tees
        .into_iter()
        .enumerate()
        .map(|(channel, tee)| {
            let name = match channel {
                0 => format!("qemu-{version}-{}", case.name),
                _ => format!("qemu-{version}-{}-channel-{channel}", case.name),
            };
            (name, tee.join().expect("the tee ends with its connections"))
        })
        .collect();
    (streams, deltas)
}

/// Passes both directions on and returns what went forward.
fn tee(mut from: UnixStream, mut to: UnixStream) -> Vec<u8> {
    let (mut back_from, mut back_to) =
        (to.try_clone().expect("a socket"), from.try_clone().expect("a socket"));
    let back = std::thread::spawn(move || {
        // Both ends close when their QEMU does.
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Write);
    });
    let (mut stream, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        stream.extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = back.join();
    stream
}

struct Qemu {
    child: Child,
    qmp: Qmp,
}

impl Qemu {
    fn start(mut command: Command, monitor: &Path, floppy: &Path, incoming: bool) -> Self {
        command
            // An unpacked QEMU has its data beside it, but for the firmware.
            .args(["-L", "/usr/share/seabios", "-accel", "tcg", "-m", "2M", "-nodefaults"])
            .args(["-display", "none", "-vga", "none", "-boot", "a"])
            .arg("-drive")
            .arg(format!("if=floppy,format=raw,readonly=on,file={}", floppy.display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .stdin(Stdio::null());
        if incoming {
            command.args(["-S", "-incoming", "defer"]);
        }
        let child = command.spawn().expect("it has just said its version");
        let address = Address::Unix(monitor.to_owned());
        let connected = (0..600).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Qmp::connect("QEMU's monitor", &address, Duration::from_secs(30)).ok()
        });
        Self { child, qmp: connected.expect("QEMU's monitor comes up") }
    }

    /// Waits until the boot sector runs.
    fn wait_until_it_counts(&mut self) {
        let look = json!({"command-line": "xp /1hx 0x8000"});
        let counts = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let shown = self.tell("human-monitor-command", look.clone());
            shown.as_str().is_some_and(|shown| !shown.contains("0x0000\r"))
        });
        assert!(counts, "the boot sector does not run");
    }

    fn tell(&mut self, command: &str, arguments: Value) -> Value {
        self.qmp.execute(command, &arguments).expect("QEMU obeys")
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
