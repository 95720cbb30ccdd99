"""Files of other tools: results read, so that `tare compare` can hold them together, and written.

One file a tool, which offers what is read as `TOOL`, and what is written as `FORMAT`. What each
value is differs (an execution, a process, a batch within one), and so does what may be concluded
from it: the tool's row says it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tare import discovery
from tare.errors import UsageError
from tare.outcome import Outcome
from tare.workloads import Statistic

Positive = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]
"""A time or a rate: no ratio is to zero, or of what is no number, in whatever unit they have it."""
NotNegative = Annotated[float, Field(ge=0.0, le=1e30, allow_inf_nan=False)]
"""What a tool's clock may have taken for nothing; such a value is left out, or refused by name."""
_MOST_BYTES = 256 << 20
_LONGEST = 80

M = TypeVar("M", bound=BaseModel)


class Part(BaseModel):
    """A part of a file of theirs: what we do not read is theirs to change."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of one run."""

    statistic: Statistic
    restarts: Sequence[Sequence[float]]
    """Values of each process that was started for it, in the statistic's unit, positive."""
    failed: bool = False
    """Whether some of it went wrong, and its values are there all the same."""


@dataclass(frozen=True)
class Found:
    """What one run left: a file, or of Criterion a folder."""

    benchmarks: Mapping[str, Benchmark]
    conditions: Mapping[str, Any]
    """What it tells of machine and versions."""
    notes: Sequence[str] = ()
    """What was left out, and why."""


@dataclass(frozen=True)
class Tool:
    """One measuring program."""

    name: str
    value: str
    """What its values are."""
    forbids: str
    """What one run of it does not show, and what may not be concluded therefore."""
    is_its: Callable[[Any], bool]
    """Whether a JSON document looks like one of its files."""
    read: Callable[[Any], Found]
    """Read one of its documents; raises ValidationError, or UsageError without the file's name."""


@dataclass(frozen=True)
class Format:
    """One kind of file that a result of ours can be written as."""

    name: str
    """As `tare export --format` takes it."""
    write: Callable[[Outcome], str]
    """Raises UsageError where such a file cannot say what is told."""
    single: bool = False
    """Whether it holds one statistic: the declared one, where none is asked for."""
    refuse: Callable[[str, Statistic], None] = lambda _name, _statistic: None
    """Of that one: raises UsageError where it cannot be held."""


@cache
def formats() -> Mapping[str, Format]:
    """Every format that results can be written as, by name."""
    return {found.name: found for found in discovery.offered(__name__, "FORMAT")}


def json_text(document: Any) -> str:
    """A document of ours, as JSON for programs and people."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


@cache
def tools() -> Sequence[Tool]:
    """Every tool whose files can be read."""
    return tuple(discovery.offered(__name__, "TOOL"))


def load(path: Path) -> tuple[Tool, Found]:
    """Read one run of another tool.

    Raises:
        UsageError: it is no file of a tool that is known, or broken, or holds no benchmark.
    """
    from tare.foreign import criterion  # noqa: PLC0415 - it is a file of this package

    if path.is_dir() or not path.exists():
        return criterion.TOOL, _with(path, criterion.TOOL, criterion.documents(path))
    document = document_of(path)
    for tool in tools():
        if tool.is_its(document):
            return tool, _with(path, tool, document)
    known = ", ".join(tool.name for tool in tools())
    raise UsageError(
        f"{path} is JSON, and of none of the tools whose results can be compared",
        f"give a file of {known}; how each writes it: docs/guides/pipeline.md",
    )


def _with(path: Path, tool: Tool, document: Any) -> Found:
    try:
        found = tool.read(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its top"
        said = f"{path} is not whole, as a file of {tool.name}: {where}: {first['msg'].lower()}"
        raise UsageError(said, f"let {tool.name} write it again") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", error.remedy) from error
    if not found.benchmarks:
        said = "; ".join(found.notes) or "it is empty"
        raise UsageError(f"{path} holds no benchmark: {said}", "measure at least one")
    return found


def document_of(path: Path) -> Any:
    """The JSON document of a file.

    Raises:
        UsageError: it cannot be read, or is no JSON.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is larger than {_MOST_BYTES >> 20} MiB", "name another file")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "give a result folder, or a tool's JSON"
        ) from error
    except (ValueError, RecursionError) as error:
        why = str(error)[:_LONGEST] if isinstance(error, ValueError) else "nested too deep"
        raise UsageError(
            f"{path} is no JSON: {why}", "give a result folder, or a tool's JSON"
        ) from error


def once(benchmarks: Sequence[tuple[str, Benchmark]]) -> dict[str, Benchmark]:
    """By their names.

    Raises:
        UsageError: two have one name.
    """
    found: dict[str, Benchmark] = {}
    for name, benchmark in benchmarks:
        if name in found:
            raise UsageError(
                f"two benchmarks are called {name[:_LONGEST]!r}", "give each a name of its own"
            )
        found[name] = benchmark
    return found
