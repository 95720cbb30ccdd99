"""B5: every environment entered and left a hundred times; nothing stays, and memory is flat."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claims.checking import Found, Workshop
from claims.everywhere import absence, in_each, judged
from tare import environments
from tare.command import owner_mark
from tare.environments import Site
from tare.testing import traces
from tare.testing.site import site_for

ROUNDS = 100
_SETTLED = 20
"""Rounds after which what is kept for good (imports, caches) is kept."""
_GROWTH = 0.05
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Rounds:
    """What was seen of an environment's rounds."""

    entered: int
    left: tuple[str, ...]
    """What was still there after a round, beyond what was there before the first."""
    memory_kb: tuple[int, int]
    """Resident memory of this process when it had settled, and after the last round."""

    @property
    def growth(self) -> float:
        """Share by which memory grew."""
        return self.memory_kb[1] / self.memory_kb[0] - 1


def enter_and_leave(workshop: Workshop, name: str, rounds: int = ROUNDS) -> Rounds:
    """Enter an environment again and again, run a program in it, and look after each time."""
    settled = 0
    left: list[str] = []
    with site_for(name, workshop.programs, workshop.cache) as (level, site):
        environment = environments.for_plot({"environment": level})
        _once(environment, site)  # packs images, and writes logs
        before = _there(site)
        for number in range(rounds):
            _once(environment, site)
            left += [f"round {number}: {what}" for what in _there(site) - before]
            if number + 1 == min(_SETTLED, rounds):
                settled = _resident_kb()
            if number % 10 == 9:
                workshop.say(f"{name}: {number + 1} of {rounds} rounds")
        return Rounds(rounds, tuple(left), (settled, _resident_kb()))


def _once(environment: environments.Environment, site: Site) -> None:
    with environment.enter(site) as inside:
        inside.run(("uname", "-r"), _TIMEOUT_S)


def _there(site: Site) -> set[str]:
    """Everything of this run that can be seen: traces, open descriptors, threads."""
    found = set(traces.of_run(site.leftovers.run_id))
    found |= {f"process {pid}" for pid in traces.processes_of(owner_mark())}
    found |= {f"file {path.name}" for path in site.scratch.iterdir() if path.name != "logs"}
    found.add(f"{len(list(Path('/proc/self/fd').iterdir()))} descriptors")
    return found


def _resident_kb() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def nothing_stays(workshop: Workshop) -> Found:
    """B5: in every environment."""
    found, absent = in_each(workshop, lambda name: enter_and_leave(workshop, name))
    kept = {name: not r.left and r.growth <= _GROWTH for name, r in found.items()}
    figure = "; ".join(
        f"{name} {rounds.entered} times, {len(rounds.left)} left, memory {rounds.growth:+.1%}"
        for name, rounds in found.items()
    )
    data: dict[str, Any] = {
        name: {"rounds": r.entered, "left": list(r.left), "memory_kb": list(r.memory_kb)}
        for name, r in found.items()
    }
    verdict = judged(kept, absent)
    return Found(figure + absence(absent), {**data, "absent": absent}, counted=verdict)
