"""The server in a User-Mode Linux: a Linux kernel that is a program of the host.

Debian's kernel (the package user-mode-linux, or what `setup/uml-newer` has unpacked) boots on the
host's own files, read-only, so that the very same programs run; it sits on the bridge by a tap and
has an address of its own. One boot is one session. It is asked through QEMU's guest agent, over a
serial line that is a socket of ours.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import platformdirs

from tare import netns, process
from tare.accounting import Role
from tare.command import Command, missing_packages
from tare.environments import Availability, Inside, Row, Site, for_root, scratch_disk
from tare.environments.in_guest import InsideGuest, seen_by_host
from tare.environments.scratch_disk import Device, Disk, device_of
from tare.environments.tree_in_guest import shown_by_hostfs
from tare.errors import TrialError, remedy_of
from tare.guests import console as consoles
from tare.guests.agent import Agent
from tare.guests.image import PROGRAMS
from tare.guests.monitor import Monitor
from tare.host import Host, end_of
from tare.hosts import PREFIX_LENGTH, Tap
from tare.process import ProcessError
from tare.stepwise import Stepwise
from tare.tree import OWN
from tare.trees.merged import Merged, laid_out

_PACKAGES = {
    "linux.uml": "user-mode-linux",
    "qemu-ga": "qemu-guest-agent",
    "ip": "iproute2",
}
_VERSION_TIMEOUT_S = 10.0
_BOOT_TIMEOUT_S = 180.0
_TRIAL_TIMEOUT_S = 60.0
_PROGRAM_ENDED_WELL = "Attempted to kill init! exitcode=0x00000000"
_ANSWER_TIMEOUT_S = 10.0
_END_PATIENCE_S = 0.5
_DISK = "/dev/ubda"


@dataclass(frozen=True)
class Uml:
    """A User-Mode Linux.

    Attributes:
        memory_bytes: of the guest.
        device: a disk to be measured, if one is asked for.
    """

    memory_bytes: int = 512 << 20
    device: Device | None = None
    name = "uml"
    row = Row(
        "User-Mode Linux",
        "in User-Mode Linux",
        own_kernel=True,
        setup_s=4.0,
        session_s=0.8,
        request_s=400e-6,
    )

    def with_options(self, plot: Mapping[str, str]) -> Uml:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether Debian's kernel runs programs here, and has what is asked of it."""
        if names := missing_packages(_PACKAGES):
            return Availability(False, f"not installed: {names}", f"apt-get install {names}")
        try:
            detail = f"User-Mode Linux {_kernel()}"
        except ProcessError as error:
            return Availability(False, str(error), error.remedy)
        found = for_root(detail)
        if not found.available:
            return found
        if trouble := _untellable() or _trouble():
            return Availability(False, f"{detail}, but {trouble[0]}", trouble[1])
        if self.device not in (None, "raw"):
            why = f"User-Mode Linux offers no {self.device} device"
            return Availability(False, why, "ask for `device: raw` in it")
        return found

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Boot a kernel on the bridge."""
        name = f"uml-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        # Its own TCP loses every segment that the host left to a network card to finish.
        site.hosts.turn_off_offloads()
        with (
            scratch_disk.raw(site) if self.device else nullcontext() as disk,
            site.hosts.tap() as tap,
            site.leftovers.owing("directory", str(site.passed / name)),
            laid_out(site) as merged,
            _Guest(site, tap, name, self.memory_bytes, disk, merged) as guest,
        ):
            facts = self._facts(guest)
            if disk is not None:
                facts |= Disk(
                    _DISK, "ubd on the scratch disk, through the host's page cache"
                ).facts()
            with shown_by_hostfs(guest.agent, merged) if merged else nullcontext("") as by:
                yield InsideGuest(
                    guest,
                    lambda: seen_by_host(Host(site), guest.pid, _role, tap),
                    tap.address,
                    name,
                    facts | (merged.facts(by) if merged else {}),
                    _resolved,
                    merged=merged,
                )

    def _facts(self, guest: _Guest) -> dict[str, Any]:
        clock = guest.agent.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        return {
            "kernel": _kernel(),
            "memory_bytes": self.memory_bytes,
            "vcpus": 1,
            "root": "the host's by hostfs, read-only",
            "clocksource": clock.decode(errors="replace").strip(),
            "network": "vector device on a tap, without offloads on the wire",
        }


ENVIRONMENT = Uml()


class _Guest(Stepwise):
    """One running kernel. Entering boots it until its agent answers; leaving kills it."""

    def __init__(
        self,
        site: Site,
        tap: Tap,
        name: str,
        memory_bytes: int,
        disk: Path | None,
        merged: Merged | None,
    ) -> None:
        self.name = name
        # A tree has them where its user may look, wherever they are here.
        self._programs = merged.root / OWN[1:] / "programs" if merged else site.programs.resolve()
        self._disk = disk
        self._site = site
        self._tap = tap
        self._memory_bytes = memory_bytes
        self._merged = merged
        self._folder = site.passed / name
        self._console = site.scratch / "logs" / f"{name}.console"

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return self._kernel.pid

    def _build(self, stack: ExitStack) -> None:
        try:
            self._lay_out()
            console = stack.enter_context(self._console.open("wb"))
        except OSError as error:
            what = f"cannot write what {self.name} boots from, {self._folder}: {error.strerror}"
            raise TrialError(what, remedy_of(error)) from error
        channel = stack.enter_context(Monitor("the guest agent", greets=False))
        self.agent = Agent(channel)
        line, written = channel.far.fileno(), console.fileno()
        tree, tap = self._site.tree, self._tap
        transport, passed = f"tap,ifname={tap.name}", [line, written]
        within: tuple[str, ...] = ()
        if tree is not None and self._merged is not None:
            # What lies in there is mounted on: its user cannot rename it.
            os.chown(self._merged.root.parent, tree.user.uid, tree.user.gid)
            # It opens files as whoever it is, and then the host's kernel says what it may see.
            os.chown(self._folder, tree.user.uid, tree.user.gid)
            within = tree.user.takes_on()
            opened = netns.open_tap(tap.netns, tap.name)
            stack.callback(os.close, opened)
            transport = f"fd,fd={opened},vec=0"
            passed.append(opened)
        self._kernel = stack.enter_context(
            process.start(
                Command(
                    self._command_line(line, written, transport),
                    netns=tap.netns,
                    cpus=self._site.placement.vcpus,
                    within=within,
                ),
                log_dir=self._site.scratch / "logs",
                name=self.name,
                pass_fds=passed,
            )
        )
        with self.explained("while it booted"):
            # Not before it is ready: what comes while nobody has the line open is lost.
            self._kernel.event(_BOOT_TIMEOUT_S)
            channel.connect(_ANSWER_TIMEOUT_S)
            self.agent.wait(_ANSWER_TIMEOUT_S)

    def explained(self, phase: str) -> AbstractContextManager[None]:
        """Add to an error what is known of the guest: whether it runs, its last words."""

        def state() -> str:
            ended = self._kernel.ended_within(_END_PATIENCE_S)
            return "its kernel has ended" if ended else "its kernel still runs"

        return consoles.explained(self.name, phase, state, lambda: end_of(self._console))

    def _lay_out(self) -> None:
        """Write what the first process needs, where it sees it: in the host's files."""
        self._folder.mkdir(mode=0o700, parents=True)
        self._console.parent.mkdir(parents=True, exist_ok=True)
        for package, script in (("environments", "uml_init.sh"), ("guests", "program.sh")):
            target = self._folder / script
            target.write_bytes(resources.files("tare").joinpath(package, script).read_bytes())
            target.chmod(0o755)
        (self._folder / "programs").symlink_to(self._programs)

    def _command_line(self, agent: int, console: int, transport: str) -> tuple[str, ...]:
        hosts, tap = self._site.hosts, self._tap
        neighbours = (
            (hosts.client_address, hosts.client_mac),
            (hosts.server_address, hosts.server_mac),
        )
        return (
            _program(),
            f"mem={self._memory_bytes >> 20}M",
            "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            f"init={(self._folder / 'uml_init.sh').resolve()}",
            f"uml_dir={self._folder}", "umid=uml",  # else below the user's home
            "con=null", f"con0=null,fd:{console}", "con1=null,fd:1",
            "ssl=null", f"ssl0=fd:{agent}",
            f"vec0:transport={transport},mac={tap.mac},depth=128,gro=0",
            *((f"ubda={self._disk}",) if self._disk else ()),
            "console=tty0", "quiet", "panic=-1", "ipv6.disable=1",
            f"tare.address={tap.address}/{PREFIX_LENGTH}",
            *(f"tare.neighbour={address},{mac}" for address, mac in neighbours),
        )  # fmt: skip


