"""Another machine, reached over ssh: a board, a rack's node, any hypervisor's guest.

The level names the machine, and what on it: `ssh user@host:port` is the machine itself,
`ssh user@host:port/container` and `ssh user@host:port/qemu` what it holds for the session. This
machine's programs are pushed there and go again; one connection is one session. There is no bridge
in between but the network that there is, so the client lives in this machine's own network (or the
namespace that the level names).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING

from tare.command import PATH, Command
from tare.destination import Destination
from tare.environments import CAPABILITIES, Availability, Inside, Row, Site, by_name
from tare.environments.native import Native
from tare.environments.on_host import OnAnyHost
from tare.environments.qemu import Qemu
from tare.environments.scratch_disk import Device, device_of
from tare.errors import TrialError, UsageError

if TYPE_CHECKING:
    from tare.far import Connection, FarHost

_NO_DISK = (
    "no device is made on a machine that is not ours; run Tare there, with `environment: native`"
)
_NO_TREE = "the files of this machine are not on another one, where a program would look for them"
_TIMEOUT_S = 20.0
_OWN_NETWORK = "/proc/self/ns/net"
_LEVEL = re.compile(r"(?P<machine>[^/]*?)(?:/(?P<held>[^/ ]*))?(?P<netns> from .*)?")


@dataclass(frozen=True)
class Ssh:
    """Another machine.

    Attributes:
        destination: which; None only stands for the kind, as in `tare doctor`.
        held: what the server runs in there; native is the machine itself.
        device: a disk to be measured; asked for one, it is not available.
    """

    destination: Destination | None = None
    held: OnAnyHost = field(default_factory=Native)
    device: Device | None = None
    name = "ssh"
    row = Row("Remote machine", "on the remote machine")

    @staticmethod
    def parse(text: str) -> Ssh:
        """Read what follows `ssh` in a level.

        Raises:
            UsageError: it names no machine, or nothing that one can hold.
        """
        match = _LEVEL.fullmatch(text)
        if match is None:
            return Ssh(Destination.parse(text))
        destination = Destination.parse(match["machine"] + (match["netns"] or ""))
        if match["held"] is None:
            return Ssh(destination)
        held = {n: kind for n, kind in by_name().items() if isinstance(kind, OnAnyHost)}
        del held[Native.name]  # the machine itself
        if match["held"] not in held:
            raise UsageError(
                f"{match['held']!r} is nothing that {destination.host} can hold: write"
                f" `ssh user@host:port/{'` or `/'.join(held)}`"
            )
        return Ssh(destination, held[match["held"]])

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        machine, of, netns = str(self.destination).partition(" from ")
        held = "" if self.held.name == Native.name else f"/{self.held.name}"
        return machine + held + of + netns

    def with_options(self, plot: Mapping[str, str]) -> Ssh:
        """The machine that a plot names, and what it asks for there."""
        named = Ssh.parse(plot["environment"].partition(" ")[2])
        # A device is no matter of what is held: there is none to be had.
        held = named.held.with_options({n: v for n, v in plot.items() if n != "device"})
        return Ssh(named.destination, held, device_of(plot))

    def availability(self) -> Availability:
        """Tell whether this machine can reach others. It connects to none."""
        if not shutil.which("strip", path=PATH):
            return Availability(False, "strip is not installed", "apt-get install binutils")
        if self.device is not None:
            return Availability(False, _NO_DISK)
        if isinstance(self.held, Qemu):
            # What a guest is made of comes from here; QEMU itself is the far machine's.
            made_of = self.held.availability()
            if not made_of.available:
                return made_of
        can = frozenset(CAPABILITIES) - {"disk"}
        detail = f"asyncssh {metadata.version('asyncssh')}; keys only, hosts by known_hosts"
        remedy = None
        if self.destination is None:
            remedy = (
                "name a machine as a level: `ssh user@host:port`; with `/container` or `/qemu`"
                " behind it, what that machine holds"
            )
        return Availability(True, detail, remedy, can=can, cannot={"disk": _NO_DISK})

    def unreachable(self) -> str | None:
        """Connect once, start a program, and say why that cannot be done; None where it can."""
        from tare.far import Connection, Folder  # noqa: PLC0415 - as above

        if self.destination is None:
            return None
        try:
            with Connection(self.destination) as connection:
                _check_shell(connection)
                with Folder(connection) as folder:
                    folder.try_out()
                program = self.held.needs[0]
                look = ["env", f"PATH={PATH}", "sh", "-c", f"command -v {program}"]
                found = connection.run(look, _TIMEOUT_S)
        except TrialError as error:
            return f"{error.what}; {error.remedy}" if error.remedy else error.what
        if found.code != 0:
            return f"{self.destination} has no {program}. Install it there"
        return None

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Connect, and keep a folder there as long as the connection lasts."""
        from tare.far import Connection, FarHost, Folder  # noqa: PLC0415 - as above

        if self.destination is None:
            raise UsageError("ssh names no machine", "write the level as `ssh user@host:port`")
        if site.tree is not None:
            raise TrialError(_NO_TREE, "run Tare there, with `environment: native`")
        with (
            Connection(self.destination) as connection,
            Folder(connection) as folder,
            site.hosts.client_elsewhere(
                self.destination.netns or _OWN_NETWORK, connection.own_address
            ),
        ):
            host = FarHost(site, connection, folder)
            if site.placement.fifo is not None and not isinstance(self.held, Qemu):
                _check_priority(host, site)
            with self.held.on(host.site, host) as inside:
                yield inside


ENVIRONMENT = Ssh()
_WORDS = "two\nlines"
"""What a login shell that is to be of use passes on as it is; those like csh do not."""
_LONGEST = 80


def _check_shell(connection: Connection) -> None:
    """See that the login shell there runs commands, and adds nothing to what they print."""
    done = connection.run(["printf", "%s", _WORDS], _TIMEOUT_S, name="a command")
    said = done.stdout.decode(errors="replace")
    if said == _WORDS:
        return
    if _WORDS in said:
        added = " ".join(said.replace(_WORDS, " ").split())[:_LONGEST]
        raise TrialError(
            f"the login shell of {connection.destination} prints words of its own: {added!r}",
            "have its start-up files print nothing where nobody is at a terminal",
        )
    told = " ".join(f"{done.stderr} {said}".split())[:_LONGEST]
    raise TrialError(
        f"the login shell of {connection.destination} does not run a command as sh would: {told!r}",
        "log in as a user whose shell is sh, bash, zsh or fish",
    )


def _check_priority(host: FarHost, site: Site) -> None:
    """See that real-time priority, if it is asked for, is given there."""
    try:
        host.run(Command(("true",), fifo=site.placement.fifo), _TIMEOUT_S)
    except TrialError as error:
        raise TrialError(
            f"{host.name} gives this user no real-time priority: {error.what}",
            "log in as root there, or measure with `scheduling: other`",
        ) from error
