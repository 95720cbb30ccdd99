"""D1 to D6 and D9: what migrating through pageshare saves and costs, by the experiments that ship.

A bound holds where the whole interval keeps it, not the estimate alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from claims import Claim, Result, Workshop, conclude, shown
from claims.shipped import run_shipped
from tare.analysis import Analysis
from tare.record import Trial
from tare.stats import Ratio, paired_ratio
from tare.stats.bounds import Bound, Kept

_TESTBED = "page-sharing-migration.yaml"
_SLACK_NS = 50e6
"""What a downtime may exceed the larger of plain's and the limit by."""
_LIMIT_NS = 300e6
_GIB = 2**30
_EXTRA_S = 1.2


@dataclass(frozen=True)
class _Limit:
    """One arm's statistic over another's, and the most that it may be."""

    statistic: str
    arm: str
    against: str
    most: float
    levels: Mapping[str, str]
    """What both cells have."""


class _Trials:
    """The trials of a result, by the levels of their cells."""

    def __init__(self, found: Analysis, confidence: float = 0.95) -> None:
        self._confidence = confidence
        self._cells = [cell for cell in found.plan.cells if cell.replica == 1]
        self._trials = found.trials
        self._blocks = range(len(found.plan.blocks))

    def of(self, **levels: str) -> list[Trial | None]:
        """The trials of the one cell with these levels, by block; None where it failed."""
        # Of cells that differ in TLS, which QEMU alone has not, the one without.
        (cell,) = (
            c
            for c in self._cells
            if levels.items() <= c.levels.items() and c.levels.get("tls", "off") == "off"
        )
        found = {t.block: t for t in self._trials if t.cell == cell.id and t.status == "ok"}
        return [found.get(block) for block in self._blocks]

    def column(self, statistic: str, **levels: str) -> list[float | None]:
        """One statistic of a cell, by block."""
        return [None if t is None else t.values.get(statistic) for t in self.of(**levels)]

    def ratio(self, statistic: str, arm: str, against: str, levels: Mapping[str, str]) -> Ratio:
        """One arm over another in the same block."""
        return paired_ratio(
            self.column(statistic, arm=arm, **levels),
            self.column(statistic, arm=against, **levels),
            self._confidence,
        )


@dataclass
class _Found:
    """What is judged, said and kept, of one part of a claim or of several."""

    bounds: list[Bound]
    lines: list[str]
    data: dict[str, Any]
    counted: bool = True
    """Whether everything is kept that has no interval."""

    def __add__(self, other: _Found) -> _Found:
        return _Found(
            self.bounds + other.bounds,
            self.lines + other.lines,
            self.data | other.data,
            self.counted and other.counted,
        )

    def result(self) -> Result:
        return conclude(self.bounds, "; ".join(self.lines), self.data, counted=self.counted)


def _run(workshop: Workshop, name: str) -> Analysis:
    if name not in workshop.analyses:
        with TemporaryDirectory(prefix="tare-claim-") as folder:
            workshop.analyses[name] = run_shipped(workshop, name, Path(folder))
    return workshop.analyses[name]


def _trials(workshop: Workshop, name: str) -> _Trials:
    return _Trials(_run(workshop, name), workshop.confidence)


def _judge(trials: _Trials, limits: tuple[_Limit, ...]) -> _Found:
    """A bound, a line and the data of each limit."""
    found = _Found([], [], {})
    for limit in limits:
        ratio = trials.ratio(limit.statistic, limit.arm, limit.against, limit.levels)
        where = " ".join((*limit.levels.values(), limit.arm))
        name = f"{where} / {limit.against}, {limit.statistic}"
        found.bounds.append(Bound(name, ratio.ratio, most=limit.most))
        found.lines.append(f"{name} {shown(ratio.ratio)}")
        found.data[name] = {"values": [ratio.a.estimate, ratio.b.estimate]}
    return found


def _checked(experiment: str, *limits: _Limit) -> Callable[[Workshop], Result]:
    def check(workshop: Workshop) -> Result:
        return _judge(_trials(workshop, experiment), limits).result()

    return check


def _bytes(guest: str, plain: float, zstd: float) -> tuple[_Limit, _Limit]:
    levels = {"guest": guest}
    return (
        _Limit("wire", "pageshare", "plain", plain, levels),
        _Limit("wire", "pageshare", "multifd+zstd", zstd, levels),
    )


def _times(plain: float, zstd: float, **levels: str) -> tuple[_Limit, _Limit]:
    return (
        _Limit("time", "pageshare", "plain", plain, levels),
        _Limit("time", "pageshare", "multifd+zstd", zstd, levels),
    )


