"""A guest of QEMU on another machine: its QEMU, and the kernel and image that guests have here.

The guest has the far machine's own address, by QEMU's user network: no bridge, tap or route of ours
is made on a machine that is not ours, and no privileges are needed there. What comes to one of the
transports' ports is handed on to the guest; whatever else (ICMP too) the far machine answers by
itself. That network is part of what is measured, and the result names it. QEMU's standard input and
output are the guest agent's line. Nobody ends it but the keeper of the folder (`far/folder.py`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tare import transports
from tare.accounting import Account
from tare.command import PATH
from tare.environments import Inside, Site
from tare.environments.in_guest import InsideGuest
from tare.environments.on_far import ASK_TIMEOUT_S, InsideFar, far_account
from tare.environments.qemu import Programs, Qemu, role
from tare.environments.tools import TOOLS
from tare.errors import TrialError, UnavailableError
from tare.guests import Hardware, Image, Kernel, machine, probe
from tare.guests import console as consoles
from tare.guests.agent import Agent
from tare.guests.monitor import Monitor, MonitorError
from tare.guests.probe import Verdict

if TYPE_CHECKING:
    from tare.far import Connection, Folder

__all__ = ["entered"]

_BOOT_TIMEOUT_S = 120.0
_PROBE_TIMEOUT_S = 20
_GATEWAY = "10.0.2.2"
_GATEWAY_MAC = "52:55:0a:00:02:02"
"""The user network's own, of the 10.0.2.0/24 that it has by default."""
_ROUTE = f"""
ip route add {_GATEWAY} dev eth0 && arp -s {_GATEWAY} {_GATEWAY_MAC} &&
ip route add default via {_GATEWAY} dev eth0
"""
_LOOK = f"""
command -v {machine.PROGRAM} >/dev/null && {machine.PROGRAM} --version | head -n 1 || echo none
[ -r /dev/kvm ] && [ -w /dev/kvm ] && echo kvm
"""
_PROBE = f"""
limit=$1 console=$2 && shift 2
timeout -s KILL "$limit" "$@" >&2
grep -qF '{probe.MARKER.decode()}' "$console"
"""
_LAUNCH = """
cd "$1" && truncate -s "$2" tools && mkfifo monitor.in monitor.out && shift 2 &&
echo $$ >qemu.pid && exec "$@" 2>qemu.stderr
"""
_TELL = """
cd "$1" && exec 3<>monitor.in 4<>monitor.out && shift || exit
for command in '{"execute": "qmp_capabilities"}' "$@"; do
  echo "$command" >&3
  while read -r answer <&4; do
    case $answer in *'"return"'* | *'"error"'*) echo "$answer" && break ;; esac
  done
done
"""
_PLACE = """
for task in /proc/"$1"/task/*; do
  case $(cat "$task/comm") in CPU*) taskset --cpu-list --pid "$2" "${task##*/}" ;; esac
done
"""
_verdicts: dict[str, Verdict] = {}
"""Of machines that were probed by this process, by their boots."""


@contextmanager
def entered(site: Site, connection: Connection, folder: Folder, asked: Qemu) -> Iterator[Inside]:
    """Boot a guest there; it ends with the folder.

    Raises:
        TrialError: that machine lacks QEMU, or the guest did not come up.
    """
    there = InsideFar(site, connection, folder)
    if there.address.startswith("127."):
        raise TrialError(
            f"{connection.target} is reached over a loopback, which a guest has for itself",
            "name the machine by its address on a network",
        )
    version, has_kvm = _qemu(connection)
    try:
        kernel = Kernel.fetch(site.cache)
        image = Image.build(kernel, site.programs, site.cache)
        tools = Image.of_tools(TOOLS, site.cache)
    except UnavailableError as error:
        raise TrialError(f"no guest can be made: {error.what}", error.remedy) from error
    pushed = Path(folder.path)
    far_kernel = Kernel(pushed, kernel.release)
    far_image = Image(pushed / "image", image.digest)
    for source, target in ((kernel.vmlinuz, far_kernel.vmlinuz), (image.path, far_image.path)):
        folder.put(source.read_bytes(), source.name, PurePosixPath(target))
    verdict = _accelerator(connection, folder, asked, has_kvm, far_kernel, far_image)
    hardware = Hardware(verdict.accelerator, asked.machine, asked.vcpus, asked.memory_bytes)
    session = f"ssh-qemu-{site.leftovers.run_id}-{secrets.token_hex(2)}"
    argv = machine.command_line(
        hardware,
        far_kernel,
        far_image,
        console=pushed / "console",
        words=(f"tare.address={there.address}/32",),
        devices=_devices(session, pushed),
    )
    with Monitor("the guest agent", greets=False) as channel:
        guest = _Guest(connection, folder, channel, session)
        guest.boot(argv, tools, site)

        def bring_tools() -> None:
            assert tools is not None  # else none of them could be named
            folder.put(tools.path.read_bytes(), "the tools", PurePosixPath(pushed / "tools"))

        programs = Programs(guest.agent, bring_tools)

        def resolved(words: Sequence[str]) -> tuple[str, ...]:
            guest.check(words)
            return programs.resolved(words)

        yield InsideGuest(
            guest,
            guest.consumption,
            there.address,
            session,
            {
                **there.facts,
                "accelerator": verdict.accelerator,
                "accelerator_reason": verdict.reason,
                "qemu": version,
                "machine_type": hardware.machine,
                "vcpus": hardware.vcpus,
                "memory_bytes": hardware.memory_bytes,
                "host_kernel": there.facts["kernel"],
                "kernel": kernel.release,
                "kernel_package": kernel.version,
                "network": "QEMU's user network (slirp), which passes single ports on",
                "null_disk": "/dev/vda",
            },
            resolved,
            kernel=Account,  # the far kernel's threads are left out, as without a guest
        )


