#!/usr/bin/env python3
"""Run random MPI-IO programs on two hosts joined by one wire, and compare as compare.py does.

    namespaces.py --build DIR --seeds 20:22      (as root; else exit status 77)

    host 0: 10.79.0.1 ======= veth ======= host 1: 10.79.0.2

A host is a process with a network, a name, a /dev/shm and System V memory of its own: its ranks
and its manager reach the other host's by the wire or not at all. The file lies in a folder that
both see, and so does the folder in which nvio's nodes meet; of which nodes there are only Open
MPI tells. It starts the ranks, with an agent in the place of ssh (Debian's MPICH 4.0.2, with
UCX over TCP, does not come out of MPI_Finalize when ranks have different hosts). The hosts are
held by processes that the kernel ends with this one, and with them goes all that makes the hosts.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from compare import compare
from launch import LAUNCHERS, Launch, RunError, say

SKIPPED = 77
WIRE = "wire0"
# Of what a host has for itself; `unshare` and `nsenter` name it alike.
OWN = ("--net", "--uts", "--ipc", "--mount")
OVER_THE_WIRE = (
    *("--mca", "oob_tcp_if_include", WIRE, "--mca", "btl_tcp_if_include", WIRE),
    *("--mca", "pml", "ob1", "--mca", "btl", "self,tcp"),
)
MPI = "openmpi"
RANKS = 4


@dataclass(frozen=True)
class Host:
    """A host of its own on this machine."""

    number: int
    process: int
    """That holds it."""

    @property
    def address(self) -> str:
        """Of its end of the wire."""
        return f"10.79.0.{self.number + 1}"

    @property
    def memory(self) -> Path:
        """Its /dev/shm, as this machine sees it."""
        return Path(f"/proc/{self.process}/root/dev/shm")

    def at(self, *command: str) -> list[str]:
        """The command, run there."""
        return ["nsenter", "--target", str(self.process), *OWN, *command]


@contextmanager
def host(number: int) -> Iterator[Host]:
    """Make a host; leaving ends all that runs there."""
    first = (
        f"hostname node{number} && mount -t tmpfs -o size=1g,mode=1777 nvio /dev/shm"
        " && mount -t sysfs sysfs /sys"  # of this network
        " && ip link set lo up && echo ready && exec sleep infinity"
    )
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *OWN, "sh", "-c", first],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != "ready\n":
                raise RunError(f"cannot make host {number}")
            yield Host(number, holder.pid)
        finally:
            with suppress(FileNotFoundError):
                end_all_in(Path(f"/proc/{holder.pid}/ns/net").readlink())
            holder.kill()


def end_all_in(network: Path) -> None:
    """Kill the processes of a network that is not this process's own."""
    if network == Path("/proc/self/ns/net").readlink():
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ends just now
            if (entry / "ns/net").readlink() == network:
                os.kill(int(entry.name), signal.SIGKILL)


def join(one: Host, other: Host) -> None:
    """Lay the wire between two hosts, and tell each both names."""
    peer = ["peer", "name", WIRE, "netns", str(other.process)]
    subprocess.run(one.at("ip", "link", "add", WIRE, "type", "veth", *peer), check=True)
    names = "".join(f"{h.address} node{h.number}\\n" for h in (one, other))
    for end in (one, other):
        subprocess.run(end.at("ip", "address", "add", f"{end.address}/24", "dev", WIRE), check=True)
        subprocess.run(end.at("ip", "link", "set", WIRE, "up"), check=True)
        hosts = f"printf '127.0.0.1 localhost\\n{names}' > /dev/shm/hosts"
        subprocess.run(
            end.at("sh", "-c", f"{hosts} && mount --bind /dev/shm/hosts /etc/hosts"), check=True
        )
    for end in (one, other):
        wait_for_wire(end)


def wait_for_wire(end: Host) -> None:
    """Return once it carries: the kernel says so a moment after both ends are up."""
    state = Path(f"/proc/{end.process}/root/sys/class/net/{WIRE}/operstate")
    deadline = time.monotonic() + 20
    while state.read_text() != "up\n":
        if time.monotonic() > deadline:
            raise RunError(f"the wire of host {end.number} stays {state.read_text().strip()}")
        time.sleep(0.01)


def write_agent(path: Path, hosts: list[Host]) -> None:
    """What a launcher calls as it would ssh: options, a host's address, a command."""
    cases = "\n".join(f'  {h.address}) exec {shlex.join(h.at("sh", "-c"))} "$*" ;;' for h in hosts)
    path.write_text(
        "#!/bin/sh\n"
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        "host=$1\nshift\n"
        f'case $host in\n{cases}\nesac\necho "there is no host $host" >&2\nexit 1\n'
    )
    path.chmod(0o755)


@dataclass(frozen=True)
class OnHosts(Launch):
    """How programs are started on the hosts, from the first of them."""

    hosts: tuple[Host, ...] = ()
    agent: Path = Path()

    def command(self, program: list[str]) -> list[str]:
        """The command line that starts `program` on all ranks, as many on each host."""
        each = self.ranks // len(self.hosts)
        slots = ",".join(f"{host.address}:{each}" for host in self.hosts)
        where = ["--mca", "plm_rsh_agent", str(self.agent), "--host", slots, *OVER_THE_WIRE]
        # Else Open MPI 5, allowed to oversubscribe, has all ranks on the first.
        where += ["--map-by", f"ppr:{each}:node"]
        return self.hosts[0].at(*LAUNCHERS[self.mpi], *where, "-n", str(self.ranks), *program)


def arguments() -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="nvio's build folder")
    parser.add_argument("--seeds", default="20:22", help="FIRST:STOP (default 20:22)")
    parser.add_argument("--steps", type=int, default=30, help="phases of a program (default 30)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    return parser.parse_args()


def main() -> int:
    """Compare all programs asked for; 0 when all were equal."""
    options = arguments()
    if os.geteuid() != 0:
        say("not run: making hosts needs root")
        return SKIPPED
    first, stop = (int(part) for part in options.seeds.split(":"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nvio-hosts-")))
        hosts = [stack.enter_context(host(number)) for number in range(2)]
        join(*hosts)
        agent = folder / "agent"
        write_agent(agent, hosts)
        meeting = folder / "meeting"
        meeting.mkdir()
        launch = OnHosts(MPI, options.build.resolve(), RANKS, (), tuple(hosts), agent)
        settings = {
            "NVIO_RENDEZVOUS": str(meeting),
            "NVIO_ADMIT": "always",
            "NVIO_CAPACITY": "2M",
        }
        failed = compare(
            launch,
            range(first, stop),
            options.steps,
            settings,
            timeout=options.timeout,
            memories=[one.memory for one in hosts],
        )
        if left := list(meeting.iterdir()):
            say(f"the jobs ended and left {left[0]}")
            return 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