def _resolved(argv: Sequence[str]) -> tuple[str, ...]:
    """Find argv[0]: a path below the build directory, or by its bare name a program of the host."""
    return (str(PROGRAMS / argv[0]) if "/" in argv[0] else argv[0], *argv[1:])


def _role(_thread: str) -> Role:
    """Tell a thread's role: kernel and programs of a User-Mode Linux are one virtual processor."""
    return "vcpu"


def _program() -> str:
    """The kernel: the newer one, if it was unpacked since the installed one does not run here."""
    newer = _unpacked() / "root" / "usr" / "bin" / "linux.uml"
    return str(newer) if newer.exists() else "linux.uml"


def _unpacked() -> Path:
    """Where root's set-up unpacks one, so that a tree's user may enter it; else a user's own."""
    shared = Path("/var/cache/tare/uml")
    return shared if shared.exists() else platformdirs.user_cache_path("tare") / "uml"


@cache
def _kernel() -> str:
    return process.run(Command((_program(), "--version")), _VERSION_TIMEOUT_S).stdout.strip()


def _untellable() -> tuple[str, str | None] | None:
    """Its command line has no quotes: what would be cut there, and the remedy."""
    temporary = str(Path(tempfile.gettempdir()).resolve())
    told = f"it can be told no path with a space, as {temporary} is"
    return (told, "set TMPDIR to another folder") if " " in temporary else None


