"""A Slurm cluster of several machines on this one, for as long as a block of Python.

    login (slurmctld) 10.80.0.1 ==== bridge ==== node0 10.80.0.10, node1 10.80.0.11, ...

Debian's slurmctld, slurmd and munged, as root. All of it is in namespaces of its own, the network,
processes and mounts included: /etc/slurm, /etc/munge and /run/munge are the cluster's, and no
service of the machine is touched or seen. A node has processes, a network, a name and a /dev/shm of
its own. When the process that made them is gone, however it went, the kernel ends all the others,
and with them go mounts, networks and what lay in memory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from launch import RunError

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
SBIN = "/usr/sbin:/sbin"
INSIDE = "NVIO_TEST_CLUSTER"
"""Set in the process that has left this machine's namespaces."""
OWN = ("--net", "--uts", "--mount")
"""Of what a machine has for itself, in the words of `unshare`."""
FIRST_PROCESS = """\
trap 'kill $!' TERM
"$@" &
while wait $!; told=$?; kill -0 $! 2>/dev/null; do :; done
exit $told
"""
"""Of the cluster: it waits for whoever lost its parent, which Python does not."""
LOGIN = "10.80.0.1"
USER, UID = "member", 64711
"""Who submits jobs: one that owns nothing else."""
SHARED = Path("/mnt")
"""Where all nodes see one folder of this machine."""
HOME = SHARED / "member"
CHECKOUT = Path(__file__).resolve().parents[2]
STATE = Path("/run/cluster")
"""In memory of the cluster's own: keys, logs, spool folders, what Slurm keeps."""
CONFIGURATION = Path("/etc/slurm")
CPUS = 8
"""Of a node, as Slurm is told: more than there are, since programs of tests mostly wait."""
START_S = 60.0
SLURM = """\
ClusterName=nvio
SlurmctldHost=login({login})
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={state}/controller
SlurmdSpoolDir={state}/%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
{site}{nodes}PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=NO
"""


def lacking() -> str | None:
    """Why there can be no cluster here; None if there can."""
    if os.geteuid() != 0:
        return "making hosts needs root"
    missing = [name for name in PROGRAMS if not where(name)]
    return f"there is no {', '.join(missing)}; Debian has them" if missing else None


def where(name: str) -> str | None:
    """The path of a program of Slurm's; daemons are on no user's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SBIN}")


def is_inside() -> bool:
    """Whether this process has left the machine's namespaces."""
    return INSIDE in os.environ