class _Guest:
    """See `in_guest.Guest`.

    Args:
        connection: to the machine that it is on.
        folder: there, with all that it consists of.
        channel: to its agent.
        name: of it.
    """

    def __init__(self, connection: Connection, folder: Folder, channel: Monitor, name: str) -> None:
        self._connection = connection
        self._folder = folder
        self._channel = channel
        self._name = name
        self._reached = False
        self.agent = Agent(channel)
        self.pid = 0

    def boot(self, argv: Sequence[str], tools: Image | None, site: Site) -> None:
        """Start QEMU; wait until the agent answers, and put everything in its place."""
        vmm, vcpus = site.placement.vmm, site.placement.vcpus
        pinned = ["taskset", "--cpu-list", ",".join(map(str, vmm))] if vmm else []
        size = str(tools.path.stat().st_size if tools else 1 << 20)
        words = self._script(_LAUNCH, size, *pinned, *argv)
        self._connection.plug(words, self._channel.far, name=machine.PROGRAM)
        with self.explained("while it booted"):
            self._channel.connect(ASK_TIMEOUT_S)
            self.agent.wait(_BOOT_TIMEOUT_S)
            routed = self.agent.run(["/bin/sh", "-c", _ROUTE], ASK_TIMEOUT_S)
            if routed.code != 0:
                raise TrialError(f"the guest has no way out: {routed.stderr.strip()}")
        self.pid = int(self._read("qemu.pid"))
        if vcpus:
            cpus = ",".join(map(str, vcpus))
            self._connection.run(["sh", "-c", _PLACE, "sh", str(self.pid), cpus], ASK_TIMEOUT_S)

    def check(self, argv: Sequence[str]) -> None:
        """See that what is started can be reached: the first program of ours has ports opened.

        Not before, since two guests of one machine would want the same.

        Raises:
            TrialError: it cannot.
        """
        if argv[0] == "echo/echo-icmp":
            raise TrialError(
                f"ICMP is answered by {self._connection.target} itself, not by the guest on it",
                "take a transport with ports, such as udp",
            )
        if argv[0].startswith("echo/") and not self._reached:
            address = self._connection.address
            forward = [
                f"hostfwd_add net {kind}:{address}:{port}-{address}:{port}"
                for port in transports.ports()
                for kind in ("udp", "tcp")
            ]
            for line, answer in zip(forward, self._told(forward), strict=True):
                if answer.get("return") != "":
                    raise TrialError(f"QEMU on {self._connection.target} refused {line}: {answer}")
            self._reached = True

    def consumption(self) -> Account:
        """Snapshot QEMU's threads, as the far machine counts."""
        return far_account(self._connection, self.pid, role)

    @contextmanager
    def explained(self, phase: str) -> Iterator[None]:
        """Add to an error what is known of the guest: what QEMU said, its console's last words."""
        try:
            yield
        except MonitorError as error:
            told = [f"{self._name} on {self._connection.target} failed {phase}: {error.what}"]
            if words := " | ".join(consoles.causes_and_tail(self._read("console"))):
                told.append(f"the guest's console ends: {words}")
            if words := " | ".join(consoles.lines(self._read("qemu.stderr"))[-8:]):
                told.append(f"QEMU said: {words}")
            raise TrialError("; ".join(told), error.remedy) from error

    def _told(self, commands: Sequence[str]) -> list[dict[str, Any]]:
        """Give QEMU's monitor commands for humans, and return its answers."""
        asked = [
            json.dumps({"execute": "human-monitor-command", "arguments": {"command-line": line}})
            for line in commands
        ]
        done = self._connection.run(self._script(_TELL, *asked), ASK_TIMEOUT_S)
        try:
            return [dict(json.loads(line)) for line in done.stdout.splitlines()][1:]
        except (ValueError, TypeError, RecursionError) as error:
            said = done.stdout[-200:]
            raise TrialError(
                f"QEMU's monitor on {self._connection.target} answered {said!r}"
            ) from error

    def _read(self, name: str) -> str:
        path = f"{self._folder.path}/{name}"
        done = self._connection.run(["tail", "-c", "65536", path], ASK_TIMEOUT_S)
        return done.stdout.decode(errors="replace")

    def _script(self, script: str, *words: str) -> list[str]:
        mark = self._folder.mark
        return ["env", mark, f"PATH={PATH}", "sh", "-c", script, "sh", self._folder.path, *words]