@cache
def _trouble() -> tuple[str, str | None] | None:
    """Boot the kernel up to a first program: what keeps it from running one here, and the remedy.

    Linux 6.1 as a program gives registers back to what it runs by PTRACE_SETREGSET, with a buffer
    that is too short where the processor has AMX: every program dies of SIGSEGV. From 6.13 on it
    asks how long they are.
    """
    with tempfile.TemporaryDirectory(prefix="tare-uml-") as folder:
        argv = (
            _program(), "mem=64M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            f"uml_dir={folder}", "umid=trial", "init=/bin/true", "con=null", "con0=null,fd:1",
            "console=tty0",
        )  # fmt: skip
        try:
            # It always ends in a panic, since its only program ends: the panic says how.
            told = process.run(Command(argv), _TRIAL_TIMEOUT_S, accept=range(-64, 256)).stdout
        except ProcessError as error:
            return f"it does not boot: {error.what}", error.remedy
    if _PROGRAM_ENDED_WELL in told:
        return None
    if _has_amx():
        return (
            "it runs no program on a processor with AMX, whose registers it has no room for",
            f"run `setup/uml-newer {_unpacked()}`, or boot the host with clearcpuid=amx_tile",
        )
    causes = " | ".join(consoles.causes(told)) or "it did not say why"
    return f"its first program does not run: {causes}", "boot linux.uml by hand to see why"


def _has_amx() -> bool:
    return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="ascii")
