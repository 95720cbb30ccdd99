"""Which processors each party may use: a factor, never an accident.

Across two cores a UDP round trip takes seven times as long as on one (a sleeping core must be woken
by an interrupt), so that a comparison with unstated placement compares placements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from tare.errors import UnavailableError, UsageError

PARTIES = ("client", "server", "vmm", "vcpus")
_SIDES: dict[str, tuple[str, ...]] = {"host": ("client",), "guest": ("server", "vmm", "vcpus")}
"""Host and guest of paper B: a process beside the environment, and the environment whole."""
_NAMED = ("same-core", "across-cores", "anywhere")
_NTH = {"first": 0, "second": 1}
_SET = re.compile(r"(?P<party>[a-z]+)=(?P<cpus>[0-9]{1,5}(?:,[0-9]{1,5})*|first|second|all)")

_SYSTEM = Path("/sys/devices/system/cpu")

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
    """Processors of a machine for each party, and the class of client and native server.

    An empty tuple leaves the choice to the kernel. QEMU never runs under SCHED_FIFO, whatever
    `fifo` says: a vCPU thread that spins there hogs a core for minutes.
    """

    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    vmm: tuple[int, ...] = ()
    """QEMU's main thread and its I/O threads."""
    vcpus: tuple[int, ...] = ()
    """QEMU's virtual processors."""
    _: KW_ONLY
    fifo: int | None = None
    """SCHED_FIFO priority, or None for SCHED_OTHER."""
    text: str = field(default="", compare=False)
    """As it was asked for; empty where it was not in words."""

    @staticmethod
    def here(
        written: str,
        parties: Sequence[str] = PARTIES,
        present: tuple[int, ...] = (),
        machine: str = "this machine",
    ) -> Placement:
        """Resolve what `parse` reads to processors of a machine.

        Args:
            written: the placement.
            parties: whose; the others are somewhere else.
            present: processors that there are; those that this process may use, if empty.
            machine: which, in words.

        Raises:
            UsageError: it cannot be read.
            UnavailableError: it asks for a processor that the machine does not offer.
        """
        text = parse(written)
        present = present or tuple(sorted(os.sched_getaffinity(0)))
        if text in ("same-core", "across-cores"):
            found = dict.fromkeys(parties, present[-1:])
            if text == "across-cores" and "client" in parties:
                if len(present) < 2:
                    raise UnavailableError(f"{text!r} needs two processors; {machine} offers one")
                found["client"] = (of_another_core(present[-1], present),)
        else:
            sets = {} if text == "anywhere" else _sets(text)
            found = {
                party: _processors(cpus, text, present, machine)
                for side, cpus in sets.items()
                for party in _parties(side)
                if party in parties
            }
        return Placement(*(found.get(party, ()) for party in PARTIES), text=text)

    def there(self, present: tuple[int, ...], machine: str) -> Placement:
        """The same where all but the client are on another machine, which has other processors.

        Args:
            present: the processors that it offers.
            machine: its name.

        Raises:
            UnavailableError: it does not offer one that is asked for.
        """
        if not self.text:
            return self
        far = Placement.here(self.text, PARTIES[1:], present, machine)
        return replace(far, client=self.client, fifo=self.fifo)


def of_another_core(cpu: int, among: Sequence[int]) -> int:
    """The last of this machine's processors that is not of one's core: its threads share that.

    Args:
        cpu: the one.
        among: of which; where all are of that core, its last other thread.
    """
    threads = _SYSTEM / f"cpu{cpu}/topology/thread_siblings_list"
    beside = in_list(threads.read_text()) if threads.exists() else ()
    others = [other for other in among if other != cpu]
    return next((other for other in reversed(others) if other not in beside), others[-1])


def in_list(text: str) -> tuple[int, ...]:
    """Read the kernel's own list of processors, such as `0-3,8`."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return tuple(cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1))


def parse(written: object) -> str:
    """Read `same-core`, `across-cores`, `anywhere`, or sets as `client=0 server=1 vcpus=0,1`.

    A set is numbers, `first`, `second` or `all` of a machine's processors. `host` stands for the
    client's side, `guest` for server, VMM and virtual processors together.

    `same-core` takes the last processor for everyone (interrupts tend to the first);
    `across-cores` takes the last for server and guest, and for the client the last before it that
    is no thread of its core; where there is one core alone, a report says so. A party that explicit
    sets leave out may run anywhere.

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
                f" sets for {', '.join((*_SIDES, *PARTIES))} such as 'client=0 server=1' or"
                " 'host=first guest=all'"
            )
        taken.update(parties)
        cpus = match["cpus"]
        named = cpus in (*_NTH, "all")
        found[match["party"]] = cpus if named else ",".join(map(str, _numbers(cpus)))
    if not found:
        raise UsageError("the placement is empty: write same-core, across-cores or anywhere")
    return {side: found[side] for side in (*_SIDES, *PARTIES) if side in found}


def _parties(written: str) -> tuple[str, ...]:
    return _SIDES.get(written, (written,) if written in PARTIES else ())


def _numbers(cpus: str) -> tuple[int, ...]:
    return tuple(sorted({int(cpu) for cpu in cpus.split(",")}))


def _processors(asked: str, text: str, present: tuple[int, ...], machine: str) -> tuple[int, ...]:
    if asked == "all":
        return present
    if asked in _NTH:
        if _NTH[asked] >= len(present):
            raise UnavailableError(
                f"the placement {text!r} needs two processors; {machine} offers one"
            )
        return (present[_NTH[asked]],)
    cpus = _numbers(asked)
    if absent := [cpu for cpu in cpus if cpu not in present]:
        raise UnavailableError(
            f"the placement {text!r} names processor {absent[0]}; {machine} offers"
            f" {', '.join(map(str, present))}"
        )
    return cpus
