"""Folders of many results, for tests of their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

import records
from tare.history.index import Index
from tare.record import Record

CELLS = ("container", "native")
_TEXT = """\
title: {title}
workload: request-reply
factors: {{environment: [native, container]{factors}}}
baseline: {{environment: native}}
family: none
statistic: {statistic}
a_a: [{{environment: [native]}}]
blocks: {{min: 2, max: 2}}
session: {{requests: {requests}}}
"""


def run(
    folder: Path,
    number: int,
    scale: float = 1.0,
    *,
    title: str = "What does a container cost?",
    factors: str = "",
    requests: int = 100,
    statistic: str = "p50",
    polite: bool = False,
    fingerprint: Mapping[str, object] = records.FINGERPRINT,
    accelerator: str = "tcg",
) -> Record:
    """Make one result, of its own day; the container's level is scaled."""
    day = date(2026, 1, 1) + timedelta(days=number)
    recipe = records.Recipe(
        seed=number,
        blocks=2,
        requests=requests,
        scale={"container": scale},
        accelerator=lambda _block, _cell: accelerator,
        day=day.isoformat(),
    )
    text = _TEXT.format(title=title, factors=factors, requests=requests, statistic=statistic)
    text += "polite: {}\n" if polite else ""
    return records.make(folder / f"run-{number:02}", recipe, text, fingerprint)


def runs(folder: Path, scales: Sequence[float]) -> None:
    """Make a result a day."""
    for number, scale in enumerate(scales):
        run(folder, number, scale)


def refreshed(folder: Path, **asked: bool) -> tuple[Index, int]:
    """Bring the history of a folder up to date; tells how many results were read."""
    read = 0

    def tell(_done: int, _of: int) -> None:
        nonlocal read
        read += 1

    index = Index(folder)
    assert index.refresh(tell, **asked)
    return index, read
