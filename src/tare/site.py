"""What a plot is given to live in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tare.accounting import Account
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement
from tare.stopwatch import Stopwatch
from tare.tree import Tree

Watching = Callable[[Account, Account], AbstractContextManager[None]]
"""Looks on while a session is measured: (client's account, server's account) -> context."""


def unwatched(_client: Account, _server: Account) -> AbstractContextManager[None]:
    """Look away: measuring sessions carry no tracer."""
    return nullcontext()


@dataclass(frozen=True)
class Site:
    """What an environment is given to live in."""

    hosts: Hosts
    programs: Path
    """The build directory: holds echo/echo-udp, probe/probe, ..."""
    scratch: Path
    """A directory of this run alone, for sockets, bundles and logs; removed at the end."""
    cache: Path
    """Kept between runs: guest images by the hash of what they are made from."""
    leftovers: Registry
    placement: Placement = field(default_factory=Placement)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Told what is begun with, by whoever does it."""
    watching: Watching = unwatched
    """Open around the measured part of a session of requests."""
    tree: Tree | None = None
    """The files that a user's program sees, and whose rights it has; None of our own programs."""

    @property
    def passed(self) -> Path:
        """Where what a user's own process has to reach lies: others may pass it, and not list it.

        So everything in it has a mode that keeps them out.
        """
        return self.scratch.parent
