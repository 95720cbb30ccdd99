"""What carries request and reply: a row each; the program of each is made of a file of `echo/`.

Checks, refusals, doctor, report and tests follow from the rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PORT = 7400
"""Where a server listens that is reached by a port."""

_LONGEST = 1 << 26
_IN_A_PACKET = 65_483
"""Bytes of an array in one IPv4 packet: below the headers of IP, of UDP or ICMP, and of echo."""
_BUILD = "build it: `make build`"


@dataclass(frozen=True)
class Transport:
    """One of them.

    Attributes:
        name: its level; its program is `echo/echo-NAME`.
        words: its name in sentences.
        remedy: what to do where its program is not built.
        domain: of a DDS, one each: on one domain they match each other and spoil both.
        datagram: whether a message has to fit into one packet.
        answered_by: the server; the kernel of its machine, where the server only looks on; or the
            client itself, which needs none.
        capabilities: of root's, those that its client takes, as setpriv has them.
        start_s: what a session takes beyond one of UDP's, for the plan's estimate.
        times: how many times as long as UDP's a request takes, for the same.
    """

    name: str
    words: str
    remedy: str = _BUILD
    domain: int | None = None
    datagram: bool = False
    answered_by: Literal["server", "kernel", "client"] = "server"
    capabilities: tuple[str, ...] = ()
    start_s: float = 0.0
    times: float = 1.0

    @property
    def program(self) -> str:
        """Its path below the build directory."""
        return f"echo/echo-{self.name}"

    @property
    def has_port(self) -> bool:
        """Whether its server listens at a port that is chosen."""
        return self.answered_by == "server" and self.domain is None

    @property
    def most_bytes(self) -> int:
        """Of an array that it carries."""
        return _IN_A_PACKET if self.datagram else _LONGEST

    def missing(self, programs: Path) -> str | None:
        """What to do before it can be used; None where its program is built."""
        return None if os.access(programs / self.program, os.X_OK) else self.remedy


ROWS = (
    Transport("icmp", "ICMP echo", datagram=True, answered_by="kernel", capabilities=("net_raw",)),
    Transport("udp", "UDP", datagram=True),
    Transport("tcp", "TCP"),
    Transport(
        "cyclonedds",
        "Cyclone DDS",
        "install cyclonedds-dev, then `make build`",
        domain=11,
        start_s=0.12,
        times=1.7,
    ),
    Transport(
        "fastdds",
        "Fast DDS",
        "install libfastdds-dev (Debian 12: libfastrtps-dev), libfastcdr-dev and fastddsgen, then"
        " `make build`",
        domain=12,
        start_s=0.25,
        times=4.5,
    ),
    Transport("zeromq", "ZeroMQ", "install libzmq3-dev, then `make build`"),
    Transport(
        "connext",
        "RTI Connext",
        "RTI Connext needs your own installation and licence: configure with"
        " `cmake -S . -B build -DRTI_CONNEXT_DIR=/path/to/rti_connext_dds-X.Y.Z`, set"
        " RTI_LICENSE_FILE, then `make build`",
        domain=13,
    ),
    Transport("null", "no transport", answered_by="client"),
)


def by_name() -> Mapping[str, Transport]:
    """Every transport of this version."""
    return {transport.name: transport for transport in ROWS}


def words(level: str) -> str:
    """What a level is called in sentences; itself, where it is none of this version."""
    return by_name()[level].words if level in by_name() else level


def served(level: str | None) -> bool:
    """Whether a server's process answers what a level carries, as far as this version knows."""
    row = by_name().get(level or "")
    return row is None or row.answered_by == "server"


def answered_by_kernel(program: str) -> Transport | None:
    """The transport of a program that only looks on while the kernel answers."""
    rows = (row for row in ROWS if row.answered_by == "kernel" and row.program == program)
    return next(rows, None)


def is_dds(level: str | None) -> bool:
    """Whether a level is a DDS."""
    row = by_name().get(level or "")
    return row is not None and row.domain is not None


def ports() -> tuple[int, ...]:
    """All that a client may have to reach, for an environment that must pass ports on one by one.

    A DDS has two UDP ports for the first participant of its domain (DDS Interoperability Wire
    Protocol 2.5, section 9.6.2.4).
    """
    domains = [transport.domain for transport in ROWS if transport.domain is not None]
    return (PORT, *(7400 + 250 * domain + 10 + n for domain in domains for n in (0, 1)))
