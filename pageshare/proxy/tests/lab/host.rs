//! Two hosts with a libvirt each, on this machine: namespaces, and an overlay of the root file
//! system (`libvirt-host` sets them up).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{guest, initramfs, wait_for};

/// Where guests and proxies have their sockets, in every host.
pub const SOCKETS: &str = "/run/pageshare";

/// Why libvirt cannot be had here, if it cannot.
pub fn missing() -> Option<String> {
    if !Path::new("/usr/sbin/libvirtd").exists() || !Path::new("/usr/bin/virsh").exists() {
        return Some("libvirt-daemon or libvirt-clients is not installed".into());
    }
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "--net", "--uts", "--pid", "--fork", "mount", "--make-rprivate", "/"]);
    match probe.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "this user may make no namespaces: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// One host; everything in it ends when it is dropped.
pub struct Host {
    /// Its name.
    pub name: &'static str,
    /// Its address on the wire between the two.
    pub address: &'static str,
    unshare: Child,
    /// Its first process, as seen from here.
    init: u32,
    scratch: PathBuf,
}

/// Two hosts and the wire between them.
pub struct Hosts {
    /// The one.
    pub a: Host,
    /// The other.
    pub b: Host,
    shared: TempDir,
}

impl Hosts {
    /// Starts both.
    pub fn start() -> Self {
        let shared = tempfile::tempdir().expect("a scratch directory");
        let at = shared.path();
        for (name, from) in [("kernel", guest::kernel()), ("pageshare", super::binary().into())] {
            std::fs::copy(from, at.join(name)).expect("the scratch directory is writable");
        }
        initramfs::build(&at.join("initrd"));
        std::fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("our own directory");
        let (mut a, mut b) =
            (Host::spawn(at, "host-a", "10.78.0.1"), Host::spawn(at, "host-b", "10.78.0.2"));
        for host in [&mut a, &mut b] {
            host.wait();
        }
        let hosts = Self { a, b, shared };
        hosts.connect();
        hosts
    }

    /// Both hosts' directory, under the same path in both.
    pub fn shared(&self) -> &Path {
        self.shared.path()
    }

    /// Puts a pair of virtual Ethernet devices between them.
    fn connect(&self) {
        let (a, b) = (self.a.init.to_string(), self.b.init.to_string());
        let link = ["link", "add", "wire", "netns", &a, "type", "veth"];
        run(Command::new("ip").args(link).args(["peer", "name", "wire", "netns", &b]));
        for host in [&self.a, &self.b] {
            let address = format!("{}/24", host.address);
            run(host.command("ip").args(["address", "add", &address, "dev", "wire"]));
            run(host.command("ip").args(["link", "set", "wire", "up"]));
        }
    }
}

impl Host {
    fn spawn(shared: &Path, name: &'static str, address: &'static str) -> Self {
        let scratch = shared.join(name);
        std::fs::create_dir(&scratch).expect("the scratch directory is writable");
        let log = std::fs::File::create(scratch.join("log")).expect("a fresh directory");
        let digit = address.as_bytes()[address.len() - 1] as char;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/libvirt-host");
        let unshare = Command::new("setpriv")
            // So that the host ends with this program, however that ends.
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"])
            .arg(script)
            .arg(shared)
            .args([name, &format!("{digit}0000000-1111-4222-8333-444444444444")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file descriptor"))
            .stderr(log)
            .spawn()
            .expect("setpriv is a part of Debian's base");
        Self { name, address, unshare, init: 0, scratch }
    }

    fn wait(&mut self) {
        let pid = self.unshare.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        wait_for(&format!("libvirtd of {}", self.name), || {
            if let Some(status) = self.unshare.try_wait().expect("our own child") {
                panic!("{} ended, {status}: {}", self.name, self.log());
            }
            UnixStream::connect(self.scratch.join("libvirt-sock")).ok()
        });
        let init = std::fs::read_to_string(children).expect("our own child");
        self.init = init.trim().parse().expect("one child");
    }

    /// What its set-up, its libvirtd and its QEMUs have said.
    pub fn log(&self) -> String {
        let mut files = ["log", "libvirtd.log"].map(|name| self.scratch.join(name)).to_vec();
        let qemu = format!("/proc/{}/root/var/log/libvirt/qemu", self.init);
        files.extend(std::fs::read_dir(qemu).into_iter().flatten().flatten().map(|it| it.path()));
        files.iter().map(|file| std::fs::read_to_string(file).unwrap_or_default()).collect()
    }

    /// A command to be run on this host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string(), "--mount", "--net", "--uts", "--pid"])
            .args(["--root", "--wd=/"])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// How virsh reaches its libvirt, from either host.
    pub fn uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.scratch.join("libvirt-sock").display())
    }

    /// Runs virsh on this host and returns what it prints.
    pub fn virsh(&self, words: &[&str]) -> String {
        let output = self.try_virsh(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "virsh {words:?}: {said}{}", self.log());
        String::from_utf8(output.stdout).expect("virsh prints text").trim().to_owned()
    }

    /// Runs virsh on this host.
    pub fn try_virsh(&self, words: &[&str]) -> Output {
        self.command("virsh").args(["-c", &self.uri()]).args(words).output().expect("virsh starts")
    }

    /// The path here of a socket there.
    pub fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{SOCKETS}/{name}", self.init))
    }

    /// Begins to boot the test's guest.
    pub fn boot(&self, shared: &Path, name: &str) -> Console {
        let file = self.scratch.join(format!("{name}.xml"));
        std::fs::write(&file, domain(shared, name)).expect("the scratch directory is writable");
        // Paused, so that the console is read from its first line on.
        self.virsh(&["create", "--paused", file.to_str().expect("a plain path")]);
        let console = self.console(name);
        self.virsh(&["resume", name]);
        console
    }

    /// The console of a guest that is here.
    pub fn console(&self, name: &str) -> Console {
        let path = self.socket(&format!("{name}.console"));
        let console = UnixStream::connect(path).expect("the guest's console");
        console.set_read_timeout(Some(Duration::from_secs(120))).expect("a connected socket");
        Console(BufReader::new(console))
    }

    /// Every socket in [`SOCKETS`].
    pub fn sockets(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.socket(""))
            .expect("the host is there")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.init.to_string()]).status();
        // unshare ends when everything in the host has.
        let _ = self.unshare.wait();
    }
}

/// A guest's console.
pub struct Console(BufReader<UnixStream>);

impl Console {
    /// Reads up to a line that begins so; returns the rest of the line.
    pub fn expect(&mut self, begin: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.0.read_line(&mut line).expect("the guest answers");
            assert!(length > 0, "the console closed before `{begin}` came");
            if let Some(rest) = line.trim_end().strip_prefix(begin) {
                return rest.to_owned();
            }
        }
    }

    /// A checksum over the guest's memory's contents, computed by the guest.
    pub fn checksum(&mut self) -> String {
        writeln!(self.0.get_mut(), "sum").expect("the guest listens");
        self.expect("SUM ")
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn domain(shared: &Path, name: &str) -> String {
    let shared = shared.display();
    format!(
        "<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <os>
    <type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type>
    <kernel>{shared}/kernel</kernel>
    <initrd>{shared}/initrd</initrd>
    <cmdline>{line}</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <serial type='unix'><source mode='bind' path='{SOCKETS}/{name}.console'/></serial>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
",
        memory = guest::MEMORY.trim_end_matches('M'),
        line = guest::KERNEL_LINE,
    )
}
