"""Which processors each party may use: a factor, never an accident.

Across two cores a UDP round trip takes seven times as long as on one (a sleeping core must be woken
by an interrupt), so that a comparison with unstated placement compares placements.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tare.errors import UsageError

_PARTIES = ("client", "server", "vmm", "vcpus")
_SIDES: dict[str, tuple[str, ...]] = {"host": ("client",), "guest": ("server", "vmm", "vcpus")}
"""Host and guest of paper B: a process beside the environment, and the environment whole."""
_NTH = {"first": 0, "second": 1}
_SET = re.compile(r"(?P<party>[a-z]+)=(?P<cpus>[0-9]+(?:,[0-9]+)*|first|second|all)")

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
    """Host processors of each party, and the scheduling class of client and native server.

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
    name: str = "anywhere"
    """How the experiment file says it."""

    def __str__(self) -> str:
        """Return the canonical text that `parse` reads."""
        return self.name

    @staticmethod
    def parse(written: object) -> Placement:
        """Read `same-core`, `across-cores`, `anywhere`, or sets as `client=0 server=1 vcpus=0,1`.

        A set is numbers, `first`, `second` or `all` of this machine's processors. `host` stands for
        the client's side, `guest` for server, VMM and virtual processors together.

        `same-core` takes the last processor for everyone (interrupts tend to the first);
        `across-cores` takes the last for server and guest and the one before it for the client. A
        party that explicit sets leave out may run anywhere.

        Raises:
            UsageError: another word, or a processor that this machine does not have.
        """
        present = sorted(os.sched_getaffinity(0))
        text = str(written).strip()
        if text == "anywhere":
            return Placement()
        if text == "same-core":
            last = (present[-1],)
            return Placement(last, last, last, last, name=text)
        if text == "across-cores":
            if len(present) < 2:
                raise UsageError(f"'across-cores' needs two processors; this machine has {present}")
            last = (present[-1],)
            return Placement((present[-2],), last, last, last, name=text)
        return _explicit(text, frozenset(present))


def _explicit(text: str, present: frozenset[int]) -> Placement:
    sets: dict[str, tuple[int, ...]] = {}
    words = []
    for word in text.split():
        match = _SET.fullmatch(word)
        parties = _parties(match["party"]) if match else ()
        if match is None or not parties or any(party in sets for party in parties):
            raise UsageError(
                f"cannot read the placement {text!r}: write same-core, across-cores, anywhere, or"
                f" sets for {', '.join((*_SIDES, *_PARTIES))} such as 'client=0 server=1' or"
                " 'host=first guest=all'"
            )
        cpus = _processors(match["cpus"], text, present)
        sets |= dict.fromkeys(parties, cpus)
        # Written as asked, not as found: the same words mean the same on the next machine.
        named = match["cpus"] in (*_NTH, "all")
        words.append(f"{match['party']}={match['cpus'] if named else ','.join(map(str, cpus))}")
    if not sets:
        raise UsageError("the placement is empty: write same-core, across-cores or anywhere")
    order = (*_SIDES, *_PARTIES)
    words.sort(key=lambda word: order.index(word.partition("=")[0]))
    return Placement(
        client=sets.get("client", ()),
        server=sets.get("server", ()),
        vmm=sets.get("vmm", ()),
        vcpus=sets.get("vcpus", ()),
        name=" ".join(words),
    )


def _parties(written: str) -> tuple[str, ...]:
    return _SIDES.get(written, (written,) if written in _PARTIES else ())


def _processors(written: str, text: str, present: frozenset[int]) -> tuple[int, ...]:
    here = tuple(sorted(present))
    if written == "all":
        return here
    if written in _NTH:
        if _NTH[written] >= len(here):
            raise UsageError(f"the placement {text!r} needs two processors; this machine has one")
        return (here[_NTH[written]],)
    cpus = tuple(sorted({int(cpu) for cpu in written.split(",")}))
    if absent := [cpu for cpu in cpus if cpu not in present]:
        raise UsageError(
            f"the placement {text!r} names processor {absent[0]}; this machine offers"
            f" {', '.join(map(str, here))}"
        )
    return cpus
