"""Which processors each party may use: a factor, never an accident.

Across two cores a UDP round trip takes seven times as long as on one (a sleeping core must be woken
by an interrupt), so that a comparison with unstated placement compares placements.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tare.errors import UnavailableError, UsageError

_PARTIES = ("client", "server", "vmm", "vcpus")
_SIDES: dict[str, tuple[str, ...]] = {"host": ("client",), "guest": ("server", "vmm", "vcpus")}
"""Host and guest of paper B: a process beside the environment, and the environment whole."""
_NAMED = ("same-core", "across-cores", "anywhere")
_NTH = {"first": 0, "second": 1}
_SET = re.compile(r"(?P<party>[a-z]+)=(?P<cpus>[0-9]{1,5}(?:,[0-9]{1,5})*|first|second|all)")

PINNINGS = (
    "host=first guest=first",
    "host=first guest=second",
    "host=second guest=first",
    "host=second guest=second",
    "host=all guest=all",
    "host=all guest=first",
    "host=all guest=second",
)
"""Paper B's seven (Fig. 4), on a machine with any number of processors from two on: its core 0 is
the first, its core 1 the second, and "0,1" all that there are."""


@dataclass(frozen=True)
class Placement:
    """Processors of this machine for each party, and the class of client and native server.

    An empty tuple leaves the choice to the kernel. QEMU never runs under SCHED_FIFO, whatever
    `fifo` says: a vCPU thread that spins there hogs a core for minutes.
    """

    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    vmm: tuple[int, ...] = ()
    """QEMU's main thread and its I/O threads."""
    vcpus: tuple[int, ...] = ()
    """QEMU's virtual processors."""
    fifo: int | None = None
    """SCHED_FIFO priority, or None for SCHED_OTHER."""

    @staticmethod
    def here(written: str) -> Placement:
        """Resolve what `parse` reads to the processors that this process may use.

        Raises:
            UsageError: it cannot be read.
            UnavailableError: it asks for a processor that this machine does not offer.
        """
        text = parse(written)
        present = tuple(sorted(os.sched_getaffinity(0)))
        last = present[-1:]
        if text == "anywhere":
            return Placement()
        if text == "same-core":
            return Placement(last, last, last, last)
        if text == "across-cores":
            if len(present) < 2:
                raise UnavailableError(f"{text!r} needs two processors; this machine offers one")
            return Placement(present[-2:-1], last, last, last)
        sets = {
            party: _processors(cpus, text, present)
            for side, cpus in _sets(text).items()
            for party in _parties(side)
        }
        return Placement(
            client=sets.get("client", ()),
            server=sets.get("server", ()),
            vmm=sets.get("vmm", ()),
            vcpus=sets.get("vcpus", ()),
        )


def parse(written: object) -> str:
    """Read `same-core`, `across-cores`, `anywhere`, or sets as `client=0 server=1 vcpus=0,1`.

    A set is numbers, `first`, `second` or `all` of a machine's processors. `host` stands for the
    client's side, `guest` for server, VMM and virtual processors together.

    `same-core` takes the last processor for everyone (interrupts tend to the first);
    `across-cores` takes the last for server and guest and the one before it for the client. A
    party that explicit sets leave out may run anywhere.

    Whether this machine has such processors is no matter here: a result is read on any machine.

    Returns:
        Its one canonical text, as asked and not as found: the same words mean the same on the next
        machine.

    Raises:
        UsageError: it is none of these.
    """
    text = str(written).strip()
    if text in _NAMED:
        return text
    return " ".join(f"{side}={cpus}" for side, cpus in _sets(text).items())


def _sets(text: str) -> dict[str, str]:
    """Side or party -> its processors as asked for, in the canonical order."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for word in text.split():
        match = _SET.fullmatch(word)
        parties = _parties(match["party"]) if match else ()
        if match is None or not parties or taken.intersection(parties):
            raise UsageError(
                f"cannot read the placement {text!r}: write same-core, across-cores, anywhere, or"
                f" sets for {', '.join((*_SIDES, *_PARTIES))} such as 'client=0 server=1' or"
                " 'host=first guest=all'"
            )
        taken.update(parties)
        cpus = match["cpus"]
        named = cpus in (*_NTH, "all")
        found[match["party"]] = cpus if named else ",".join(map(str, _numbers(cpus)))
    if not found:
        raise UsageError("the placement is empty: write same-core, across-cores or anywhere")
    return {side: found[side] for side in (*_SIDES, *_PARTIES) if side in found}


def _parties(written: str) -> tuple[str, ...]:
    return _SIDES.get(written, (written,) if written in _PARTIES else ())


def _numbers(cpus: str) -> tuple[int, ...]:
    return tuple(sorted({int(cpu) for cpu in cpus.split(",")}))


def _processors(asked: str, text: str, present: tuple[int, ...]) -> tuple[int, ...]:
    if asked == "all":
        return present
    if asked in _NTH:
        if _NTH[asked] >= len(present):
            raise UnavailableError(
                f"the placement {text!r} needs two processors; this machine offers one"
            )
        return (present[_NTH[asked]],)
    cpus = _numbers(asked)
    if absent := [cpu for cpu in cpus if cpu not in present]:
        raise UnavailableError(
            f"the placement {text!r} names processor {absent[0]}; this machine offers"
            f" {', '.join(map(str, present))}"
        )
    return cpus
