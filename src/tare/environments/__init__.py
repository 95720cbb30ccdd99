"""Where a workload's server runs: one file an environment, which it offers as `ENVIRONMENT`.

Every environment runs the same native binaries behind the same bridge, so that only the layer
differs. The client always stays on the host, in the client's namespace (`hosts.py`).

The life of an environment is enter, run, address, account, leave:

    with environment.enter(site) as inside:        # a guest boots, a container is set up
        with inside.start(program, ...) as server: # a fresh process, once a trial
            server.event(timeout_s=5)              # {"event": "ready", ...}
            ... inside.address ... server.account() ...

Leaving is a context manager's exit: nothing stays behind, whatever fails inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from tare import capabilities, discovery, rootless
from tare.accounting import Account
from tare.errors import UsageError
from tare.site import Site as Site
from tare.told import Told

CAPABILITIES: Mapping[str, str] = {
    "network": "a throughput measured between it and the hosts",
    "disk": "a block device read and written in it",
    "pinning": "its processors chosen",
    "accounting": "the processor time of every thread involved",
}


@dataclass(frozen=True)
class Availability:
    """Whether an environment can run here, and if not, why, and what would make it run."""

    available: bool
    detail: str
    """What was found: versions, the accelerator; or the reason for "no"."""
    remedy: str | None = None
    can: frozenset[str] = frozenset()
    """What it can be asked for: a subset of `CAPABILITIES`."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """For what it cannot be asked for: the reason, and what to do instead."""


def for_root(
    detail: str,
    cannot: Mapping[str, str] | None = None,
    *,
    also_rootless: bool = False,
    needs: Sequence[str] = (),
) -> Availability:
    """What is there, for a user who is root; with every capability that is not said to be lacking.

    Args:
        detail, cannot: as `Availability` has them.
        also_rootless: whether root of a user namespace will do.
        needs: capabilities that it takes beside `capabilities.RUN`.
    """
    if not (rootless.is_root() or (also_rootless and rootless.is_on())):
        return Availability(False, f"{detail}, but this user is not root", "run as root")
    if absent := capabilities.lacking(*capabilities.RUN, *needs):
        return Availability(False, f"{detail}, but {absent}", capabilities.REMEDY)
    if also_rootless and rootless.is_on():
        cannot = {"disk": "a loop device is root's. Run as root", **(cannot or {})}
    cannot = cannot or {}
    return Availability(True, detail, can=frozenset(CAPABILITIES) - set(cannot), cannot=cannot)


@dataclass(frozen=True)
class Row:
    """What plans and reports know of an environment.

    Attributes:
        heading: what a table calls it, such as "QEMU guest".
        phrase: where it is, such as "in the QEMU guest".
        own_kernel: whether a kernel of its own runs its programs, beside or below the host's.
        setup_s: expected duration of entering it and calibrating in it.
        session_s, request_s: what a session of request and reply costs there, and each request. All
            three are for the plan's estimate; a progress bar corrects itself by what it sees.
    """

    heading: str
    phrase: str
    own_kernel: bool = False
    setup_s: float = 5.0
    session_s: float = 5.0
    request_s: float = 1e-3


class ServerProcess(AbstractContextManager["ServerProcess"], Protocol):
    """A process inside an environment. Its exit ends the process, whatever happened before."""

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output.

        Raises:
            TrialError: it ended, or said nothing in time; the message holds its last stderr.
        """
        ...

    def account(self) -> Account:
        """Snapshot what it and the layer below it have consumed so far."""
        ...

    def alive(self) -> bool:
        """Tell whether it still runs. In a guest, asking takes some of its processor."""
        ...

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        ...

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end (SIGTERM) and return its last JSON line; kill it after the timeout."""
        ...


class Facts(Told):
    """What the report must name of an environment, and what is read of it."""

    accelerator: str | None = None
    """What runs a guest's instructions: kvm or tcg; None where there is no guest."""
    accelerator_reason: str | None = None
    disk: str | None = None
    """Path of the block device that is measured."""
    null_disk: str | None = None
    """Path of a device that does nothing, in a machine: what reaching it costs."""


