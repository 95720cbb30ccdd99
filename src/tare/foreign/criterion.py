"""Criterion (Rust): its folder `target/criterion`, or with `@NAME` behind it a saved baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from tare.errors import UsageError
from tare.foreign import Benchmark, Found, Part, Positive, Tool, document_of, once
from tare.workloads import Statistic

_TIME = Statistic("time of an iteration")
_LATEST = "new"


class _Benchmark(Part):
    full_id: str
    directory_name: str = ""
    """Where it lies below the whole folder: `group/function`."""


class _Sample(Part):
    iters: tuple[Positive, ...] = Field(min_length=1)
    times: tuple[Positive, ...]
    """ns of all iterations of a sample."""


class _Measured(Part):
    benchmark: _Benchmark
    sample: _Sample


class _Folder(Part):
    measured: tuple[_Measured, ...]


def documents(path: Path) -> Any:
    """Every benchmark's two files, of the latest run or the baseline named.

    Raises:
        UsageError: there is none, or a file cannot be read.
    """
    folder, _, baseline = str(path).rpartition("@")
    where, name = (path, _LATEST) if path.is_dir() or not folder else (Path(folder), baseline)
    samples = sorted(where.glob(f"**/{name}/sample.json"))
    if not samples:
        what = "" if name == _LATEST else f" with a baseline {name!r}"
        raise UsageError(
            f"{path} is not a result, of Tare or of another tool{what}",
            "give a folder that `tare run` printed, target/criterion, or a tool's JSON file",
        )
    return {
        "measured": [
            {"sample": document_of(s), "benchmark": document_of(s.with_name("benchmark.json"))}
            for s in samples
        ]
    }


def is_whole(path: Path) -> bool:
    """Whether a folder is of one run of Criterion, and not one that holds several."""
    first = next(path.glob(f"**/{_LATEST}/benchmark.json"), None)
    if first is None:
        return False
    try:
        lies = _Benchmark.model_validate(document_of(first)).directory_name
    except (ValidationError, UsageError):
        return True  # reading it tells what is wrong
    parts, at = Path(lies).parts, first.resolve().parents[1]
    if not parts or at.parts[-len(parts) :] != parts:  # copied elsewhere, or of an early version
        return any(path.glob(f"*/{_LATEST}/sample.json"))
    return path.resolve().is_relative_to(at.parents[len(parts) - 1])


def _read(document: Any) -> Found:
    found = []
    for one in _Folder.model_validate(document).measured:
        sample = one.sample
        if len(sample.iters) != len(sample.times):
            said = f"{one.benchmark.full_id} has {len(sample.times)} times of"
            raise UsageError(f"{said} {len(sample.iters)} samples", "let Criterion write it again")
        values = [t / n for t, n in zip(sample.times, sample.iters, strict=True)]
        found.append((one.benchmark.full_id, Benchmark(_TIME, [values])))
    return Found(once(found), {})


TOOL = Tool(
    "Criterion",
    "samples within one process",
    "all samples are taken in one process, which is never started anew: where its memory and code"
    " came to lie is in all of them alike, and may be all that differs",
    lambda _: False,  # a folder, not a document
    _read,
)
