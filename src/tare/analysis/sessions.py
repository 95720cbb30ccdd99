"""One session: its raw samples read from Parquet and brought down to a few hundred numbers.

Sessions are read one at a time and forgotten, so that memory is bounded by the largest of them,
and a session that has not changed is never read twice within a process: analysing after every
block costs one block, not all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean, median

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tare.errors import UsageError
from tare.plan import Plan
from tare.record import CauseSession, Record, Trial
from tare.stats import PERCENTS, Summary, samples_needed, summarise
from tare.stats.repetition import Mean, even, mean_log

GRID = (
    *(0.001, 0.01, 0.02, 0.05),
    *(round(0.1 + 0.05 * i, 2) for i in range(17)),
    *(0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999),
)
"""Shares of the requests at which a session's distribution is kept for drawing."""

_NEEDED = {share: samples_needed(100.0 * share) for share in GRID}
_COLUMNS = ("intended_ns", "sent_ns", "received_ns")
_BATCH = 1 << 18  # rows
_LOST = np.iinfo(np.int64).max

_Column = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Session:
    """One session's response times, in ns from the intended send, without the raw samples."""

    requests: int
    """Requests of the measured part."""
    lost: int
    """Requests that were never answered."""
    late: tuple[int, ...]
    """Replies later than each deadline, in the order of the deadlines given."""
    summary: Summary
    """In the order of their intended sends: of the replies, percentiles of the requests."""
    quantiles: tuple[float | None, ...]
    """Response time of each share of requests in `GRID`, an observed value; None where they, taken
    as independent, are fewer than `tare.stats.samples_needed`, or the rank is a lost one's."""

    @property
    def replies(self) -> int:
        """Requests that were answered."""
        return self.summary.n

    def value(self, statistic: str) -> float | None:
        """Return one of the scalars that a session can be summarised by, for comparing sessions.

        A percentile is the session's own sample quantile, however its samples hang together: to
        leave out a session that drifted would be to choose among sessions. How far it strays is
        for the interval over sessions to say. `resolves` tells whether it may be printed.

        Args:
            statistic: min, mean, max, jitter (all ns), throughput (1/s), or one of the percentiles
                p50, p90, p99, p99.9, p99.99 (ns).

        Returns:
            None where `quantiles` has none, or for a zero, which a response time cannot be and a
            clock too coarse for it shows.

        Raises:
            KeyError: there is no such statistic.
        """
        if statistic in _SHARES:
            found = self.quantiles[GRID.index(_SHARES[statistic])]
        else:
            found = {
                "min": self.summary.min_ns,
                "mean": self.summary.mean_ns,
                "max": self.summary.max_ns,
                "jitter": self.summary.jitter_ns,
                "throughput": self.summary.throughput_per_s,
            }[statistic]
        return found or None

    def resolves(self, statistic: str) -> bool:
        """Whether the session can give a statistic that is worth printing.

        The median and all that is no percentile always; another percentile where its effective
        samples can tell it from the extremes (`tare.stats.percentiles`).
        """
        if statistic == "p50" or statistic not in _SHARES:
            return self.value(statistic) is not None
        return self.summary.percentile(float(statistic[1:])).resolved


_SHARES = {f"p{percent:g}": round(percent / 100.0, 6) for percent in PERCENTS}


