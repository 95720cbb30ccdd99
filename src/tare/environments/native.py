"""The server as a plain process of the host, in the server's network namespace."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tare import process
from tare.command import Command
from tare.environments import (
    Availability,
    Inside,
    Row,
    ServerProcess,
    Site,
    for_root,
    scratch_disk,
)
from tare.environments.on_host import OnHostServer, real_time, resolved
from tare.environments.scratch_disk import Device, Disk, device_of

__all__ = ["ENVIRONMENT", "InsideWithMore", "Native"]


@dataclass(frozen=True)
class Native:
    """The baseline: no layer but the kernel's own.

    Attributes:
        device: a disk to be measured, if one is asked for.
    """

    device: Device | None = None
    name = "native"
    row = Row("Host", "on the host", setup_s=0.3, session_s=0.25, request_s=60e-6)

    def with_options(self, plot: Mapping[str, str]) -> Native:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether this user can make the namespaces that every environment needs."""
        if self.device == "nfs":
            return scratch_disk.NO_NFS
        return for_root(f"Linux {platform.release()}")

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Enter the server's namespace; there is nothing to set up."""
        with scratch_disk.on_host(site, self.device) as disk:
            yield _InsideNative(site, disk)


ENVIRONMENT = Native()


class _InsideNative:
    def __init__(self, site: Site, disk: Disk | None) -> None:
        self._site = site
        self.address = site.hosts.server_address
        self.interface = site.hosts.server_interface
        self.session = f"native-{secrets.token_hex(4)}"
        self.facts: Mapping[str, Any] = {
            "kernel": platform.release(),
            **(disk.facts() if disk else {}),
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> OnHostServer:
        running = process.start(self._command(argv, env), log_dir=self._site.scratch / "logs")
        return OnHostServer(running, self.interface, running.pid)

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        return process.run(self._command(argv, None), timeout_s).stdout

    def _command(self, argv: Sequence[str], env: Mapping[str, str] | None) -> Command:
        placement = self._site.placement
        return Command(
            resolved(argv, self._site.programs),
            env=env or {},
            netns=self._site.hosts.server_ns,
            cpus=placement.server,
            fifo=real_time(argv, placement),
        )


class InsideWithMore:
    """An entered native environment in which a workload has set up more of its own."""

    def __init__(self, native: Inside) -> None:
        self._native = native
        self.address = native.address
        self.interface = native.interface
        self.session = native.session
        self.facts: Mapping[str, Any] = native.facts

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> ServerProcess:
        """Start a process on the host."""
        return self._native.start(argv, env)

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        """Run a process on the host."""
        return self._native.run(argv, timeout_s)