def _qemu(connection: Connection) -> tuple[str, bool]:
    """Return the version of the QEMU there, and whether its KVM opens."""
    said = connection.run(["env", f"PATH={PATH}", "sh", "-c", _LOOK], ASK_TIMEOUT_S).stdout
    first, *rest = said.decode(errors="replace").splitlines()
    if first == "none":
        raise TrialError(
            f"{connection.target} holds no guest: it lacks {machine.PROGRAM}",
            "apt-get install qemu-system-x86 there",
        )
    return first.partition("version ")[2].split(" ")[0], "kvm" in rest


def _accelerator(
    connection: Connection,
    folder: Folder,
    asked: Qemu,
    has_kvm: bool,
    kernel: Kernel,
    image: Image,
) -> Verdict:
    """KVM where the guests' kernel boots with it there, else TCG; as `probe` decides it here."""
    if asked.accel == "tcg":
        return Verdict("tcg", "asked for")
    boot = connection.run(["cat", "/proc/sys/kernel/random/boot_id"], ASK_TIMEOUT_S).stdout
    key = f"{connection.target} {boot!r}"
    if not has_kvm:
        verdict = Verdict("tcg", f"there is no {probe.KVM} that this user may open")
    elif key in _verdicts:
        verdict = _verdicts[key]
    else:
        console = Path(folder.path) / "probe"
        argv = machine.command_line(
            Hardware("kvm"), kernel, image, console=console, words=("tare.probe",)
        )
        script = ("sh", "-c", _PROBE, "sh", str(_PROBE_TIMEOUT_S), str(console))
        words = ["env", folder.mark, f"PATH={PATH}", *script, *argv]
        done = connection.run(words, _PROBE_TIMEOUT_S + ASK_TIMEOUT_S, name=machine.PROGRAM)
        verdict = (
            Verdict("kvm", "the guests' kernel boots with it")
            if done.code == 0
            else Verdict("tcg", f"{probe.KVM} opens, but Linux {kernel.release} does not boot")
        )
        _verdicts[key] = verdict
    if asked.accel == "kvm" and verdict.accelerator != "kvm":
        raise TrialError(
            f"KVM is asked for, and does not work on {connection.target}: {verdict.reason}",
            "leave the choice to Tare (auto), which then takes TCG and says so",
        )
    return verdict


def _devices(name: str, folder: Path) -> tuple[str, ...]:
    tools = {"driver": "file", "filename": str(folder / "tools")}
    disk = {"driver": "raw", "node-name": "tools", "read-only": True, "file": tools}
    return (
        "-name", f"{name},debug-threads=on",
        "-chardev", f"pipe,id=monitor,path={folder / 'monitor'}",
        "-mon", "chardev=monitor,mode=control",
        "-netdev", "user,id=net",
        "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-serial-pci",
        "-chardev", "stdio,id=agent,signal=off",
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
        "-blockdev", "null-co,node-name=null,size=1073741824,read-zeroes=off",
        "-device", "virtio-blk-pci,drive=null",
        "-blockdev", json.dumps(disk), "-device", "virtio-blk-pci,drive=tools",
    )  # fmt: skip