class Sessions:
    """Every session of a result that was measured, by cell and block.

    A trial that holds values instead of response times has no `Session`; columns know both.
    """

    def __init__(
        self,
        record: Record,
        deadlines_ns: Sequence[int] = (),
        trials: Iterable[Trial] | None = None,
    ) -> None:
        self.plan: Plan = record.plan
        self._record = record
        self._deadlines_ns = tuple(deadlines_ns)
        self.trials: tuple[Trial, ...] = record.trials() if trials is None else tuple(trials)
        self.blocks: tuple[int, ...] = tuple(sorted({trial.block for trial in self.trials}))
        self._of: dict[str, list[Trial]] = {}
        self._found: dict[tuple[int, str, int], Session | None] = {}
        self._has_ratio: dict[tuple[str, str], bool] = {}
        for trial in sorted(self.trials, key=lambda trial: (trial.block, trial.repeat)):
            self._of.setdefault(trial.cell, []).append(trial)

    def trials_of(self, cell: str) -> tuple[Trial, ...]:
        """The trials of one cell, failed ones included, by block and by their order within it."""
        return tuple(self._of.get(cell, ()))

    def measured(self, cell: str) -> tuple[Trial, ...]:
        """Those of them that were measured."""
        return tuple(trial for trial in self.trials_of(cell) if trial.status == "ok")

    def counted(self, cell: str) -> list[CauseSession]:
        """The sessions of a cell in which operations were counted, but for those that failed."""
        return [one for one in self.causes if one.cell == cell and one.error is None]

    @cached_property
    def causes(self) -> tuple[CauseSession, ...]:
        """Every counting session."""
        return self._record.causes()

    def session(self, trial: Trial) -> Session | None:
        """The session of a trial; None where it failed, or holds values.

        Raises:
            UsageError: its samples are missing, or damaged.
        """
        if trial.key not in self._found:
            path = self._record.samples_path(trial)
            sampled = trial.status == "ok" and path is not None and not trial.values
            self._found[trial.key] = (
                summarise_session(path, self._deadlines_ns) if sampled and path else None
            )
        return self._found[trial.key]

    def column(self, cell: str, statistic: str, *, resolved: bool = False) -> list[float | None]:
        """One value a block, shape (blocks,): the geometric mean of its sessions.

        None where no trial of the block was measured, or none has the statistic; where `resolved`,
        none resolves it.
        """

        def value(trial: Trial) -> float | None:
            session = self.session(trial) if resolved else None
            short = session is not None and not session.resolves(statistic)
            return None if short else self.value(trial, statistic)

        return [mean_log(block) for block in self._blocks(cell, value)]

    def level(self, cell: str, statistic: str) -> float | None:
        """The geometric mean over blocks; None where none has the statistic."""
        return mean_log([value for value in self.column(cell, statistic) if value is not None])

    def columns(
        self, *cells: str, statistic: str, mean: Mean = mean_log
    ) -> tuple[list[float | None], ...]:
        """Columns of cells that are compared: from as many sessions of each in every block.

        None of all where one of them was no longer visited, which is no failure.
        """
        end = self._end(cells)
        columns = even(*(self.by_block(cell, statistic) for cell in cells), mean=mean)
        return tuple(
            [
                value if block < end else None
                for block, value in zip(self.blocks, column, strict=True)
            ]
            for column in columns
        )

    def tried(self, *cells: str, statistic: str) -> tuple[list[float | None], ...]:
        """As `columns`, of the blocks that were to have all of them: None is a failure."""
        end = self._end(cells)
        tried = {t.block for cell in cells for t in self.trials_of(cell) if t.block < end}
        return tuple(
            [value for block, value in zip(self.blocks, column, strict=True) if block in tried]
            for column in self.columns(*cells, statistic=statistic)
        )

    def _end(self, cells: Iterable[str]) -> float:
        """The first block in which one of them was no longer visited; none is beyond all."""
        return min(self._ends.get(cell, math.inf) for cell in cells)

    @cached_property
    def _ends(self) -> dict[str, int]:
        """Cell -> the first block in which it was no longer visited, where there is one."""
        courses = reversed(self._record.courses())
        return {cell: course.block for course in courses for cell in course.stopped}

    def means(self, cell: str, value: Callable[[Trial], float | None]) -> list[float | None]:
        """One number a block, shape (blocks,): the mean of what its measured trials tell.

        Parts add up to their whole as means, and not as geometric means.
        """
        found = self._blocks(cell, value)
        return [fmean(block) if block else None for block in found]

    def mean_responses(self, cell: str) -> list[float | None]:
        """The mean response in each block, as `means`: what requests' parts add up to, in ns."""
        return self.means(cell, lambda trial: self.value(trial, "mean"))

    def value(self, trial: Trial, statistic: str) -> float | None:
        """One scalar of a trial; None where it failed, lacks it, or it has no ratio."""
        session = self.session(trial)
        if session is not None:
            return session.value(statistic)
        return trial.values.get(statistic) if self.has_ratio(trial.cell, statistic) else None

    def told(self, cell: str, statistic: str) -> tuple[float, ...]:
        """What a cell's trials hold of a statistic; zeros too, of which no ratio can be made."""
        found = (trial.values.get(statistic) for trial in self.measured(cell))
        return tuple(value for value in found if value is not None)

    def has_ratio(self, cell: str, statistic: str) -> bool:
        """Whether all of that is positive."""
        if (cell, statistic) not in self._has_ratio:
            told = self.told(cell, statistic)
            self._has_ratio[cell, statistic] = all(value > 0 for value in told)
        return self._has_ratio[cell, statistic]

    def accelerators(self, cell: str) -> tuple[str, ...]:
        """What ran the guest's instructions in a cell's measured trials; none without a guest."""
        measured = self.measured(cell)
        return tuple(sorted({t.facts.accelerator for t in measured if t.facts.accelerator}))

    def by_block(self, cell: str, statistic: str) -> list[list[float]]:
        """Every session's value, shape (blocks, sessions); absent where it failed, or lacks it."""
        return self._blocks(cell, lambda trial: self.value(trial, statistic))

    def _blocks(self, cell: str, value: Callable[[Trial], float | None]) -> list[list[float]]:
        found: dict[int, list[float]] = {block: [] for block in self.blocks}
        for trial in self.measured(cell):
            if (one := value(trial)) is not None:
                found[trial.block].append(one)
        return list(found.values())


