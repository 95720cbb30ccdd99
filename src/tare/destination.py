"""The name of another machine, which can be read where nothing connects to one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tare.errors import UsageError

_TARGET = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
    r"(?::(?P<port>[0-9]{1,5}))?(?: from (?P<netns>[A-Za-z0-9][A-Za-z0-9._-]{0,63}))?"
)


@dataclass(frozen=True)
class Destination:
    """A machine to connect to, as `user@host:port from NAMESPACE`; only the host must be there.

    Attributes:
        host: a name or an IPv4 address, or a `Host` of the user's ssh configuration.
        user: None leaves it to that configuration.
        port: None leaves it to that configuration.
        netns: network namespace of this machine from which it is reached; None is our own.
    """

    host: str
    user: str | None = None
    port: int | None = None
    netns: str | None = None

    @staticmethod
    def parse(text: str) -> Destination:
        """Read a destination.

        Raises:
            UsageError: it is none.
        """
        match = _TARGET.fullmatch(text)
        if match is None or (match["port"] and not 0 < int(match["port"]) < 1 << 16):
            raise UsageError(
                f"{text!r} names no machine: write user@host, user@host:port, or a Host of your ssh"
                " configuration"
            )
        port = int(match["port"]) if match["port"] else None
        return Destination(match["host"], match["user"], port, match["netns"])

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{user}{self.host}{port}" + (f" from {self.netns}" if self.netns else "")
