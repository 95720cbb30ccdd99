"""From what is asked to what is done: cells, comparisons, and the order of every trial. Pure.

The design is a randomised complete block design with split plots: each block visits every cell.
Cells that share a plot (one environment, set up in one way) are visited within one setting
up of it, a guest's boot, because a boot costs seconds; the boot is thus the whole-plot unit and
processes are fresh for every session. A cell may have several of those in a visit
(repetition.py). Plots are shuffled within a block, cells within a plot.

An A/A pair shows the noise of the comparisons only where it is made as they are: where some of them
lie between plots, its second arm has a setting up of its own, since what differs from one setting
up to the next is in those comparisons too. Where all lie within a plot, so does the pair.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tare import answerable, workloads
from tare.cell import Cell, one_word
from tare.errors import UsageError
from tare.experiment import Experiment
from tare.levels import Levels, Settings
from tare.stats.gating import Gate
from tare.stats.sequential import Looks
from tare.workloads import AnyWorkload

_PROBING_S = 4.0
"""Unit costs are measured anew in every setting up: only for the estimate."""
ALPHA = 0.05
"""Family-wise error rate of every verdict."""


class Comparison(BaseModel):
    """A pair of cells whose ratio is a question of the experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Literal["effect", "a/a"]
    cell: str
    """Cell id of the numerator: the layer in question, or the second replica."""
    against: str
    """Cell id of the denominator: the baseline, or the first replica."""
    family: bool
    """Judged within the family (Holm); outside of it an interval is descriptive."""


class Visit(BaseModel):
    """One setting up of an environment within a block, and the cells measured in it, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plot: Levels
    """Levels of the factors that need setting up."""
    cells: tuple[str, ...]


class Plan(BaseModel):
    """Everything that will be done, in order. Written before the first trial; resuming reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    experiment: Experiment
    seed: int
    cells: tuple[Cell, ...]
    comparisons: tuple[Comparison, ...]
    blocks: tuple[tuple[Visit, ...], ...]
    """As many as the cap allows; the stopping rule may end the run earlier."""
    min_blocks: int
    sessions: Mapping[str, int] = {}
    """Cell -> sessions of it in a block, one where it is not named; until the pilot blocks have
    told more, where the experiment asks for that."""
    block_limit_s: float | None = None
    """What a block may take at most, so that a budget of time is kept whatever they tell."""
    session: Settings
    causes: int = 0
    """Extra sessions of each cell, after the blocks, in which operations are counted."""
    cuts: tuple[str, ...] = ()
    """What a budget of time took away, or this machine has not, in sentences."""

    @property
    def workload(self) -> AnyWorkload:
        """What is measured.

        Raises:
            UsageError: this version does not measure it.
        """
        name, known = self.experiment.workload, workloads.by_name()
        if name not in known:
            raise UsageError(
                f"{name!r} is no workload of this version, which has {', '.join(known)}",
                "read the result with the version that measured it",
            )
        return workloads.made(dict(self.experiment))

    @property
    def of_workload(self) -> dict[str, Any]:
        """What only this workload has at the top of a file, such as the commands that it runs."""
        known = type(self.experiment).model_fields
        fields = (field for field in self.workload.fields if field in known)
        return {field: getattr(self.experiment, field) for field in fields}

    @property
    def called(self) -> list[Path]:
        """The user's own programs and files; see `Workload.called`."""
        workload = self.workload
        each = (workload.called(cell.levels, self.session) for cell in self.cells)
        return sorted(set(itertools.chain.from_iterable(each)))

    def cell(self, cell_id: str) -> Cell:
        """Look a cell up by its id."""
        return next(cell for cell in self.cells if cell.id == cell_id)

    @property
    def family(self) -> tuple[Comparison, ...]:
        """The comparisons that are judged together."""
        return tuple(c for c in self.comparisons if c.family)

    @property
    def watched(self) -> tuple[Comparison, ...]:
        """Whose intervals decide when to stop: the family's; every effect's where it is empty."""
        return self.family or tuple(c for c in self.comparisons if c.kind == "effect")

    @property
    def gated(self) -> dict[str, tuple[Comparison, ...]]:
        """Name -> what a gate looks at as one: a comparison, or all replicas of its versions."""
        over = self.experiment.gate.over if self.experiment.gate else None
        found: dict[tuple[tuple[str, str], ...], list[Comparison]] = {}
        for comparison in self.family:
            levels = self.cell(comparison.cell).levels.items()
            key = tuple((name, level) for name, level in levels if name != over)
            found.setdefault(key, []).append(comparison)
        return {
            group[0].id
            if over is None
            else f"{group[0].id}, over {len(group)} levels of {over}": tuple(group)
            for group in found.values()
        }

    @property
    def not_judged(self) -> tuple[str, ...]:
        """What the family had as it was declared, and lost since its cells cannot be had here."""
        whole = _effects(self.experiment, _cells(self.experiment, self.workload))
        left = {comparison.id for comparison in self.comparisons}
        return tuple(c.id for c in whole if c.family and c.id not in left)

    @property
    def gate(self) -> Gate | None:
        """The gate's rule, of the blocks that are left of those asked for; None without a gate."""
        asked = self.experiment.gate
        if asked is None:
            return None
        looks = Looks(self.min_blocks, len(self.blocks), asked.significance_share)
        return Gate.of(looks, self.experiment.margin_share, max(1, len(self.gated)))

    def refuse_blind_gate(self) -> None:
        """Refuse a gate that could never tell anything; of what was cut, though of all it could.

        Raises:
            UsageError: it could not.
        """
        if self.gate is not None:
            answerable.refuse_blind_gate(self.experiment, self.gate, self.gated, len(self.blocks))

    @property
    def counted(self) -> tuple[Visit, ...]:
        """The settings-up in which operations are counted: a block's, but for second arms."""
        return tuple(
            visit.model_copy(update={"cells": originals})
            for visit in self.blocks[0]
            if (originals := tuple(c for c in visit.cells if self.cell(c).replica == 1))
        )

    def together(self, comparison: Comparison) -> bool:
        """Whether both cells share a setting up, so that what it adds cancels in their ratio."""
        both = {comparison.cell, comparison.against}
        return any(both <= set(visit.cells) for visit in self.blocks[0])

    def seconds(self, blocks: int | None = None) -> float:
        """Expected duration of so many blocks, of the minimum where None, and of counting."""
        if not self.blocks:
            return 0.0
        count = self.min_blocks if blocks is None else blocks
        return self.block_seconds() * count + self.causes_seconds()

    def block_seconds(self) -> float:
        """Expected duration of one block."""
        return self._visit_seconds(self.blocks[0], self.sessions)

    def causes_seconds(self) -> float:
        """Expected duration of all sessions in which operations are counted."""
        if not self.causes:
            return 0.0
        one = self._visit_seconds(self.counted) + _PROBING_S * len(self.counted)
        return self.causes * one

    def _visit_seconds(
        self, visits: Sequence[Visit], sessions: Mapping[str, int] | None = None
    ) -> float:
        many = sessions or {}
        return sum(
            self.workload.setup_seconds(visit.plot)
            + sum(
                many.get(cell, 1) * self.workload.seconds(self.cell(cell).levels, self.session)
                for cell in visit.cells
            )
            for visit in visits
        )