def _check_time(workshop: Workshop) -> Result:
    """D2: on the testbed, where half a core is idle, and with guests that leave nothing idle."""
    idle, busy = _trials(workshop, _TESTBED), _trials(workshop, "migration-saturated.yaml")
    parts = [
        _judge(idle, _times(0.40, 0.75, guest=guest)) for guest in ("web", "memcached", "compile")
    ]
    parts.append(_judge(busy, _times(0.65, 0.95, guest="spin")))
    for trials, guests in ((idle, ("web", "memcached", "compile")), (busy, ("spin",))):
        parts += [_judge_downtime(trials, guest) for guest in guests]
        parts += [_idle(trials, guest) for guest in guests]
    return sum(parts, _Found([], [], {})).result()


def _idle(trials: _Trials, guest: str) -> _Found:
    """What the guests at the source left of its processor during plain pre-copy, one a host.

    That half of it is idle is D2's condition, and nothing that pageshare could miss.
    """
    shares = [
        1 - share["migrates"] - share["stays"]
        for t in trials.of(arm="plain", guest=guest)
        if t is not None and (share := t.settings.whole["guests_cpu_share"])
    ]
    name = f"{guest} guests leave idle at the source"
    lines = [f"{name} {sum(shares) / len(shares):.2f}"] if shares else []
    return _Found([], lines, {name: shares})


def _judge_downtime(trials: _Trials, guest: str) -> _Found:
    """The longest standstill through pageshare against the longest without, or the limit."""
    ours = [v for v in trials.column("downtime", arm="pageshare", guest=guest) if v is not None]
    plain = [v for v in trials.column("downtime", arm="plain", guest=guest) if v is not None]
    longest, allowed = max(ours, default=None), max((*plain, _LIMIT_NS)) + _SLACK_NS
    name = f"{guest} longest downtime"
    data = {name: {"pageshare_ns": ours, "plain_ns": plain, "allowed_ns": allowed}}
    if longest is None:
        return _Found([], [f"{name} was not measured"], data, counted=False)
    said = f"{name} {longest / 1e6:.0f} ms (allowed {allowed / 1e6:.0f})"
    return _Found([], [said], data, counted=longest <= allowed)


def _check_cpu(workshop: Workshop) -> Result:
    """D4: processor time; the index is warm, and its cost stands beside."""
    trials = _trials(workshop, "migration-processor-time.yaml")
    guests = ("web", "memcached", "compile")
    limits = tuple(
        limit
        for guest in guests
        for limit in (
            _Limit("cpu", "pageshare", "multifd+zstd", 0.85, {"guest": guest}),
            _Limit("cpu", "references", "plain", 1.5, {"guest": guest}),
        )
    )
    found = _judge(trials, limits)
    extra = _extra_cpu(trials, {"guest": "random"})
    found.bounds.append(extra)
    found.lines.append(f"{extra.name} beyond plain {shown(extra.found, 2)}")
    indexed = [v for v in trials.column("index_cpu", arm="pageshare", guest="web") if v is not None]
    if indexed:
        index_s = sum(indexed) / len(indexed) / 1e9
        found.lines.append(f"beside it, the index took {index_s:.2f} s (web)")
    return found.result()


def _extra_cpu(trials: _Trials, where: Mapping[str, str]) -> Bound:
    """CPU seconds a GiB that pageshare takes beyond plain."""
    took = trials.ratio("cpu", "pageshare", "plain", where).difference
    moved = [v for v in trials.column("wire", arm="plain", **where) if v]
    name = "unshareable memory, s/GiB"
    if not moved or took.estimate is None or took.low is None or took.high is None:
        return Bound(name, replace(took, low=None, high=None), most=_EXTRA_S, ratio=False)
    ns = 1e9 * sum(moved) / len(moved) / _GIB
    a_gib = replace(took, estimate=took.estimate / ns, low=took.low / ns, high=took.high / ns)
    return Bound(name, a_gib, most=_EXTRA_S, ratio=False)


def _check_ablation(workshop: Workshop) -> Result:
    """D9: of the pages that the destination has, how many KSM's verdict names, and the reverse."""
    trials = _trials(workshop, "migration-ablation.yaml")
    lines, data, complete = [], {}, True
    for guest in ("web", "micro 64.7 %"):
        every = _counted(trials.of(arm=_ALL, guest=guest))
        chosen = _counted(trials.of(arm="ksm", guest=guest))
        cpu = trials.ratio("cpu", "ksm", _ALL, {"guest": guest}).ratio
        if not (every["merged_asked"] and every["pages_referenced"] and every["segments_asked"]):
            complete = False
            continue
        recall = every["merged_found"] / every["pages_referenced"]
        precision = every["merged_found"] / every["merged_asked"]
        trips = chosen["segments_asked"] / every["segments_asked"]
        lines.append(
            f"{guest}: recall {recall:.3f}, precision {precision:.3f} (of all pages"
            f" {every['pages_referenced'] / every['pages_asked']:.3f}); against asking for all,"
            f" {trips:.2f} x the round trips and {shown(cpu)} x the CPU"
        )
        data[guest] = {
            "recall": recall,
            "precision": precision,
            "all": every,
            "ksm": chosen,
            "cpu_over_all": shown(cpu),
        }
    verdict = Kept.counted(complete and bool(data))
    return Result(verdict, "; ".join(lines) or "nothing was measured", data)


