//! One QEMU with the guest.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pageshare::address::Address;
use pageshare::qmp::Qmp;
use pageshare::sources::arrival;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Kept, hangs, initramfs, wait_for};

/// Its memory.
pub const MEMORY: &str = "128M";

/// What its kernel is told.
pub const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable nokaslr";

/// Where a QEMU's guest comes from.
pub enum Incoming<'a> {
    /// The kernel.
    Boot,
    /// A saved state.
    State(&'a Path),
    /// A migration to be awaited later; `-S`, so that it does not run by itself.
    Deferred,
    /// As that, and then it runs by itself.
    DeferredToRun,
    /// Nowhere: `-S`, so that the empty machine does not run.
    Nowhere,
}

/// A QEMU and its guest; killed when dropped.
pub struct Guest {
    child: Kept,
    qmp: Qmp,
    console: BufReader<UnixStream>,
    directory: TempDir,
}

/// Which QEMU, and which machine of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Model {
    qemu: PathBuf,
    machine: &'static str,
    memory: Memory,
    /// Has a virtio-mem device, nothing of which is plugged.
    virtio_mem: bool,
    uuid: Option<&'static str>,
}

/// What the guest's memory is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Memory {
    Anonymous,
    /// A memory file of QEMU's own.
    Memfd,
    /// This file, which both QEMUs map.
    File(PathBuf),
}

impl Model {
    /// Debian's own QEMU.
    pub fn installed() -> Self {
        let qemu = super::required("/usr/bin/qemu-system-x86_64", "qemu-system-x86");
        Self {
            qemu,
            machine: "pc-i440fx-7.2",
            memory: Memory::Anonymous,
            virtio_mem: false,
            uuid: None,
        }
    }

    /// That of the backports, which `setup/qemu-newer` unpacks; nothing where
    /// `PAGESHARE_NO_NEWER_QEMU` says that it cannot be had.
    pub fn newer() -> Option<Self> {
        Self::unpacked("build/qemu-newer", "pc-i440fx-10.0")
    }

    /// The newest of all, that of Debian's testing, with the newest machine that it has: which, changes
    /// with testing. Nothing as for [`Model::newer`].
    pub fn newest() -> Option<Self> {
        Self::unpacked("build/qemu-newer/testing", "pc")
    }

    fn unpacked(directory: &str, machine: &'static str) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
        let qemu = root.join("root/usr/bin/qemu-system-x86_64");
        if !qemu.exists() {
            let reason = format!("there is no QEMU in {directory} (`make setup` unpacks it)");
            super::lacks(&reason, "PAGESHARE_NO_NEWER_QEMU");
            return None;
        }
        Some(Self { qemu, machine, memory: Memory::Anonymous, virtio_mem: false, uuid: None })
    }

    /// The same QEMU with the other one's machine.
    pub fn with_machine_of(self, other: &Self) -> Self {
        Self { machine: other.machine, ..self }
    }

    /// Of the machine with this UUID.
    pub fn with_uuid(self, uuid: &'static str) -> Self {
        Self { uuid: Some(uuid), ..self }
    }

    /// With a virtio-mem device.
    pub fn with_virtio_mem(self) -> Self {
        Self { virtio_mem: true, ..self }
    }

    /// With the guest's memory in a memory file.
    fn in_memfd(self) -> Self {
        Self { memory: Memory::Memfd, ..self }
    }

    /// With this file as the guest's memory.
    pub fn with_memory(self, file: PathBuf) -> Self {
        Self { memory: Memory::File(file), ..self }
    }

    /// The guest's state after boot, saved once for this test program in a file without a name.
    fn booted(&self) -> PathBuf {
        static BOOTED: Mutex<Option<HashMap<Model, File>>> = Mutex::new(None);
        let model = Self { memory: Memory::Anonymous, ..self.clone() };
        let mut booted = BOOTED.lock().unwrap_or_else(PoisonError::into_inner);
        let file = booted.get_or_insert_default().entry(model.clone()).or_insert_with(|| {
            let file = tempfile::tempfile().expect("a scratch file");
            let mut guest = Guest::start(&model, &Incoming::Boot);
            guest.expect("READY");
            guest.save(&path_of(&file));
            file
        });
        path_of(file)
    }
}