def make(experiment: Experiment, seed: int | None = None) -> Plan:
    """Lay out an experiment, with one session a cell and block; see `repetition.planned` for more.

    Args:
        experiment: a validated declaration.
        seed: of the order; the experiment's own, or a fresh one, where None.

    Raises:
        UsageError: no cell is left, or none to compare with, or the family is empty or cannot be
            resolved by the blocks declared.
    """
    if seed is None:
        seed = (
            experiment.seed
            if experiment.seed is not None
            else random.SystemRandom().getrandbits(32)
        )
    workload = workloads.made(dict(experiment))
    originals = _cells(experiment, workload)
    replicas = _replicas(experiment, workload, originals)
    cells = (*originals, *replicas)
    effects = _effects(experiment, originals)
    comparisons = (*effects, *_a_a(originals, replicas))
    answerable.refuse_without_answer(experiment, originals, judged=any(c.family for c in effects))
    answerable.refuse_unresolvable(experiment, sum(c.family for c in comparisons), ALPHA)
    if experiment.at_once:
        answerable.refuse_alone(workload.name, {workload.machine(c.levels) for c in originals})
    apart = _between_plots(workload, originals, effects)
    shuffle = random.Random(seed)  # noqa: S311 - an order, not a secret
    plan = Plan(
        experiment=experiment,
        seed=seed,
        cells=cells,
        comparisons=comparisons,
        blocks=tuple(
            _block(workload, cells, shuffle, apart=apart) for _ in range(experiment.blocks.max)
        ),
        min_blocks=experiment.blocks.min,
        session=workload.settings(experiment.session),
        causes=experiment.causes,
    )
    if "requests" in plan.session:
        fewest = answerable.fewest_requests(workload, experiment.statistic, originals)
        answerable.refuse_short_sessions(
            experiment.statistic, int(plan.session["requests"]), fewest
        )
    plan.refuse_blind_gate()
    return plan


def _cells(experiment: Experiment, workload: AnyWorkload) -> tuple[Cell, ...]:
    """Cross the factors, drop what is excluded and what does not apply, keep each cell once."""
    rows = workload.levels.rows
    levels = [experiment.factors.get(name, (row.default,)) for name, row in rows.items()]
    found: dict[tuple[tuple[str, str], ...], Levels] = {}
    for combination in itertools.product(*levels):
        every = workload.levels(dict(zip(rows, combination, strict=True)))
        if any(_matches(every, rule) for rule in experiment.exclude):
            continue
        applicable = workload.applicable(every)
        kept = workload.levels({n: level for n, level in every.items() if n in applicable})
        found.setdefault(tuple(kept.items()), kept)
    if not found:
        raise UsageError("the exclusions leave no cell", "remove a rule under 'exclude'")
    cells = tuple(found.values())
    names = _names(cells, experiment)
    return tuple(Cell(id=name, levels=kept) for name, kept in zip(names, cells, strict=True))


