"""What predictions start from, read from a result: native responses, the floor, the vector.

A prediction is refused, with the reason, where the result lacks any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tare import transports
from tare.analysis.sessions import Sessions
from tare.analysis.threads import lines_of
from tare.cell import Cell
from tare.errors import UsageError
from tare.predict.model import COLD, COSTS, Ground
from tare.record import Record
from tare.workloads import rows

STATISTICS = ("p50", "mean")
"""What can be predicted of a response."""
HOST = "native"
FLOOR = "udp"
_ALONE = {"mode": "closed", "clients": "1", "interference": "none"}
"""Levels without which responses wait for more than themselves."""
_OWN = ("transport", "reception")


@dataclass(frozen=True)
class Refusal:
    """A response that is not predicted, and why."""

    environment: str
    levels: Mapping[str, str]
    why: str
    remedy: str


@dataclass(frozen=True)
class Target:
    """A response to predict."""

    environment: str
    levels: Mapping[str, str]
    """Its levels, the environment's left out."""
    ground: Mapping[str, Ground]
    """Statistic -> what its prediction starts from."""

    @property
    def key(self) -> tuple[str, ...]:
        """Environment and levels in one, to find it in another result."""
        return key_of(self.environment, self.levels)


def key_of(environment: str, levels: Mapping[str, str]) -> tuple[str, ...]:
    """Environment and levels in one; a guest's own options belong to the environment."""
    left_out = {"environment", *rows.GUEST}
    rest = sorted((k, v) for k, v in levels.items() if k not in left_out)
    return (environment, *(f"{k}={v}" for k, v in rest))


def targets(record: Record) -> tuple[list[Target], list[Refusal]]:
    """Everything that a result lets one predict, and what it does not.

    Raises:
        UsageError: the result holds no request-reply, or nothing was measured on the host.
    """
    experiment = record.experiment
    if not record.plan.workload.response_times:
        raise UsageError(
            f"{record.folder} measured {experiment.workload}; responses alone are predicted",
            "start from experiments/predict.yaml",
        )
    cells = [cell for cell in record.plan.cells if cell.replica == 1]
    native = [cell for cell in cells if cell.levels.get("environment") == HOST]
    environments = dict.fromkeys(c.levels.get("environment", HOST) for c in cells)
    if not native or len(environments) < 2:
        raise UsageError(
            f"{record.folder} needs cells on the host and in an environment",
            "start from experiments/predict.yaml",
        )
    reader = _Reader(cells, Sessions(record))
    found: list[Target] = []
    refused: list[Refusal] = []
    for environment in environments:
        if environment == HOST:
            continue
        for cell in native:
            transport = cell.levels.get("transport")
            if transport == FLOOR or not transports.served(transport):
                continue
            levels = {k: v for k, v in cell.levels.items() if k != "environment"}
            if not reader.floors(environment, cell) and reader.elsewhere(environment, cell):
                continue  # a setting that was not asked for there, such as a guest's placement
            answer = reader.target(environment, cell)
            if isinstance(answer, Target):
                found.append(answer)
            else:
                refused.append(Refusal(environment, levels, *answer))
    return found, refused


_KINDS = {"clock": "clock readings", "wake-ups": "switches", "calls": "calls"}
"""What is counted of a server on the host, by the kind of its cost."""


