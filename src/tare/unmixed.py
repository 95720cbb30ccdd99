"""What trials of one cell share, or are not merged: a guest's accelerator, and which machine it is.

A run stops rather than mix: failed trials would not be measured again once all is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from tare import machine
from tare.environments import Facts, is_far
from tare.errors import TareError

_OF_A_MACHINE = {
    "host_id": "identity (/etc/machine-id)",
    "kernel": "kernel",
    "host_kernel": "kernel",
    "processor": "processor",
    "host_processors": "processors",
    "host_memory": "memory",
}
"""Facts of a far machine that are the same as long as it is, in words."""

_Key = tuple[str | None, ...]


class Unmixed:
    """What the first measured trials ran on."""

    def __init__(self) -> None:
        self._accelerators: dict[_Key, str] = {}
        self._machines: dict[str, Mapping[str, object]] = {}

    def keep(self, levels: Mapping[str, str], facts: Facts) -> None:
        """Remember what a measured trial ran on, if it is the first.

        Args:
            levels: the cell's.
            facts: the trial's.
        """
        if facts.accelerator is not None:
            self._accelerators.setdefault(_guest(levels), facts.accelerator)
        if is_far(level := levels.get("environment", "")):
            self._machines.setdefault(level, facts.whole)

    def refuse_other(self, name: str, plot: Mapping[str, str], facts: Facts) -> None:
        """See that what has been entered is what it was.

        Args:
            name: of the environment.
            plot: its levels.
            facts: what it says of itself.

        Raises:
            TareError: it runs under another accelerator, or is another machine.
        """
        self._refuse_other_accelerator(name, plot, facts)
        self._refuse_other_machine(plot.get("environment", ""), facts.whole)

    def _refuse_other_accelerator(self, name: str, plot: Mapping[str, str], found: Facts) -> None:
        first = self._accelerators.get(_guest(plot))
        if first is None or found.accelerator is None or found.accelerator == first:
            return
        why = f" ({found.accelerator_reason})" if found.accelerator_reason else ""
        raise TareError(
            f"{name} runs under {found.accelerator.upper()} now{why}, and its trials on record ran"
            f" under {first.upper()}: the two are not merged",
            f"resume it (`tare run --resume`) when guests run under {first.upper()} again, or start"
            " a new run",
        )

    def _refuse_other_machine(self, level: str, found: Mapping[str, object]) -> None:
        # Earlier versions told less of a machine.
        first = {k: v for k, v in self._machines.get(level, {}).items() if k in found}
        other = [f for f in _OF_A_MACHINE if f in first and _differ(f, first[f], found[f])]
        if other:
            told = ", ".join(f"{_OF_A_MACHINE[f]} {found[f]} and not {first[f]}" for f in other)
            raise TareError(
                f"{level} is another machine than its trials on record were measured on ({told}):"
                " the two are not merged",
                "name each machine by an address of its own, in a new run; or resume this one"
                " (`tare run --resume`) when the name leads to the first again",
            )


def _differ(fact: str, first: object, found: object) -> bool:
    if fact != "host_memory" or first == found:
        return first != found
    a, b = (int(str(told).split()[0]) for told in (first, found))  # "16303428 kB"
    return not machine.same_memory(a, b)


def _guest(levels: Mapping[str, str]) -> _Key:
    """What decides which accelerator a guest gets: where it runs, and what was asked for."""
    return tuple(levels.get(name) for name in ("environment", "accelerator"))