def _names(cells: Sequence[Levels], experiment: Experiment) -> list[str]:
    """Name cells by what varies; quoted, with its factor, where some would read alike."""
    varied = [
        {n: cell[n] for n in cell if len(experiment.factors.get(n, ())) > 1}
        or dict(itertools.islice(cell.items(), 1))
        for cell in cells
    ]
    short = ["/".join(map(one_word, levels.values())) for levels in varied]
    if len({*short, *map(_second, short)}) == 2 * len(short):
        return short
    return [
        "/".join(f"{n}={json.dumps(level, ensure_ascii=False)}" for n, level in levels.items())
        for levels in varied
    ]


def _second(name: str) -> str:
    """The name of a second arm."""
    return f"{name}#2"


def _matches(levels: Mapping[str, str], rule: Mapping[str, tuple[str, ...]]) -> bool:
    return all(levels.get(name) in allowed for name, allowed in rule.items())


def _replicas(
    experiment: Experiment, workload: AnyWorkload, cells: Sequence[Cell]
) -> tuple[Cell, ...]:
    """The second arms of the A/A pairs: the declared ones, else the baseline's and the dearest."""
    if experiment.a_a is not None:
        chosen = [c for c in cells if any(_matches(c.levels, rule) for rule in experiment.a_a)]
        if not chosen:
            raise UsageError("'a_a' names no cell of the plan", "name levels that the plan has")
    elif experiment.gate is not None:
        return ()  # its error is known by the order that was drawn, and it is in a hurry
    else:
        ranked = sorted(cells, key=lambda c: workload.setup_seconds(c.levels))
        floor = experiment.floor or {}
        on_floor = [c for c in ranked if c.has(floor)]
        candidates = on_floor or ranked
        chosen = [candidates[0]] if len(candidates) == 1 else [candidates[0], candidates[-1]]
    return tuple(Cell(id=_second(c.id), levels=c.levels, replica=2) for c in chosen)


def _effects(experiment: Experiment, cells: Sequence[Cell]) -> tuple[Comparison, ...]:
    """Every cell against the one that differs from it in the baseline's factors alone."""
    base = experiment.baseline
    baselines = [cell for cell in cells if cell.has(base)]
    found = []
    for cell in cells:
        against = _counterpart(cell, baselines, base)
        if against is None or against is cell:
            continue
        family = experiment.family is None or (
            experiment.family != "none" and _matches(cell.levels, experiment.family)
        )
        found.append(
            Comparison(
                id=f"{cell.id} over {against.id}",
                kind="effect",
                cell=cell.id,
                against=against.id,
                family=family,
            )
        )
    return tuple(found)


def _counterpart(cell: Cell, baselines: Sequence[Cell], base: Mapping[str, str]) -> Cell | None:
    """The baseline that agrees with a cell in every other factor that both have.

    What only one of them has (a guest's memory, a DDS's reception) comes with what is compared. Of
    several, the one that agrees in most.
    """

    def shared(other: Cell) -> list[str]:
        return [n for n in other.levels if n in cell.levels and n not in base]

    agreeing = [
        other
        for other in baselines
        if all(other.levels[n] == cell.levels[n] for n in shared(other))
    ]
    return max(agreeing, key=lambda other: len(shared(other)), default=None)


def _a_a(originals: Sequence[Cell], replicas: Sequence[Cell]) -> tuple[Comparison, ...]:
    by_levels = {tuple(c.levels.items()): c for c in originals}
    return tuple(
        Comparison(
            id=f"{replica.id} over {by_levels[tuple(replica.levels.items())].id}",
            kind="a/a",
            cell=replica.id,
            against=by_levels[tuple(replica.levels.items())].id,
            family=False,
        )
        for replica in replicas
    )


def _plot(workload: AnyWorkload, cell: Cell) -> tuple[tuple[str, str], ...]:
    """Levels of the factors that need setting up."""
    return tuple((n, v) for n, v in cell.levels.items() if n in workload.plot_factors)


def _between_plots(
    workload: AnyWorkload, cells: Sequence[Cell], effects: Sequence[Comparison]
) -> bool:
    """Whether comparisons hold what two settings-up differ by; also where there are none at all."""
    plots = {cell.id: _plot(workload, cell) for cell in cells}
    return not effects or any(plots[c.cell] != plots[c.against] for c in effects)


def _block(
    workload: AnyWorkload, cells: Sequence[Cell], shuffle: random.Random, *, apart: bool
) -> tuple[Visit, ...]:
    """Draw one block's order; `apart` sets the second arms of A/A pairs up by themselves."""
    plots: dict[tuple[tuple[tuple[str, str], ...], int], list[str]] = {}
    for cell in cells:
        arm = cell.replica if apart else 1
        plots.setdefault((_plot(workload, cell), arm), []).append(cell.id)
    visits = []
    for (plot, _), members in plots.items():
        order = list(members)
        shuffle.shuffle(order)
        visits.append(Visit(plot=workload.levels(dict(plot)), cells=tuple(order)))
    shuffle.shuffle(visits)
    return tuple(visits)
