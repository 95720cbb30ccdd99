//! One QEMU with the guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use pageshare::address::Address;
use pageshare::qmp::Qmp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{initramfs, wait_for};

/// What provides the guest's kernel.
pub const KERNEL_HINT: &str = "linux-image-cloud-amd64";

/// Its memory.
pub const MEMORY: &str = "128M";

/// The machine with its memory in a memfd, under the name that it has without.
const MEMFD: [&str; 4] = [
    "-object",
    "memory-backend-memfd,id=pc.ram,size=128M,share=on,x-use-canonical-path-for-ramblock-id=off",
    "-M",
    "pc-i440fx-7.2,memory-backend=pc.ram",
];

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
}

/// A QEMU and its guest; killed when dropped.
pub struct Guest {
    child: Child,
    qmp: Qmp,
    console: BufReader<UnixStream>,
    directory: TempDir,
}

/// The guest's state after boot, saved once for this test program.
pub fn booted() -> &'static Path {
    static BOOTED: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BOOTED.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("booted");
        let mut guest = Guest::start(&Incoming::Boot);
        guest.expect("READY");
        guest.save(&path);
        (directory, path)
    });
    path
}

/// The guest's kernel.
pub fn kernel() -> PathBuf {
    let entries = std::fs::read_dir("/boot").expect("/boot is readable");
    let mut kernels: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("vmlinuz-") && name.contains("cloud")
        })
        .collect();
    kernels.sort();
    kernels.pop().unwrap_or_else(|| {
        panic!("no /boot/vmlinuz-*cloud*: install {KERNEL_HINT} (see setup/apt/pageshare.txt)")
    })
}

impl Guest {
    /// The booted guest, running.
    pub fn running() -> Self {
        Self::start(&Incoming::State(booted()))
    }

    /// A QEMU that awaits a migration.
    pub fn awaiting() -> Self {
        Self::start(&Incoming::Deferred)
    }

    /// As [`Guest::running`], its memory being a shared memory file.
    pub fn running_in_memfd() -> Self {
        Self::start_with(&Incoming::State(booted()), &MEMFD)
    }

    /// As [`Guest::awaiting`], its memory being a shared memory file.
    pub fn awaiting_in_memfd() -> Self {
        Self::start_with(&Incoming::Deferred, &MEMFD)
    }

    /// Starts a QEMU.
    pub fn start(incoming: &Incoming<'_>) -> Self {
        Self::start_with(incoming, &["-M", "pc-i440fx-7.2"])
    }

    fn start_with(incoming: &Incoming<'_>, machine: &[&str]) -> Self {
        let qemu = super::required("/usr/bin/qemu-system-x86_64", "qemu-system-x86");
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| directory.path().join(name);
        let mut command = Command::new(qemu);
        command
            .args(machine)
            .args(["-accel", "tcg", "-m", MEMORY, "-nodefaults"])
            .args(["-display", "none", "-vga", "none"])
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", at("qmp").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", at("operator").display()))
            .arg("-chardev")
            .arg(format!("socket,id=c,path={},server=on,wait=off", at("console").display()))
            .args(["-serial", "chardev:c"]);
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
        console.set_read_timeout(Some(Duration::from_secs(60))).expect("a connected socket");
        let qmp = wait_for("QEMU's monitor", || Qmp::connect(&Address::Unix(at("qmp"))).ok());
        let mut guest = Self { child, qmp, console: BufReader::new(console), directory };
        if let Incoming::State(_) = incoming {
            wait_for("the saved state to run", || (guest.state() == "running").then_some(()));
        }
        guest
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its second monitor listens, for the program under test.
    pub fn monitor(&self) -> Address {
        Address::Unix(self.directory.path().join("operator"))
    }

    /// Runs a monitor command.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Value {
        self.qmp.execute(command, &arguments).expect("QEMU obeys")
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

    /// Sets migration capabilities.
    pub fn capabilities(&mut self, names: &[&str]) {
        let list: Vec<Value> =
            names.iter().map(|name| json!({"capability": name, "state": true})).collect();
        self.execute("migrate-set-capabilities", json!({"capabilities": list}));
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

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Free TCP ports of the loopback interface.
pub fn ports<const N: usize>() -> [u16; N] {
    let listeners: Vec<_> = (0..N)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback interface"))
        .collect();
    std::array::from_fn(|at| listeners[at].local_addr().expect("a bound socket").port())
}