def run_inside(arguments: Sequence[str]) -> int:
    """Run this Python program again, as first process of namespaces of its own; its exit status.

    It is told to end when this one is, and cleans up if this one was killed.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *OWN, "--ipc", "--pid", "--mount-proc"]
    # `unshare` itself hears no SIGTERM while it waits; its end is its child's SIGTERM.
    command += ["--fork", "--kill-child=TERM", "sh", "-c", FIRST_PROCESS, "sh", sys.executable]
    child = subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, INSIDE: "1"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait()
    except BaseException:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise


def call(*command: str) -> None:
    """Run to the end; raises RunError with its complaint when it fails."""
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Look until something is so; raises RunError if it does not become so."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise RunError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    number: int
    process: int
    """Its first one, seen from here."""

    @property
    def name(self) -> str:
        """As Slurm knows it, and it itself."""
        return f"node{self.number}"

    @property
    def memory(self) -> Path:
        """Its /dev/shm, seen from here."""
        return Path(f"/proc/{self.process}/root/dev/shm")


def address(number: int) -> str:
    """Of a node."""
    return f"10.80.0.{10 + number}"


def prepare_login(nodes: int, folder: Path) -> None:
    """Make this process's namespaces the cluster's, and tell them their names and users."""
    call("mount", "--make-rprivate", "/")
    STATE.parent.mkdir(exist_ok=True)
    call("mount", "-t", "tmpfs", "-o", "mode=755", "nvio", str(STATE.parent))
    STATE.mkdir()
    for place in ("etc-slurm", "munge", "controller"):
        (STATE / place).mkdir()
    call("mount", "--bind", str(STATE / "etc-slurm"), str(CONFIGURATION))
    call("mount", "--bind", str(folder), str(SHARED))
    HOME.mkdir()
    os.chown(HOME, UID, UID)
    call("mount", "-t", "tmpfs", "-o", "mode=1777", "nvio", "/dev/shm")  # noqa: S108 - ours now
    call("hostname", "login")
    call("mount", "-t", "sysfs", "sysfs", "/sys")  # of this network
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", "hosts", "type", "bridge")
    call("ip", "address", "add", f"{LOGIN}/24", "dev", "hosts")
    call("ip", "link", "set", "hosts", "up")
    names = [(LOGIN, "login"), *((address(number), f"node{number}") for number in range(nodes))]
    hosts = "127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for at, name in names)
    own = {
        "hosts": hosts,
        "passwd": Path("/etc/passwd").read_text() + f"{USER}:x:{UID}:{UID}::{HOME}:/bin/sh\n",
        "group": Path("/etc/group").read_text() + f"{USER}:x:{UID}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    }
    for name, text in own.items():
        (STATE / name).write_text(text)
        call("mount", "--bind", str(STATE / name), f"/etc/{name}")


def start_munge() -> None:
    """A munged with a key of its own, by which all nodes know each other."""
    key = STATE / "munge/key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    socket = Path("/run/munge/munge.socket.2")
    socket.parent.mkdir()
    start_daemon(
        *("munged", "--foreground", "--key-file", str(key)),
        *("--pid-file", str(STATE / "munge/pid"), "--seed-file", str(STATE / "munge/seed")),
    )
    wait_until(socket.exists, START_S, "munged's socket")


def start_daemon(name: str, *options: str) -> None:
    """Start a daemon in the foreground; it ends with the cluster."""
    with (STATE / f"{name}.log").open("wb") as log:
        subprocess.Popen(
            [where(name) or name, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def start_node(number: int) -> Node:
    """Make a machine on which slurmd runs."""
    # A checkout beneath the /tmp that goes is held open, and shown again.
    own_tmp = "mount -t tmpfs -o mode=1777 nvio /tmp"
    if CHECKOUT.is_relative_to("/tmp"):  # noqa: S108 - a place like others
        place = shlex.quote(str(CHECKOUT))
        again = f"mkdir -p {place} && mount --no-canonicalize --rbind /proc/self/fd/9 {place}"
        own_tmp = f"exec 9<{place} && {own_tmp} && {again} && exec 9<&-"
    first = (
        f"hostname node{number} && mount -t tmpfs -o size=1g,mode=1777 nvio /dev/shm"
        f" && {own_tmp}"
        " && mount -t sysfs sysfs /sys && ip link set lo up && echo ready && read -r go"
        # From 23.11 on it starts itself anew to be configured, and this process has to stay.
        f" && {{ {where('slurmd')} -D -N node{number}; exec sleep infinity; }}"
    )
    with (STATE / f"node{number}.log").open("wb") as log:
        holder = subprocess.Popen(
            ["unshare", *OWN, "sh", "-c", first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert holder.stdout is not None
    assert holder.stdin is not None
    if holder.stdout.readline() != "ready\n":
        raise RunError(f"cannot make node {number}\n{logs()}")
    wire = f"wire{number}"
    inside = ["nsenter", "--target", str(holder.pid), "--net"]
    peer = ["peer", "name", "wire", "netns", str(holder.pid)]
    call("ip", "link", "add", wire, "type", "veth", *peer)
    call("ip", "link", "set", wire, "master", "hosts", "up")
    call(*inside, "ip", "address", "add", f"{address(number)}/24", "dev", "wire")
    call(*inside, "ip", "link", "set", "wire", "up")
    holder.stdin.write("go\n")
    holder.stdin.close()
    return Node(number, holder.pid)


def end_all_others() -> None:
    """Kill every process of these namespaces but this one and the first, and wait for their end."""
    kept = {1, os.getpid()}

    def are_gone() -> bool:
        there = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        for process in there - kept:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):  # our own would stay for us to hear of
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return there <= kept

    wait_until(are_gone, START_S, "the end of the cluster")


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs."""

    nodes: tuple[Node, ...]

    def as_user(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command at the login as the user who submits jobs."""
        kept = ("PATH", "LANG", "LC_ALL")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"HOME": str(HOME), "USER": USER, **settings}
        ids = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        return subprocess.run(
            ["setpriv", *ids, "--", *command],
            cwd=HOME,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            check=False,
        )

    def output_of(self, *command: str, **settings: str) -> str:
        """What a user's command prints; raises RunError when it fails."""
        done = self.as_user(*command, **settings)
        if done.returncode != 0:
            raise RunError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def logs() -> str:
    """What the daemons said last."""
    told = []
    for path in sorted(STATE.rglob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        told.append("\n".join([f"--- {path.name}", *lines[-40:]]))
    return "\n".join(told)


@contextmanager
def cluster(nodes: int, folder: Path, site: str = "") -> Iterator[Cluster]:
    """Run a Slurm of so many nodes in this process's namespaces; leaving ends it.

    Args:
        nodes: how many.
        folder: for the user's files, on a file system that all nodes see.
        site: more lines for slurm.conf.

    Raises:
        RunError: Slurm did not come up, with what its daemons said.
    """
    prepare_login(nodes, folder)
    lines = "".join(
        f"NodeName=node{number} NodeAddr={address(number)} CPUs={CPUS} RealMemory=100\n"
        for number in range(nodes)
    )
    text = SLURM.format(login=LOGIN, state=STATE, site=site, nodes=lines)
    (CONFIGURATION / "slurm.conf").write_text(text)
    # What asks for no cgroup: later releases have a word for it.
    release = subprocess.check_output([where("slurmd") or "slurmd", "-V"], text=True)
    plugin = "cgroup/v1" if " 22." in release else "disabled"
    (CONFIGURATION / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
    try:
        start_munge()
        start_daemon("slurmctld", "-D")
        running = Cluster(tuple(start_node(number) for number in range(nodes)))

        def are_idle() -> bool:
            seen = running.as_user("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
            return seen == ["idle"] * nodes

        try:
            wait_until(are_idle, START_S, "all nodes idle")
        except RunError as problem:
            raise RunError(f"{problem}\n{logs()}") from None
        yield running
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on all is tidied up anyway
        end_all_others()
