r"""The paper's testbed on one machine: two hosts, a wire of their own, three guests of one image.

    source                                            destination
      the guest that stays                              the guest that is there
      the guest that migrates ====== the wire ======>   a QEMU that awaits it
                  \_________ the bridge, to the load _________/

One setting up of it is a plot: three guests boot, each by itself, and are put under the same load.
Every trial in the plot migrates the same guest from the source to the destination and then, not
measured, back: it is stopped, sent by plain pre-copy over a local socket to a fresh QEMU at the
source, and runs on there under its load. So every arm meets a guest at home with a past of the
same kind, in an order that is drawn anew for each block; the destination's own guest is never
touched. Nothing of a trial stays at the destination.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import netns, process
from tare.command import Command, missing_packages, python_module
from tare.environments import Availability, Site
from tare.environments.on_host import InsideHost
from tare.errors import TareError, TrialError, UnavailableError
from tare.guests import Image, Kernel, machine, probe
from tare.guests.debian import Debian
from tare.host import Host
from tare.hosts import PREFIX_LENGTH, Hosts, Tap
from tare.wire import Wire
from tare.workloads.migration import rows, tiny
from tare.workloads.migration.guest import Blueprint, Guest, Nic
from tare.workloads.migration.hypervisor import choose
from tare.workloads.migration.journey import travel
from tare.workloads.migration.proxies import Proxies, Scope
from tare.workloads.migration.rows import MigrationLevels
from tare.workloads.migration.wires import Wires

_BOOT_TIMEOUT_S = 300.0
_LOAD_TIMEOUT_S = 300.0
_REPORT_TIMEOUT_S = 30.0
_BACK_TIMEOUT_S = 120.0
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Testbed:
    """The environment of the workload `migration`."""

    plot: MigrationLevels
    name = "testbed"

    def availability(self) -> Availability:
        """Tell whether QEMU is here. It boots nothing."""
        if names := missing_packages({machine.PROGRAM: "qemu-system-x86"}):
            return Availability(False, f"not installed: {names}", f"apt-get install {names}")
        return Availability(True, f"QEMU {machine.version()}")

    @contextmanager
    def enter(self, site: Site) -> Iterator[InsideTestbed]:
        """Boot the three guests; the first time, make their image."""
        with ExitStack() as stack:
            try:
                bed = Bed(self.plot, site, stack)
            except UnavailableError as error:
                raise TrialError(f"no testbed can be made: {error.what}", error.remedy) from error
            yield InsideTestbed(bed)


class InsideTestbed(InsideHost):
    """An entered testbed: the protocol of every environment, and `bed` for the workload."""

    def __init__(self, bed: Bed) -> None:
        super().__init__(Host(bed.site), "testbed", bed.facts)
        self.bed = bed
        self.session = bed.session


@dataclass(frozen=True)
class _Place:
    """Where a guest lives: host, processors, tap."""

    netns: str
    cpus: tuple[int, ...]
    tap: int | None


class Bed:
    """The running testbed; everything of it is on `stack`."""

    def __init__(self, plot: MigrationLevels, site: Site, stack: ExitStack) -> None:
        self.plot = plot
        self.site = site
        self.session = f"testbed-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        self.scratch = site.scratch / self.session
        self.scratch.mkdir()
        stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.load: process.Running | None = None
        self._stack = stack
        self._trip = 0
        self._warm = False
        self._debian = Debian.build(site.cache) if plot.testbed == "debian" else None
        self.blueprint = _blueprint(plot, site, self._debian)
        self.wire = stack.enter_context(Wire(site.leftovers, None, site.programs))
        self._wires = Wires(self.wire)
        self.cpus = rows.processors(plot.processors)
        self.scope = Scope.make(site.programs, self.scratch / "scope.json")
        self._seed = secrets.randbits(31)
        self._lay(stack)
        self._boot(stack)
        self.facts: dict[str, Any] = self._facts()

    @property
    def image(self) -> Path | None:
        """The base image of all guests; None where they have none."""
        return self._debian.disk if self._debian else None

    @property
    def kept(self) -> Path:
        """Where the destination keeps the copies of guests that have left it."""
        return self.scratch / "kept"

    @contextmanager
    def awaiting(self, *, prealloc: bool) -> Iterator[Guest]:
        """Start a QEMU at the destination that awaits the migrating guest."""
        with self._await(self._there, f"there{self._trip}", prealloc=prealloc) as guest:
            yield guest

    def guests(self, home: Guest) -> dict[str, Guest]:
        """Role -> guest, in a trial in which the migrating guest was at `home`."""
        return {"migrates": home, "stays": self.stays, "peer": self.peer}

    def trip_folder(self) -> Path:
        """A fresh directory for the sockets and records of one trial."""
        path = self.scratch / f"trip{self._trip}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def warm_up(self, seconds: float) -> None:
        """Let the load run for so long, once."""
        if not self._warm:
            time.sleep(seconds)
            self._warm = True

    def lay_wire(self, levels: MigrationLevels) -> dict[str, Any]:
        """Give the wire a trial's rate, length and losses; return what is to be on record of it."""
        return self._wires.lay(levels, seed=self._seed + self._trip)

    @property
    def kept_home(self) -> Path:
        """Where the source keeps the copies of guests that have come home."""
        return self.scratch / "kept-home"

    def visit(self, *, keep_home: bool) -> None:
        """Have the guest visit the destination and leave a copy there when it comes home.

        Args:
            keep_home: whether the source keeps a copy too of what comes home.

        Raises:
            TrialError: it failed on the way.
        """
        with self.awaiting(prealloc=False) as there:
            _prepare(self.home)
            _prepare(there)
            path = f"unix:{self.trip_folder().name}/visit"
            there.ask("migrate-incoming", uri=path)
            travel(self.home, there, path, _BACK_TIMEOUT_S)
            self.bring_back(there, keep=True, keep_home=keep_home)

    def bring_back(self, guest: Guest, *, keep: bool = False, keep_home: bool = False) -> None:
        """Bring the migrated guest home, not measured.

        Args:
            guest: at the destination.
            keep: whether pageshare carries it and leaves a copy at the destination.
            keep_home: whether pageshare, if it carries it, leaves a copy at the source too.

        Raises:
            TrialError: it did not come, and is lost.
        """
        self._trip += 1
        self._at_home = False
        self._homes.close()
        home = self._homes.enter_context(
            self._await(self._here, f"home{self._trip}", prealloc=False)
        )
        guest.ask("stop")
        _prepare(guest)
        _prepare(home)
        with ExitStack() as stack:
            path = f"unix:{self.trip_folder().name}/back"
            proxies = None
            if keep:
                proxies = stack.enter_context(self._keeping(keep_home=keep_home))
            home.ask("migrate-incoming", uri=proxies.inward if proxies else path)
            travel(guest, home, proxies.outward if proxies else path, _BACK_TIMEOUT_S)
            if proxies:
                proxies.records()  # written when the copies are whole
        home.wait_state("running", timeout_s=_BACK_TIMEOUT_S)
        self.home, self._at_home = home, True

    def require_home(self) -> None:
        """See that the migrating guest runs at the source.

        One that was lost is not booted anew: it would lack the past that the other trials of the
        plot have met.

        Raises:
            TrialError: it does not.
        """
        if not self._at_home or self.home.ask("query-status")["status"] != "running":
            raise TrialError("the migrating guest was lost in an earlier trial of this block")

    def answers(self) -> dict[str, Any]:
        """What the load has been answered since this was last asked; empty without a load."""
        if self.load is None:
            return {}
        self.load.tell("report")
        found: dict[str, Any] = {}
        while (part := self.load.event(_REPORT_TIMEOUT_S))["event"] == "part":
            guest = found.setdefault(part["guest"], {"done": [], "failed": 0})
            guest["done"] += part["done"]
            guest["failed"] += part["failed"]
        return found

    def _lay(self, stack: ExitStack) -> None:
        """Give each guest its place, and each place its tap."""
        source, destination = self.cpus
        taps: list[Tap | None] = [None] * 4
        if self._debian is not None:
            taps = [stack.enter_context(self.site.hosts.tap()) for _ in range(4)]
        opened = [None if tap is None else _opened(stack, tap) for tap in taps]
        self._taps = taps
        self._here = _Place(self.wire.source_ns, source, opened[0])
        self._there = _Place(self.wire.destination_ns, destination, opened[1])
        self._stay = _Place(self.wire.source_ns, source, opened[2])
        self._peer = _Place(self.wire.destination_ns, destination, opened[3])

    def _boot(self, stack: ExitStack) -> None:
        self._layer = self._new_layer("migrates")
        self._homes = stack.enter_context(ExitStack())
        self.home = self._homes.enter_context(self._booting("migrates", self._here, 0))
        self._at_home = True
        self.stays = stack.enter_context(self._booting("stays", self._stay, 2))
        self.peer = stack.enter_context(self._booting("peer", self._peer, 3))
        for guest in (self.home, self.stays, self.peer):
            guest.wait_ready(_BOOT_TIMEOUT_S)
        if (kind := rows.load(self.plot.guest)) is not None:
            self.load = stack.enter_context(self._loading(kind))

    def _booting(self, name: str, place: _Place, tap: int) -> Guest:
        work = self.plot.guest
        if name == "peer" and self.plot.peer == "cold":
            work = "idle"
        words = rows.words(work, self.plot, seed=self._seed + tap)
        found = self._taps[tap]
        if found is not None:
            words += self._network(self.site.hosts, found)
        disk = None
        if self.blueprint.disk:
            disk = self._layer if name == "migrates" else self._new_layer(name)
        return Guest(
            self.blueprint,
            name=f"{self.session}-{name}{self._trip}",
            netns=place.netns,
            logs=self.site.scratch / "logs",
            folder=self.scratch,
            role="boot",
            disk=disk,
            nic=None if found is None or place.tap is None else Nic(place.tap, found.mac),
            words=words,
            cpus=place.cpus,
        )

    def _await(self, place: _Place, name: str, *, prealloc: bool) -> Guest:
        home = self._taps[0]
        return Guest(
            self.blueprint,
            name=f"{self.session}-{name}",
            netns=place.netns,
            logs=self.site.scratch / "logs",
            folder=self.scratch,
            role="await",
            prealloc=prealloc,
            disk=self._layer if self.blueprint.disk else None,
            nic=None if home is None or place.tap is None else Nic(place.tap, home.mac),
            words=self.home.words,
            cpus=place.cpus,
        )

    def _keeping(self, *, keep_home: bool) -> Proxies:
        named = ("--keep-name", self.session)
        return Proxies(
            self.site.programs,
            self.wire,
            self.scope,
            self.trip_folder(),
            send=("--keep", str(self.kept), *named),
            receive=("--keep", str(self.kept_home), *named) if keep_home else (),
            cpus=self.cpus[::-1],
            back=True,
        )

    def _network(self, hosts: Hosts, tap: Tap) -> tuple[str, ...]:
        return (
            f"tare.address={tap.address}/{PREFIX_LENGTH}",
            f"tare.neighbour={hosts.client_address},{hosts.client_mac}",
        )

    def _new_layer(self, name: str) -> Path:
        path = self.scratch / f"{name}.qcow2"
        return self._debian.layer(path) if self._debian else path

    def _loading(self, kind: str) -> AbstractContextManager[process.Running]:
        pressed = {"stays": 2, "migrates": 0}
        if self.plot.peer == "warm":
            pressed["peer"] = 3
        addresses = [
            f"{name}={tap.address}" for name, at in pressed.items() if (tap := self._taps[at])
        ]
        argv = (
            *python_module("tare.workloads.migration.load"), kind,
            "--rate", f"{self.plot.rate:g}", "--seed", str(self._seed),
            *addresses,
        )  # fmt: skip
        running = process.start(Command(argv, netns=self.site.hosts.client_ns), name="load")
        try:
            running.event(_LOAD_TIMEOUT_S)
        except TareError:
            running.kill()
            raise
        return running

    def _facts(self) -> dict[str, Any]:
        return {
            "accelerator": self.blueprint.accelerator,
            "qemu": self.blueprint.hypervisor.version,
            "memory_bytes": self.blueprint.memory_bytes,
            "source_processors": list(self.cpus[0]),
            "destination_processors": list(self.cpus[1]),
            "cpu_quota": "none",
            "image": self._debian.digest if self._debian else "tiny",
            "packages": self._debian.versions if self._debian else {},
        }


def _prepare(guest: Guest) -> None:
    """Take every capability of the last trial away."""
    off = dict.fromkeys(("xbzrle", "multifd"), False)
    guest.allow({"events": True, "return-path": True, **off}, {"max-bandwidth": _UNLIMITED})


def _blueprint(plot: MigrationLevels, site: Site, debian: Debian | None) -> Blueprint:
    kernel = Kernel.fetch(site.cache)
    lab = Image.build(kernel, site.programs, site.cache)
    accelerator = probe.accelerator(Host(site), kernel, lab, site.cache).accelerator
    qemu = choose(accelerator, site.programs)
    if debian is not None:
        return Blueprint(qemu, debian.kernel, debian.initrd, True, accelerator, plot.memory)
    initrd = tiny.pack(site.cache).path
    return Blueprint(qemu, kernel.vmlinuz, initrd, False, accelerator, plot.memory)


def _opened(stack: ExitStack, tap: Tap) -> int:
    """Open a tap of the bridge's namespace, for a QEMU of another one to inherit."""
    descriptor = netns.open_tap(tap.netns, tap.name, vnet_header=True)
    stack.callback(os.close, descriptor)
    return descriptor
