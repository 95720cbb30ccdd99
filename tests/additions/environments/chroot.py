"""The server in a chroot: the host's programs and libraries, read-only, below a root of ours."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.command import Command
from tare.environments import Availability, Inside, Row, Site, for_root
from tare.environments.on_host import InsideHost
from tare.host import Host

_SEEN = ("bin", "dev", "lib", "lib64", "usr")
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Chroot:
    """The host's kernel, network and processes; another root."""

    name = "chroot"
    row = Row("Chroot", "in a chroot", setup_s=0.4, session_s=0.25, request_s=60e-6)

    def with_options(self, plot: Mapping[str, str]) -> Chroot:
        """As it is: it has no options."""
        return self

    def availability(self) -> Availability:
        """Tell whether this user may change a process's root."""
        return for_root("chroot(2)", cannot={"disk": "it is given none; measure it natively"})

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Bind what is seen; every mount is on the list of what a run owes before it is there."""
        host = Host(site)
        root = site.scratch / f"chroot-{secrets.token_hex(4)}"
        there = [Path("/", name) for name in _SEEN if Path("/", name).is_dir()]
        with ExitStack() as stack:
            stack.enter_context(site.leftovers.owing("directory", str(root)))
            for folder in (*there, site.programs.resolve()):
                point = root / folder.relative_to("/")
                point.mkdir(parents=True)
                stack.enter_context(site.leftovers.owing("mount", str(point)))
                bind = ("mount", "--bind", "-o", "ro", str(folder), str(point))
                host.run(Command(bind), _TIMEOUT_S)
            yield InsideHost(host, self.name, {"root": "ours"}, within=("chroot", str(root)))


ENVIRONMENT = Chroot()
