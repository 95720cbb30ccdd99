"""D1, D2, D4 and D9: what of a migration is no ratio of two arms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean
from typing import Any

from claims.checking import Found, Workshop, shown
from claims.experiments import Measured, run_shipped
from claims.rows import bounded, told
from tare.record import Trial
from tare.stats import paired_ratio
from tare.stats.bounds import Kept, all_kept
from tare.workloads.migration.load import drawn_bytes

_OVER_FLOOR = 1.10
_ABLATION = "migration-ablation.yaml"
_SLACK_NS = 50e6
"""What a downtime may exceed the larger of plain's and the limit by."""
_LIMIT_NS = 300e6
_GIB = 2**30
_EXTRA_S = 1.2
_COUNTED = ("pages_asked", "pages_referenced", "merged_asked", "merged_found", "segments_asked")


def _values(measured: Measured, cell: str, statistic: str) -> list[float]:
    """Of every trial that was measured."""
    trials = measured.sessions.measured(cell)
    return [trial.values[statistic] for trial in trials if statistic in trial.values]


def _cell(guest: str, arm: str) -> str:
    """The saturated testbed has but one guest, which its cells do not name."""
    return arm if guest == "spin" else f"{guest}/{arm}"


def beside_floor(experiment: str, workshop: Workshop) -> Found:
    """D1: memcached's bytes over what nobody else can have of them and what a web guest takes."""
    measured = run_shipped(workshop, experiment)
    cells = ("memcached/pageshare", "web/pageshare")
    sent, rest = measured.sessions.tried(*cells, statistic="wire")
    drawn = drawn_bytes()
    floors = [None if took is None else drawn + took for took in rest]
    ratio = paired_ratio(sent, floors, workshop.confidence).promised
    name = f"{cells[0]} over {drawn / 1e6:.1f} MB drawn at random + {cells[1]}, wire"
    bounds = bounded({name: ratio.ratio}, most=_OVER_FLOOR)
    return Found(told(bounds), {name: {"values": [ratio.a.estimate, ratio.b.estimate]}}, bounds)


def downtime(experiment: str, guest: str, workshop: Workshop) -> Found:
    """D2: the longest standstill through pageshare against the longest without, or the limit."""
    measured = run_shipped(workshop, experiment)
    ours, plain = (
        _values(measured, _cell(guest, arm), "downtime") for arm in ("pageshare", "plain")
    )
    allowed = max((*plain, _LIMIT_NS)) + _SLACK_NS
    name = f"{guest} longest downtime"
    data = {name: {"pageshare_ns": ours, "plain_ns": plain, "allowed_ns": allowed}}
    lacking = len(measured.sessions.trials_of(_cell(guest, "pageshare"))) - len(ours)
    kept = Kept.counted(max(ours, default=0.0) <= allowed)
    said = f"{name} {max(ours) / 1e6:.0f} ms (allowed {allowed / 1e6:.0f})" if ours else name
    if lacking or not ours:  # the longest may be among those that are not there
        said += f", not measured in {lacking} trials"
        kept = all_kept([kept, Kept.INCONCLUSIVE])
    return Found(said, data, counted=kept)


def idle(experiment: str, guest: str, workshop: Workshop) -> Found:
    """D2: what guests left of the source's processor during plain pre-copy, told beside.

    That half of it is idle is the claim's condition, and nothing that pageshare could miss.
    """
    plain = run_shipped(workshop, experiment).sessions.measured(_cell(guest, "plain"))
    used = [trial.settings["guests_cpu_share"] for trial in plain]
    shares = [1 - share["migrates"] - share["stays"] for share in used]
    name = f"{guest} guests leave idle at the source"
    return Found(f"{name} {fmean(shares):.2f}" if shares else "", {name: shares})


def extra_processor_time(experiment: str, workshop: Workshop) -> Found:
    """D4: seconds a GiB of unshareable memory beyond plain's; the index's cost stands beside."""
    measured = run_shipped(workshop, experiment)
    took = measured.ratio("random/pageshare", "random/plain", "cpu", workshop.confidence).difference
    moved = _values(measured, "random/plain", "wire")
    if not moved or took.estimate is None or took.low is None or took.high is None:
        a_gib = replace(took, low=None, high=None)
    else:
        ns = 1e9 * fmean(moved) / _GIB
        a_gib = replace(took, estimate=took.estimate / ns, low=took.low / ns, high=took.high / ns)
    bounds = bounded({"unshareable memory beyond plain, s/GiB": a_gib}, most=_EXTRA_S, ratio=False)
    line = told(bounds)
    if indexed := _values(measured, "web/pageshare", "index_cpu"):
        line += f"; beside it, the index took {fmean(indexed) / 1e9:.2f} s (web)"
    return Found(line, bounds=bounds)


def ablation(workshop: Workshop) -> Found:
    """D9: of the pages that the destination has, how many KSM's verdict names, and the reverse."""
    measured = run_shipped(workshop, _ABLATION)
    lines, data = [], {}
    guests = {"web": "web", "micro 64.7 %": "micro64.7%"}
    for guest, cell in guests.items():
        whole, ksm = f"{cell}/allbesideksm", f"{cell}/ksm"
        every, chosen = (_counted(measured.sessions.measured(cell)) for cell in (whole, ksm))
        ratio = measured.ratio(ksm, whole, "cpu", workshop.confidence).ratio
        asked = every["merged_asked"] and every["pages_referenced"] and every["segments_asked"]
        if not (asked and ratio.resolved):
            continue
        cpu = shown(ratio)
        recall = every["merged_found"] / every["pages_referenced"]
        precision = every["merged_found"] / every["merged_asked"]
        trips = chosen["segments_asked"] / every["segments_asked"]
        lines.append(
            f"{guest}: recall {recall:.3f}, precision {precision:.3f} (of all pages"
            f" {every['pages_referenced'] / every['pages_asked']:.3f}); against asking for all,"
            f" {trips:.2f} x the round trips and {cpu} x the CPU"
        )
        data[guest] = {
            "recall": recall,
            "precision": precision,
            "all": every,
            "ksm": chosen,
            "cpu_over_all": cpu,
        }
    complete = Kept.HOLDS if len(data) == len(guests) else Kept.INCONCLUSIVE
    return Found("; ".join(lines) or "nothing was measured", data, counted=complete)


def _counted(trials: Iterable[Trial]) -> dict[str, int]:
    """What the senders counted, over all trials."""
    records: list[Any] = [trial.settings["proxies"]["send"] for trial in trials]
    return {name: sum(record.get(name, 0) for record in records) for name in _COUNTED}
