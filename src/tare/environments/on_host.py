"""An environment whose programs are processes of a host: that itself, and the base of others."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tare import accounting
from tare.accounting import Account
from tare.command import Command
from tare.environments import Facts, Inside, Kind, Site
from tare.host import Host, Process, resolved
from tare.trees.merged import Merged


class OnAnyHost(Kind):
    """An environment that is made on this machine, and held by another: `ssh user@host/NAME`."""

    needs: tuple[str, str]
    """A program that the host must have, and its Debian package."""

    @abstractmethod
    def with_options(self, plot: Mapping[str, str]) -> OnAnyHost:
        """The one that a plot's canonical levels ask for."""

    @abstractmethod
    def on(self, site: Site, host: Host) -> AbstractContextManager[Inside]:
        """Enter it on a host."""

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Enter it on this machine."""
        with self.on(site, Host(site)) as inside:
            yield inside


class InsideHost:
    """See `Inside`: its programs are ordinary processes of a host.

    Args:
        host: which.
        kind: of environment, for the session's name.
        facts: what the report must name beside the host's facts.
        within: what each program is started by, such as `chroot FOLDER`.
        merged: the tree that it is started in instead, with its user's rights.
    """

    def __init__(
        self,
        host: Host,
        kind: str,
        facts: Mapping[str, Any] | None = None,
        within: Sequence[str] = (),
        merged: Merged | None = None,
    ) -> None:
        self.host = host
        self.address = host.address
        self.interface = host.interface
        self.session = f"{kind}-{secrets.token_hex(4)}"
        told = merged.facts() if merged else {}
        self.facts = Facts.model_validate({**host.facts, **told, **(facts or {})})
        self._within = within
        self._merged = merged

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Server:
        """Start a fresh process."""
        name = Path(argv[0]).name
        process = self.host.start(self._placed(argv, env), name=name)
        return Server(self.host, process, process.pid)

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a program to its end."""
        return self.host.run(self._placed(argv, env), timeout_s)

    def _placed(self, argv: Sequence[str], env: Mapping[str, str] | None) -> Command:
        command = self.host.placed(argv, env, self._within)
        return self._merged.rooted(command, argv) if self._merged else command


class Server(AbstractContextManager["Server"]):
    """See `ServerProcess`.

    Args:
        host: that it runs on.
        process: what speaks for it: itself, or the program that started it.
        pid: its own, as the host sees it.
    """

    def __init__(self, host: Host, process: Process, pid: int) -> None:
        self.pid = pid
        self._host = host
        self._process = process

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        return self._process.event(timeout_s)

    def account(self) -> Account:
        """Snapshot what its threads and the kernel's have consumed so far."""
        server = self._host.account(self.pid, "server", self._host.interface)
        return accounting.combined(server, self._host.kernel_account())

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return self._process.alive()

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        return self._process.stderr()

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line; kill it after the timeout."""
        return self._process.stop(timeout_s)

    def __exit__(self, *raised: object) -> None:
        self._process.__exit__(None, None, None)
        self._host.see_off(self.pid)


def beside(
    site: Site, argv: Sequence[str], party: str, namespace: str, cpus: tuple[int, ...]
) -> Server:
    """Start a process of this machine beside the environment.

    Args:
        site: whose hosts there are.
        argv: what runs, as `resolved` takes it.
        party: on whose behalf, for its log's name.
        namespace: the network namespace that it runs in.
        cpus: processors that it may use; any, where empty.
    """
    host = Host(site)
    command = Command(resolved(argv, site.programs), netns=namespace, cpus=cpus)
    process = host.start(command, name=f"{party}-{command.name}")
    return Server(host, process, process.pid)
