"""The server as a plain process of a host; on this one, in the server's network namespace."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tare.environments import Availability, Inside, Row, Site, for_root, scratch_disk
from tare.environments.on_host import InsideHost, OnAnyHost
from tare.environments.scratch_disk import Device, device_of
from tare.host import Host
from tare.trees.merged import laid_out


@dataclass(frozen=True)
class Native(OnAnyHost):
    """The baseline: no layer but the kernel's own.

    Attributes:
        device: a disk to be measured, if one is asked for.
    """

    device: Device | None = None
    name = "native"
    row = Row("Host", "on the host", setup_s=0.25, session_s=0.12, request_s=60e-6)
    needs = ("env", "coreutils")

    def with_options(self, plot: Mapping[str, str]) -> Native:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether this user can make the namespaces that every environment needs."""
        if self.device == "nfs":
            return scratch_disk.NO_NFS
        return for_root(f"Linux {platform.release()}", also_rootless=True)

    @contextmanager
    def on(self, site: Site, host: Host) -> Iterator[Inside]:
        """Enter the server's namespace; there is nothing to set up."""
        with (
            scratch_disk.on_host(site, self.device) as disk,
            laid_out(site, own_kernel=True) as merged,
        ):
            facts = disk.facts() if disk else {}
            yield InsideHost(host, self.name, facts, merged=merged)


ENVIRONMENT = Native()