class _Reader:
    """Looks cells up and reduces their sessions to numbers."""

    def __init__(self, cells: Sequence[Cell], sessions: Sessions) -> None:
        self._cells = cells
        self._sessions = sessions

    def floors(self, environment: str, like: Cell) -> list[Cell]:
        """The floor transport's cells in an environment, with the other levels alike.

        More than one where guests differ in their own options.
        """
        wanted = {k: v for k, v in like.levels.items() if k not in ("environment", *_OWN)}
        return [
            cell
            for cell in self._cells
            if cell.levels.get("environment") == environment
            and cell.levels.get("transport") == FLOOR
            and all(cell.levels.get(k, v) == v for k, v in wanted.items())
        ]

    def elsewhere(self, environment: str, like: Cell) -> bool:
        """Whether the environment was measured, but never in this placement."""
        here = [c for c in self._cells if c.levels.get("environment") == environment]
        placement = like.levels.get("placement")
        return bool(here) and all(c.levels.get("placement") != placement for c in here)

    def target(  # noqa: PLR0911 - each return is a refusal of its own
        self, environment: str, cell: Cell
    ) -> Target | tuple[str, str]:
        """A target, or why there is none and what would help."""
        for name, level in _ALONE.items():
            if cell.levels.get(name, level) != level:
                return (
                    f"{name} is {cell.levels[name]}: requests then wait for each other, which no"
                    " sum of costs predicts",
                    f"measure with {name}: {level}",
                )
        floors = {where: self.floors(where, cell) for where in (HOST, environment)}
        for where, found in floors.items():
            if not found:
                return (
                    f"UDP was not measured in {where} with the same payload and placement",
                    "add it to the experiment, as experiments/predict.yaml does",
                )
            if len(found) > 1:
                return (
                    f"{where} stands for {len(found)} guests that differ in their options",
                    "predict from a result of one of them",
                )
        here, there = floors[HOST][0], floors[environment][0]
        costs_here, costs_there = self._vector(HOST, cell), self._vector(environment, cell)
        if costs_here is None or costs_there is None:
            where = HOST if costs_here is None else environment
            return (
                f"{where} has no whole overhead vector in this placement{self._failure(where)}",
                "set `causes: 2` in the experiment, which measures it; or resume its run",
            )
        counts = self._beyond(cell, here)
        if counts is None:
            return (
                "its operations were not counted on the host",
                "set `causes: 2` in the experiment; counting needs perf and tracepoints",
            )
        share = self._client_share(cell, here)
        ground: dict[str, Ground] = {}
        for statistic in STATISTICS:
            times = [self._sessions.level(c.id, statistic) for c in (here, cell, there)]
            if share is None or any(time is None for time in times):
                return (
                    "it, or UDP, has no measured session",
                    "see `tare report` for what failed, and resume the run",
                )
            floor_here, response, floor_there = (float(time or 0.0) for time in times)
            ground[statistic] = Ground(
                floor_here, response, floor_there, share, counts, costs_here, costs_there
            )
        levels = {k: v for k, v in cell.levels.items() if k != "environment"}
        return Target(environment, levels, ground)

    def _failure(self, environment: str) -> str:
        """Why measuring a vector failed, where it did."""
        there = {cell.id for cell in self._cells if cell.levels.get("environment") == environment}
        errors = (one.error for one in self._sessions.causes if one.error and one.cell in there)
        return next((f": {error}" for error in errors), "")

    def _client_share(self, cell: Cell, floor: Cell) -> float | None:
        """Share of the client in the processor time beyond the floor's; a half where none is."""
        accounts = lines_of(cell, self._sessions), lines_of(floor, self._sessions)
        beyond = []
        for side in ("client on CPU", "server on CPU"):
            means = [
                fmean(known)
                for account in accounts
                if (known := [time for time in account.get(side, ()) if time is not None])
            ]
            if len(means) < 2:
                return None
            beyond.append(max(0.0, means[0] - means[1]))
        return beyond[0] / sum(beyond) if sum(beyond) else 0.5

    def _beyond(self, cell: Cell, floor: Cell) -> dict[str, float] | None:
        mine, base = self._counts(cell), self._counts(floor)
        if mine is None or base is None:
            return None
        return {
            kind: mine[f"server {name}"] - base[f"server {name}"] for kind, name in _KINDS.items()
        }

    def _counts(self, cell: Cell) -> Mapping[str, float] | None:
        found = [session.counts for session in self._sessions.counted(cell.id)]
        names = [f"server {name}" for name in _KINDS.values()]
        if not found or not all(name in counts for counts in found for name in names):
            return None
        return {name: fmean(counts[name] for counts in found) for name in names}

    def _vector(self, environment: str, like: Cell) -> dict[str, float] | None:
        """Unit costs there, by kind, over the repeats; None where one is missing."""
        there, here = self._costs(environment, like), self._costs(HOST, like)
        vector: dict[str, float] = {}
        for kind, name in COSTS.items():
            values = _values(there, name)
            if kind not in COLD or not values:
                cost = min(values, default=0.0)  # disturbance only adds to it
            elif min(values) > 0.0:
                cost = median(values)  # a difference of two, which disturbance moves either way
            else:
                cost = _as_cold(there, here, name, COLD[kind])
            if cost <= 0.0:
                return None
            vector[kind] = cost
        return vector

    def _costs(self, environment: str, like: Cell) -> list[Mapping[str, float]]:
        """The unit costs of each session that measured them there, in the same placement."""
        wanted = like.levels.get("placement"), like.levels.get("scheduling")
        return [
            session.unit_medians_ns
            for cell in self._cells
            if cell.levels.get("environment") == environment
            and (cell.levels.get("placement"), cell.levels.get("scheduling")) == wanted
            for session in self._sessions.counted(cell.id)
        ]


def _as_cold(
    there: Sequence[Mapping[str, float]], here: Sequence[Mapping[str, float]], name: str, cold: str
) -> float:
    """What code costs in a request where the difference of two responses does not show it.

    So it is across processors, where such code overlaps with waking up. Its cost on the host is
    multiplied by what cold code costs by itself there over here. 0 where that is not known.
    """
    on_host, cold_there, cold_here = _values(here, name), _values(there, cold), _values(here, cold)
    if not on_host or not cold_there or min(cold_here, default=0.0) <= 0.0:
        return 0.0
    return median(on_host) * median(cold_there) / median(cold_here)


def _values(sessions: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [costs[name] for costs in sessions if name in costs]
