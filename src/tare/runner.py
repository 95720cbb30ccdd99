"""Does what a plan says, one trial after another, and records each before the next begins.

Where an experiment asks for it, machines that do not disturb each other are measured at once
(rounds.py, lanes.py); all but the measuring stays one after another.

A trial that fails is recorded as failed and the run goes on. A run that is killed is resumed by
running the same folder again: what is on record is not repeated. When to stop, the whole or cells
of it, is decided after each complete block, by the width of the intervals alone
(stats/stopping.py), or by a gate's rule (analysis/gate.py); how many sessions cells have, after the
pilot blocks (repetition.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean

from tare import (
    analysis,
    bounds,
    clocks,
    lanes,
    leftovers,
    meanwhile,
    operations,
    repetition,
    rounds,
)
from tare.cell import Cell
from tare.environments import place
from tare.errors import TrialError
from tare.hosts import Hosts
from tare.plan import Visit
from tare.record import Loss, Record, Trial, Writer
from tare.site import Site, Watching, unwatched
from tare.stats.repetition import PILOT_BLOCKS
from tare.stats.stopping import Action, Decision, decide
from tare.stopwatch import Pace, Stopwatch
from tare.unmixed import Unmixed
from tare.workloads import AnyBench, echo_samples

_LOG = logging.getLogger(__name__)
_GIVE_UP_AFTER = 3
"""Settings-up of one plot that fail in a row before it is given up for the rest of the run."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands; given to the caller after every trial."""

    block: int
    blocks: int
    """Blocks that are expected: the minimum at first, more when the intervals are still wide."""
    trials_done: int
    trials: int
    """Trials that are expected, as `blocks`."""
    seconds_left: float
    doing: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    decision: Decision
    blocks: int
    trials: int
    failed: int
    lost: int
    """Settings-up that failed once their trials were on record."""


def run(
    record: Record,
    programs: Path,
    cache: Path,
    on_progress: Callable[[Progress], None] = lambda _: None,
    blocks: int | None = None,
    stopwatch: Stopwatch | None = None,
) -> Outcome:
    """Run a plan to its end, or from where it stopped.

    Args:
        record: the result folder; what it holds already is not repeated.
        programs: the build directory.
        cache: kept between runs (guest images).
        on_progress: called before every trial and at the end.
        blocks: run so many in all, however wide the intervals are; to the plan's own end if None.
        stopwatch: told where the time goes.

    Raises:
        TareError: it cannot go on: the disk is full, another run writes here, KVM has come or gone,
            a name of ssh leads to another machine. What is on record stays, and the run can be
            resumed.
    """
    with ExitStack() as stack:
        writer = stack.enter_context(record.writing())
        registry = stack.enter_context(leftovers.Registry())
        stack.enter_context(bounds.within(record.plan.experiment.bounds, registry))
        scratch = stack.enter_context(registry.scratch())
        return _Run(
            record=record,
            programs=programs,
            cache=cache,
            on_progress=on_progress,
            writer=writer,
            registry=registry,
            scratch=scratch,
            blocks=blocks,
            stopwatch=stopwatch or Stopwatch(),
        ).to_the_end()