_ALL = "all beside ksm"
_COUNTED = ("pages_asked", "pages_referenced", "merged_asked", "merged_found", "segments_asked")


def _counted(trials: list[Trial | None]) -> dict[str, int]:
    """What the senders counted, over all trials."""
    records = [t.settings.whole["proxies"]["send"] for t in trials if t is not None]
    return {name: sum(record.get(name, 0) for record in records) for name in _COUNTED}


_WORSE = "migration-never-worse.yaml"
_SLOW = {"guest": "random", "wire": "1000 Mbit/s"}

CLAIMS = (
    Claim(
        "D1",
        "pageshare puts a fraction of the bytes on the wire: web, compile and memcached guests of"
        " 512 MB whose destination runs the like.",
        "web, compile: at most 0.12 x plain and 0.40 x multifd+zstd; memcached: 0.15 x and 0.45 x",
        _checked(
            _TESTBED,
            *_bytes("web", 0.12, 0.40),
            *_bytes("compile", 0.12, 0.40),
            *_bytes("memcached", 0.15, 0.45),
        ),
        experiments=("page-sharing-migration.yaml",),
        grows=True,
    ),
    Claim(
        "D2",
        "At 1 Gbit/s it takes a fraction of the time, with an idle half of a core at each host and"
        " with none, and the guest stands still no longer.",
        "at most 0.40 x plain and 0.75 x multifd+zstd; saturated 0.65 x and 0.95 x; downtime at"
        " most max(plain's, 300 ms) + 50 ms",
        _check_time,
        experiments=("page-sharing-migration.yaml", "migration-saturated.yaml"),
        grows=True,
    ),
    Claim(
        "D3",
        "The paper's micro-benchmark at 82.8 % sharable memory.",
        "at most 0.18 x plain's bytes and 0.30 x its time (paper: 0.192 and 0.555)",
        _checked(
            "migration-micro-benchmark.yaml",
            _Limit("wire", "pageshare", "plain", 0.18, {"guest": "micro 82.8 %"}),
            _Limit("time", "pageshare", "plain", 0.30, {"guest": "micro 82.8 %"}),
        ),
        experiments=("migration-micro-benchmark.yaml",),
        grows=True,
    ),
    Claim(
        "D4",
        "Processor time of both hosts, without the guest, with a warm index, and a destination that"
        " makes its memory as pages arrive, as QEMU does by default.",
        "at most 0.85 x multifd+zstd; references alone at most 1.5 x plain; unshareable memory at"
        " most plain + 1.2 s/GiB",
        _check_cpu,
        experiments=("migration-processor-time.yaml",),
        grows=True,
    ),
    Claim(
        "D5",
        "It is never worse: memory that cannot be shared, and a wire of 10 Gbit/s (without TLS,"
        " destination preallocated).",
        "at 1 Gbit/s at most 1.05 x plain's time and 1.005 x its bytes; at 10 Gbit/s at most 1.25 x"
        " its time, shareable memory at most 1.30 x",
        _checked(
            _WORSE,
            _Limit("time", "pageshare", "plain", 1.05, _SLOW),
            _Limit("wire", "pageshare", "plain", 1.005, _SLOW),
            _Limit("time", "pageshare", "plain", 1.25, {**_SLOW, "wire": "10000 Mbit/s"}),
            _Limit(
                "time", "pageshare", "plain", 1.30,
                {"guest": "micro 82.8 %", "wire": "10000 Mbit/s"},
            ),
        ),
        experiments=("migration-never-worse.yaml",),
        grows=True,
    ),
    Claim(
        "D6",
        "A guest that returns to a host where it left a copy, after its workload ran on, needs next"
        " to nothing.",
        "at most 0.10 x plain's bytes",
        _checked(
            "migration-return.yaml",
            _Limit("wire", "return trip", "plain", 0.10, {"guest": "web"}),
            _Limit("wire", "return trip", "plain", 0.10, {"guest": "memcached"}),
        ),
        experiments=("migration-return.yaml",),
        grows=True,
    ),
    Claim(
        "D9",
        "The paper's idea, measured: how well KSM's verdict at the source says what the destination"
        " has, and what it saves against asking for every page.",
        "recall, precision, round trips and CPU, all measured",
        _check_ablation,
        experiments=("migration-ablation.yaml",),
    ),
)  # fmt: skip