def instrument_floor(ends: Iterable[tuple[Sessions, str]]) -> float | None:
    """The worst of the ends by the median of its calibrations; ns.

    In open loop a request leaves as late as the client's timer wakes it, which counts as response.
    None where the declared statistic is no time that the calibrated instrument took: how little can
    be told of such is not known.
    """
    floors = []
    for sessions, cell in ends:
        workload, statistic = sessions.plan.workload, sessions.plan.experiment.statistic
        timed = workload.response_times and workload.statistics[statistic].unit == "ns"
        trials = sessions.trials_of(cell) if timed else ()
        known = [t.calibration for t in trials if t.calibration is not None]
        if known:
            floors.append(median(one.floor_ns for one in known))
            if sessions.plan.cell(cell).levels.get("mode", "closed") != "closed":
                floors.append(median(one.client.timer_late_ns for one in known))
    return max(floors, default=None)


def summarise_session(path: Path, deadlines_ns: Iterable[int] = ()) -> Session:
    """Read one trial's samples and summarise them.

    Linear but for one sort. Takes about 60 bytes of memory a sample.

    Args:
        path: a Parquet file as docs/formats/results.md says.
        deadlines_ns: count the replies that are later than each of these.

    Raises:
        UsageError: the file is missing, damaged, or holds what cannot be a measurement.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    return _summarise(path, status.st_mtime_ns, status.st_size, tuple(deadlines_ns))


@lru_cache(maxsize=1 << 14)
def _summarise(path: Path, _mtime_ns: int, _size: int, deadlines_ns: tuple[int, ...]) -> Session:
    # Time and size stand for the content, so that a trial measured again is read again.
    raw = _read(path)
    responses, lost = raw.in_time_order()
    span = raw.span_ns
    requests = raw.intended.size
    del raw  # the largest session decides how much memory an analysis takes
    if span <= 0:
        raise _unreadable(path, "its clock runs backwards")
    return Session(
        requests=requests,
        lost=lost,
        late=tuple(int(np.count_nonzero(responses > d)) - lost for d in deadlines_ns),
        quantiles=_quantiles(responses, lost),
        summary=summarise(responses, span, lost=lost),
    )


@dataclass
class _Raw:
    """What is kept of a file while it is read batch by batch."""

    intended: _Column
    response: _Column
    """Received minus intended; the longest of all where lost."""
    span_ns: int
    """From the first intended send to the last send or reply."""

    def in_time_order(self) -> tuple[_Column, int]:
        """Return the response times by intended send, and how many requests were lost."""
        response = self.response
        # Several clients write one after another; drift and jitter need the order of time.
        if (self.intended[1:] < self.intended[:-1]).any():
            response = response[np.argsort(self.intended, kind="stable")]
        return response, int(np.count_nonzero(response == _LOST))


def _read(path: Path) -> _Raw:
    try:
        with pq.ParquetFile(path) as file:
            found = {field.name: field.type for field in file.schema_arrow}
            if any(found.get(name) != pa.int64() for name in _COLUMNS):
                raise _unreadable(path, f"it lacks 64-bit columns {', '.join(_COLUMNS)}")
            if not file.metadata.num_rows:
                raise _unreadable(path, "it holds no request")
            return _gather(file, path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, (str(error).splitlines() or ["damaged"])[0]) from error


def _gather(file: pq.ParquetFile, path: Path) -> _Raw:
    size = file.metadata.num_rows
    raw = _Raw(np.empty(size, np.int64), np.empty(size, np.int64), 0)
    filled, last = 0, 0
    for batch in file.iter_batches(_BATCH, columns=list(_COLUMNS)):
        if batch.column("intended_ns").null_count or batch.column("sent_ns").null_count:
            raise _unreadable(path, "a request lacks the time of its sending")
        intended = batch.column("intended_ns").to_numpy()
        lag = batch.column("sent_ns").to_numpy() - intended
        received = batch.column("received_ns")
        answered = received.is_valid().to_numpy(zero_copy_only=False)
        response = received.fill_null(0).to_numpy() - intended
        if lag.min() < 0 or response[answered].min(initial=0) < 0:
            raise _unreadable(path, "its clock runs backwards")
        rows = slice(filled, filled + len(batch))
        raw.intended[rows], raw.response[rows] = intended, np.where(answered, response, _LOST)
        last = max(last, int((intended + np.maximum(lag, np.where(answered, response, 0))).max()))
        filled += len(batch)
    if filled != size:
        raise _unreadable(path, f"it promises {size} requests and holds {filled}")
    raw.span_ns = last - int(raw.intended.min())
    return raw


def _quantiles(responses: _Column, lost: int) -> tuple[float | None, ...]:
    n = responses.size
    shares = [share for share, needed in _NEEDED.items() if n >= needed]
    ranks = [min(n - 1, int(np.ceil(share * n - 1e-9)) - 1) for share in shares]
    ordered = np.partition(responses, ranks) if ranks else responses
    ranked = zip(shares, ranks, strict=True)
    found = {share: float(ordered[rank]) for share, rank in ranked if rank < n - lost}
    return tuple(found.get(share) for share in GRID)


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot use the samples in {path}: {why}",
        "restore the file, or remove the trial's line from trials.ndjson to measure it again",
    )
