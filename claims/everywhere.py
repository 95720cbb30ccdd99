"""What is claimed of every environment: seen in each, inconclusive where one is not here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from claims.checking import Workshop
from tare import environments
from tare.stats.bounds import Kept, all_kept
from tare.testing.far_machine import require_sshd

Seen = TypeVar("Seen")


def in_each(
    workshop: Workshop, look: Callable[[str], Seen], among: Collection[str] = ()
) -> tuple[dict[str, Seen], dict[str, str]]:
    """What was seen in each environment, by its name; and why others are not here.

    Args:
        workshop: what the claim may use.
        look: at one of them.
        among: those that are spoken of; all where none is named.

    Raises:
        UnavailableError: nothing here can stand for a far machine.
    """
    if not among:
        require_sshd(workshop.programs)
    kinds = environments.by_name()
    here = {name: kinds[name].availability() for name in among or kinds}
    absent = {name: found.detail for name, found in here.items() if not found.available}
    return {name: look(name) for name in here if name not in absent}, absent


def judged(kept: Mapping[str, bool], absent: Mapping[str, str]) -> Kept:
    """An environment that is not here decides nothing, and leaves the claim inconclusive."""
    return all_kept([*map(Kept.counted, kept.values()), *(Kept.INCONCLUSIVE for _ in absent)])


def absence(absent: Mapping[str, str]) -> str:
    """Name what was not tried, at the end of a line."""
    return "".join(f"; not tried, {name}: {why}" for name, why in absent.items())