/// How other processes open a file that is open here.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

/// The guest's kernel, which `setup/guest-kernel` puts here.
pub fn kernel() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/guest-kernel");
    assert!(path.exists(), "{} is missing: run `make setup`", path.display());
    path
}

impl Guest {
    /// The booted guest, running.
    pub fn running() -> Self {
        Self::running_on(&Model::installed())
    }

    /// The booted guest, running on this QEMU.
    pub fn running_on(model: &Model) -> Self {
        Self::start(model, &Incoming::State(&model.booted()))
    }

    /// A QEMU that awaits a migration.
    pub fn awaiting() -> Self {
        Self::start(&Model::installed(), &Incoming::Deferred)
    }

    /// As [`Guest::running`], its memory being a shared memory file.
    pub fn running_in_memfd() -> Self {
        Self::running_on(&Model::installed().in_memfd())
    }

    /// As [`Guest::awaiting`], its memory being a shared memory file.
    pub fn awaiting_in_memfd() -> Self {
        Self::start(&Model::installed().in_memfd(), &Incoming::Deferred)
    }

    /// Starts a QEMU.
    pub fn start(model: &Model, incoming: &Incoming<'_>) -> Self {
        hangs::watched();
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| directory.path().join(name);
        let mut command = Command::new(&model.qemu);
        let backend = match &model.memory {
            Memory::Anonymous => None,
            Memory::Memfd => Some("memory-backend-memfd".to_owned()),
            Memory::File(path) => Some(format!("memory-backend-file,mem-path={}", path.display())),
        };
        match backend {
            // Under the name that the memory has without, so that the saved state fits.
            Some(backend) => command
                .args(["-M", &format!("{},memory-backend=pc.ram", model.machine), "-object"])
                .arg(format!(
                    "{backend},id=pc.ram,size={MEMORY},share=on,\
                     x-use-canonical-path-for-ramblock-id=off"
                )),
            None => command.args(["-M", model.machine]),
        };
        command
            // An unpacked QEMU has its data beside it, but for the firmware.
            .args(["-L", "/usr/share/seabios"])
            .args(["-accel", "tcg", "-nodefaults", "-name", "debug-threads=on"])
            .args(["-display", "none", "-vga", "none"])
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", at("qmp").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", at("operator").display()))
            .arg("-chardev")
            .arg(format!("socket,id=c,path={},server=on,wait=off", at("console").display()))
            .args(["-serial", "chardev:c"]);
        command.args(model.uuid.iter().flat_map(|uuid| ["-uuid", *uuid]));
        if model.virtio_mem {
            command.args(["-m", &format!("{MEMORY},maxmem=1G")]);
            command.args(["-object", "memory-backend-ram,id=more,size=256M"]);
            command.args(["-device", "virtio-mem-pci,memdev=more"]);
        } else {
            command.args(["-m", MEMORY]);
        }
        match incoming {
            Incoming::Boot => {
                let initrd = at("initrd");
                initramfs::build(&initrd);
                command.arg("-kernel").arg(kernel()).arg("-initrd").arg(initrd);
                command.args(["-append", KERNEL_LINE]);
            }
            Incoming::State(path) => {
                command.arg("-incoming").arg(format!("exec:cat {}", path.display()));
            }
            Incoming::Deferred => {
                command.args(["-S", "-incoming", "defer"]);
            }
            Incoming::DeferredToRun => {
                command.args(["-incoming", "defer"]);
            }
            Incoming::Nowhere => {
                command.arg("-S");
            }
        }
        let log = std::fs::File::create(at("log")).expect("the scratch directory is writable");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("QEMU starts");
        let log = || std::fs::read_to_string(at("log")).unwrap_or_default();
        let console = wait_for(&format!("QEMU's console: {}", log()), || {
            UnixStream::connect(at("console")).ok()
        });
        console.set_read_timeout(Some(super::HANGS)).expect("a connected socket");
        let monitor = Address::Unix(at("qmp"));
        let qmp = wait_for("QEMU's monitor", || {
            Qmp::connect("QEMU's monitor", &monitor, Duration::from_secs(30)).ok()
        });
        let mut guest =
            Self { child: Kept(child), qmp, console: BufReader::new(console), directory };
        if let Incoming::State(_) = incoming {
            wait_for("the saved state to run", || (guest.state() == "running").then_some(()));
        }
        guest
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// QEMU's process id, once its memory may be read: also from a saved state a guest comes by migration.
    pub fn has_run(&mut self) -> u32 {
        wait_for("the guest to have run", || {
            self.checksum();
            arrival(self.pid()).expect("our own child").is_none().then_some(self.pid())
        })
    }

    /// Where its second monitor listens, for the program under test.
    pub fn monitor(&self) -> Address {
        Address::Unix(self.directory.path().join("operator"))
    }

    /// Runs a monitor command.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Value {
        self.qmp.execute(command, &arguments).expect("QEMU obeys")
    }

    /// Runs a monitor command that QEMU may refuse.
    pub fn try_out_of_band(&mut self, command: &str, arguments: Value) -> Option<Value> {
        self.qmp.execute_out_of_band(command, &arguments).ok()
    }

    /// QEMU's run state.
    pub fn state(&mut self) -> String {
        self.qmp.run_state().expect("QEMU answers")
    }

    /// QEMU's run state, or nothing if it has ended or ends while it is asked.
    pub fn state_if_alive(&mut self) -> Option<String> {
        self.qmp.run_state().ok()
    }

    /// Whether QEMU has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// Reads the console up to a line that begins so; returns the rest of the line.
    pub fn expect(&mut self, begin: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.console.read_line(&mut line).expect("the guest answers");
            assert!(length > 0, "the console closed before `{begin}` came");
            if let Some(rest) = line.trim_end().strip_prefix(begin) {
                return rest.to_owned();
            }
        }
    }

    /// Has the guest do something and waits until it says so.
    pub fn command(&mut self, command: &str, answer: &str) -> String {
        writeln!(self.console.get_mut(), "{command}").expect("the guest listens");
        self.expect(answer)
    }

    /// A checksum over its memory's contents, computed by the guest.
    pub fn checksum(&mut self) -> String {
        self.command("sum", "SUM ")
    }

    /// Sets migration capabilities; of `multifd`, two channels beside the main one.
    pub fn capabilities(&mut self, names: &[&str]) {
        let list: Vec<Value> =
            names.iter().map(|name| json!({"capability": name, "state": true})).collect();
        self.execute("migrate-set-capabilities", json!({"capabilities": list}));
        if names.contains(&"multifd") {
            self.execute("migrate-set-parameters", json!({"multifd-channels": 2}));
        }
    }

    /// Migrates as fast as it can from now on.
    pub fn unlimited(&mut self) {
        self.execute("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
    }

    /// Begins to await a migration at `uri`.
    pub fn listen(&mut self, uri: &str) {
        self.execute("migrate-incoming", json!({"uri": uri}));
    }

    /// Begins to migrate to `uri`.
    pub fn migrate(&mut self, uri: &str) {
        self.execute("migrate", json!({"uri": uri}));
    }

    /// `active`, `completed`, `failed`, ...; empty before the first migration.
    pub fn migration_status(&mut self) -> String {
        let info = self.execute("query-migrate", json!({}));
        info["status"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for the end of the migration and returns its status.
    pub fn migration_end(&mut self) -> String {
        wait_for("the migration to end", || {
            let status = self.migration_status();
            matches!(status.as_str(), "completed" | "failed" | "cancelled").then_some(status)
        })
    }

    /// Lets a migrated guest run.
    pub fn resume(&mut self) {
        wait_for("the guest to be loaded", || (self.state() != "inmigrate").then_some(()));
        self.execute("cont", json!({}));
    }

    /// Pauses the guest and saves its state to a file.
    pub fn save(&mut self, path: &Path) {
        self.execute("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
        self.migrate(&format!("exec:cat > {}", path.display()));
        assert_eq!(self.migration_end(), "completed");
    }
}

/// Free TCP ports of the loopback interface, below those that the kernel gives to whoever connects: one of
/// those may be somebody's before anyone listens at it.
pub fn ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut candidates = std::iter::repeat_with(|| {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 64;
        10_000 + u16::try_from(nth % 20_000).expect("small")
    });
    std::array::from_fn(|_| {
        let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        candidates.find(free).expect("a free port")
    })
}