class Inside(Protocol):
    """An entered environment."""

    address: str
    """IPv4 address at which the client reaches the server."""
    interface: str
    """Name of the network interface inside, to which DDS is restricted."""
    session: str
    """Names the whole plot (a guest boot, a container start); the record keeps it."""
    facts: Facts
    """What the report must name: accelerator, kernel, versions, machine options."""

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> ServerProcess:
        """Start a fresh process; argv[0] is a path below `Site.programs`, e.g. "echo/echo-udp"."""
        ...

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a program to its end inside and return its standard output.

        Raises:
            TrialError: it failed or took too long.
        """
        ...


class Environment(Protocol):
    """One kind of place to run in. Constructed without effects; `options` come from factors."""

    name: str

    def availability(self) -> Availability:
        """Tell whether it runs here, with its options; cheap or cached, since a plan asks too."""
        ...

    def enter(self, site: Site) -> AbstractContextManager[Inside]:
        """Boot or set it up, attached to the bridge of `site.hosts`."""
        ...


class Kind(Environment, Protocol):
    """An environment that can be asked for by a level of the factor `environment`."""

    row: Row

    def with_options(self, plot: Mapping[str, str]) -> Environment:
        """The one that a plot's canonical levels ask for; its own options where they are silent.

        Whether it can be had with those is for its `availability` to say.
        """
        ...


FAR = "ssh"
"""The kind that is not: its level goes on with which machine, as `ssh user@host:port`, and with
what on it, as `ssh user@host:port/container`."""

Machine = tuple[str, str | None]
"""Another one: its name or address, and the network namespace that it is reached from. Without user
and port, since two of them may be one machine's."""


@cache
def by_name() -> Mapping[str, Kind]:
    """Every environment of this version, the cheapest first."""
    found: list[Kind] = [*discovery.offered(__name__, "ENVIRONMENT")]
    found.sort(key=lambda kind: (kind.row.setup_s, kind.name))
    return {kind.name: kind for kind in found}


def names() -> tuple[str, ...]:
    """Every environment that is on this machine, the cheapest first."""
    return tuple(name for name in by_name() if name != FAR)


def row(level: str) -> Row:
    """What is known of where a canonical level is; of none of this version, what it is called."""
    kind, _, which = level.partition(" ")
    if kind not in by_name():
        return Row(level, f"in {level}")
    found = by_name()[kind].row
    return replace(found, heading=level, phrase=f"in {level}") if which else found


def level(written: object) -> str:
    """Read a level of the factor `environment`; return its one canonical text.

    Raises:
        UsageError: it names no environment.
    """
    words = str(written).split()
    if words[:1] == [FAR]:
        from tare.environments.ssh import Ssh  # noqa: PLC0415 - it imports this module

        return f"{FAR} {Ssh.parse(' '.join(words[1:]))}"
    if written not in names():
        raise UsageError(
            f"{written!r} is not one of {', '.join(names())}, nor `{FAR} user@host:port`"
        )
    return str(written)


def named(written: str) -> Environment:
    """Return the environment that a canonical level names, with default options."""
    return for_plot({"environment": written})


def for_plot(plot: Mapping[str, str]) -> Environment:
    """Return the environment that a plot asks for, with its options; native where it names none.

    Args:
        plot: factor -> canonical level.
    """
    kind = plot.get("environment", "native").partition(" ")[0]
    return by_name()[kind].with_options(plot)


def place(environment: Environment, plot: Mapping[str, str]) -> str:
    """Where a plot is measured: the level says which machine, where there are several of a kind."""
    return plot.get("environment", environment.name)


def is_far(level: str) -> bool:
    """Whether a canonical level is on another machine."""
    return level.startswith(FAR)


def machine(level: str) -> Machine | None:
    """Which other machine a canonical level is on; None where it is on this one."""
    if not is_far(level):
        return None
    from tare.environments.ssh import Ssh  # noqa: PLC0415 - it imports this module

    destination = Ssh.parse(level.partition(" ")[2]).destination
    return None if destination is None else (destination.host.lower(), destination.netns)


def is_guest_of_qemu(level: str) -> bool:
    """Whether what a QEMU guest is made of means something for a canonical level."""
    place = level.partition(" from ")[0]
    return place == "qemu" or (place.startswith(FAR) and place.endswith("/qemu"))