@dataclass
class _Run:
    """One process's share of a run."""

    record: Record
    programs: Path
    cache: Path
    on_progress: Callable[[Progress], None]
    writer: Writer
    registry: leftovers.Registry
    scratch: Path
    blocks: int | None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        self._plan = self.record.plan
        self._workload = self._plan.workload
        self._done: dict[tuple[int, str, int], Trial] = {t.key: t for t in self.record.trials()}
        self._courses = {course.block: course for course in self.record.courses()}
        self._course = self._courses[0]
        self._unmixed = Unmixed()
        for trial in self._done.values():
            self._keep(trial)
        self._setup_failures: Counter[tuple[tuple[str, str], ...]] = Counter()
        self._expected_blocks = self.blocks or self._plan.min_blocks
        self._pace = Pace(self._plan.block_seconds())
        self._counting_left = self._plan.causes_seconds()

    def to_the_end(self) -> Outcome:
        decision = self._decide(0)
        blocks = 0
        for number, visits in enumerate(self._plan.blocks):
            self._course = self._courses.get(number, self._course)
            self._pace.block_begins()
            for at_once in rounds.of_block(self._plan, visits):
                if len(at_once) > 1:
                    self._at_once(number, at_once)
                else:
                    self._visit(number, *at_once)
            self._pace.block_ends()
            blocks = number + 1
            self.stopwatch.at("the run", "analysing")
            decision = self._decide(blocks)
            if decision.action is not Action.CONTINUE:
                break
            self._go_on(blocks, decision)
            if decision.projected_blocks is not None:
                self._expected_blocks = min(
                    max(blocks + 1, decision.projected_blocks, self._plan.min_blocks),
                    len(self._plan.blocks),
                )
        self._count_causes()
        failed = sum(t.status == "failed" for t in self._done.values())
        self._tell(blocks, "done")
        return Outcome(decision, blocks, len(self._done), failed, len(self.record.losses()))

    def _go_on(self, block: int, decision: Decision) -> None:
        """Decide how many sessions cells have from a block on, and which are not visited again."""
        begun = any(trial.block >= block for trial in self._done.values())
        if begun or block in self._courses:
            return  # decided before the run was resumed
        course = self._course.model_copy(update={"block": block})
        if self._plan.experiment.blocks.sessions == "auto" and block == PILOT_BLOCKS:
            spreads = analysis.spreads(self.record, self._done.values())
            costs, a_block = self._costs(), self._pace.seconds_a_block
            adapted = repetition.adapted(self._plan, costs, a_block, spreads)
            course = course.model_copy(update={"sessions": adapted})
            planned = self._plan.sessions
            self._pace = Pace(
                a_block + sum(s * (adapted.get(c, 1) - planned.get(c, 1)) for c, s in costs.items())
            )
        if self.blocks is None and block >= self._plan.min_blocks:
            stopped = repetition.finished(self._plan, decision.wide)
            course = course.model_copy(update={"stopped": tuple(sorted(stopped))})
        if course.model_copy(update={"block": self._course.block}) != self._course:
            self.writer.append(course)
            self._courses[block] = course

    def _costs(self) -> dict[str, float]:
        """Seconds of a session of each cell, as far as any was measured."""
        found: dict[str, list[float]] = {}
        for trial in self._done.values():
            if trial.status == "ok":
                found.setdefault(trial.cell, []).append(trial.seconds)
        return {cell: fmean(seconds) for cell, seconds in found.items()}

    def _decide(self, blocks: int) -> Decision:
        # Of a resumed run more is on record: with that it could end within a block that was cut.
        trials = [trial for trial in self._done.values() if trial.block < blocks]
        if self.blocks is None and self._plan.gate is not None:
            return analysis.gate_stop(self.record, trials, blocks)
        return decide(
            analysis.half_widths(self.record, trials),
            blocks=blocks,
            min_blocks=self.blocks or self._plan.min_blocks,
            max_blocks=self.blocks or len(self._plan.blocks),
            target_percent=None if self.blocks else self._plan.experiment.blocks.until_percent,
        )

    def _visit(self, block: int, visit: Visit) -> None:
        """Set an environment up once and measure in it what is not on record yet."""
        with self._set_up(block, visit) as trials:
            for cell, measured in trials:
                self._tell(block, cell)
                self.stopwatch.at(cell, "measuring")
                trial = measured()
                self.stopwatch.now("recording")
                self._append(trial)
            if trials:
                self.stopwatch.back(self._place(visit), "taking down")

    def _at_once(self, block: int, visits: tuple[Visit, ...]) -> None:
        """The same on several hosts: the measuring alone is at once, all else one after another."""
        with lanes.Lanes() as threads, ExitStack() as stack:
            found = [stack.enter_context(self._set_up(block, visit)) for visit in visits]
            stack.callback(threads.leave)  # before what they wait for is taken down
            self._tell(block, "hosts at once")
            self.stopwatch.at("hosts at once", "measuring")
            for trial in threads.measured(found):
                self._append(trial)
                self._tell(block, "hosts at once")
            self.stopwatch.now("taking down")

    def _place(self, visit: Visit) -> str:
        return place(self._workload.environment(visit.plot), visit.plot)

    @contextmanager
    def _set_up(self, block: int, visit: Visit) -> Iterator[list[lanes.Ready]]:
        """Set an environment up; the trials that are not on record yet, in order, to be measured.

        An empty list where all are, and where it cannot be set up: then they are there as failed.
        """
        order = repetition.order(
            self._plan, block, visit, self._course.sessions, self._course.stopped
        )
        missing = {
            (cell, repeat): position
            for position, (cell, repeat) in enumerate(order)
            if (block, cell, repeat) not in self._done
        }
        plot, name = tuple(visit.plot.items()), self._place(visit)
        trials: list[lanes.Ready] = []

        def lost(_kind: object, error: BaseException | None, _trace: object) -> bool:
            """The environment itself failed: to start, beneath a trial, or to be left."""
            if not isinstance(error, TrialError):
                return False
            _LOG.warning("%s: %s", name, error)
            self._setup_failures[plot] += 1
            left = {key: at for key, at in missing.items() if (block, *key) not in self._done}
            self._fail(block, left, str(error))
            if trials and not left:
                loss = Loss(block=block, session=bench.inside.session, error=f"{name}: {error}")
                self.writer.append(loss)
            return True

        if missing and self._setup_failures[plot] >= _GIVE_UP_AFTER:
            why = f"{name} was given up: it failed {_GIVE_UP_AFTER} times in a row"
            self._fail(block, missing, why)
            missing = {}
        with ExitStack() as stack:
            stack.push(lost)
            if missing:
                self._tell(block, f"setting up {self._workload.environment(visit.plot).name}")
                self.stopwatch.at(name, "setting up")
                try:
                    with ExitStack() as setting_up:
                        bench = setting_up.enter_context(self._entered(visit))
                        self.stopwatch.now("calibrating")
                        calibration = clocks.calibrate(bench.site, bench.inside)
                        stack.push(setting_up.pop_all())
                except TrialError as error:
                    lost(None, error, None)
                else:
                    self._setup_failures[plot] = 0
                    begun = partial(
                        Trial,
                        block=block,
                        session=bench.inside.session,
                        facts=bench.inside.facts,
                        calibration=calibration,
                    )
                    for (cell, repeat), position in missing.items():
                        of_it = partial(begun, position=position, cell=cell, repeat=repeat)
                        where = (block, self._plan.cell(cell), repeat)
                        trials.append((cell, partial(self._measured, *where, bench, of_it)))
            yield trials

    @contextmanager
    def _entered(self, visit: Visit, watching: Watching = unwatched) -> Iterator[AnyBench]:
        """Set up the hosts and the environment that a visit asks for."""
        with Hosts(self.registry, rate_bits_s=self._workload.link_rate(visit.plot)) as hosts:
            site = Site(
                hosts=hosts,
                programs=self.programs,
                scratch=self.scratch,
                cache=self.cache,
                leftovers=self.registry,
                placement=self._workload.placement(visit.plot),
                stopwatch=self.stopwatch,
                watching=watching,
            )
            with self._workload.enter(visit.plot, site, self._plan.session) as bench:
                name = self._workload.environment(visit.plot).name
                self._unmixed.refuse_other(name, visit.plot, bench.inside.facts)
                yield bench

    def _keep(self, trial: Trial) -> None:
        """Remember what a cell's first measured trial ran on."""
        if trial.status == "ok":
            self._unmixed.keep(self._plan.cell(trial.cell).levels, trial.facts)

    def _count_causes(self) -> None:
        """After the blocks: sessions with a tracer, which are no trials."""
        # A failure here is no finding, as that of a trial is: a run that is resumed tries again.
        done = {session.key for session in self.record.causes() if session.error is None}
        visits = self._plan.counted
        each = self._counting_left / max(1, self._plan.causes * len(visits))
        for repeat in range(self._plan.causes):
            for visit in visits:
                cells = [c for c in visit.cells if (repeat, c) not in done]
                if cells:
                    doing = f"counting operations in {visit.plot['environment']}"
                    self._tell(len(self._plan.blocks), doing)
                    self.stopwatch.at("counting operations", "setting up")
                    for session in operations.count(
                        [self._plan.cell(cell) for cell in cells],
                        repeat,
                        operations.Counter(self.scratch, self.registry),
                        partial(self._entered, visit),
                    ):
                        self.writer.append(session)
                self._counting_left -= each

    def _measured(
        self, block: int, cell: Cell, repeat: int, bench: AnyBench, begun: Callable[..., Trial]
    ) -> Trial:
        """Measure one trial, or say why it could not be. On hosts at once, in a thread."""
        began, clock = datetime.now(UTC), time.monotonic()
        before = meanwhile.state()
        try:
            measured = bench.measure(cell.levels)
        except TrialError as error:
            _LOG.warning("block %d, %s: %s", block, cell.id, error)
            ended = partial(begun, status="failed", error=str(error))
        else:
            name = None
            if measured.samples is not None:
                again = f"-{repeat}" if repeat else ""
                name = f"{block:03d}-{self._plan.cells.index(cell):03d}{again}.parquet"
                echo_samples.to_parquet(measured.samples, self.record.folder / "samples" / name)
            ended = partial(begun, status="ok", **{**vars(measured), "samples": name})
        return ended(
            started=began.isoformat(timespec="milliseconds"),
            seconds=time.monotonic() - clock,
            machine=meanwhile.difference(before, meanwhile.state()),
        )

    def _fail(self, block: int, trials: Mapping[tuple[str, int], int], why: str) -> None:
        """Put trials that could not even begin on record, as absent: which -> position."""
        for (cell, repeat), position in trials.items():
            self._append(
                Trial(
                    block=block,
                    position=position,
                    cell=cell,
                    repeat=repeat,
                    session="none",
                    started=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    seconds=0.0,
                    status="failed",
                    error=why,
                )
            )

    def _append(self, trial: Trial) -> None:
        self.writer.append(trial)
        self._done[trial.key] = trial
        self._keep(trial)

    def _tell(self, block: int, doing: str) -> None:
        done = len(self._done)
        cells = [c.id for c in self._plan.cells if c.id not in self._course.stopped]
        per_block = sum(self._course.sessions.get(cell, 1) for cell in cells)
        of_block = sum(trial.block == block for trial in self._done.values())
        share = self._expected_blocks - block - of_block / max(1, per_block)
        left = max(0.0, share) * self._pace.seconds_a_block + max(0.0, self._counting_left)
        expected = done + max(0, self._expected_blocks - block) * per_block - of_block
        self.on_progress(Progress(block, self._expected_blocks, done, expected, left, doing))
