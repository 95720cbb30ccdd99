"""What is asked: an experiment file, read, validated and frozen.

Errors name file, line, field, what was found and what is allowed, all of them at once. The same
rows that validate (`Workload.factors`) give the JSON Schema that editors use.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tare import units, workloads
from tare.errors import UsageError
from tare.workloads import Factor, Workload

_SIZE_LIMIT = 1 << 20


class Blocks(BaseModel):
    """How many complete blocks are run, and when to stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: int = Field(8, ge=2, le=1000, description="Never stop before so many blocks.")
    max: int = Field(30, ge=2, le=1000, description="Never run more; then say 'inconclusive'.")
    until: str = Field("3 %", description="Stop once every interval's half-width is this small.")

    @field_validator("until", mode="before")
    @classmethod
    def _share(cls, value: object) -> str:
        units.fraction(value)
        return str(value)

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is smaller than min ({self.min})")
        return self

    @property
    def until_percent(self) -> float:
        """Half-width in percent."""
        return units.fraction(self.until) * 100


Levels = Mapping[str, str]
Rule = Mapping[str, tuple[str, ...]]


class Experiment(BaseModel):
    """A workload, factors, a baseline and a stopping rule. All levels are in canonical form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, description="The question, as the report's headline.")
    description: str = ""
    workload: str = Field("request-reply", description="What is measured.")
    factors: dict[str, tuple[str, ...]] = Field(description="Factor -> levels; their cross product.")
    exclude: tuple[Rule, ...] = Field((), description="Combinations that are left out.")
    baseline: Levels = Field(description="What every cell is compared with.")
    floor: Levels | None = Field(None, description="The cheapest stack, for the budget.")
    family: Rule | None = Field(
        None, description="The comparisons that are judged together; all where absent."
    )
    a_a: tuple[Rule, ...] | None = Field(
        None, description="Cells that are run twice to show the noise floor; chosen where absent."
    )
    deadlines: tuple[str, ...] = Field((), description="Deadlines whose shares are reported.")
    margin: str = Field("3 %", description="Differences within it count as equivalent.")
    statistic: str = Field("p50", description="What a session is summarised by.")
    blocks: Blocks = Blocks()
    session: dict[str, str] = Field(default_factory=dict, description="Settings of every session.")
    seed: int | None = Field(None, ge=0, lt=1 << 32, description="Of the order of trials.")

    @property
    def deadlines_ns(self) -> tuple[int, ...]:
        """The deadlines in nanoseconds."""
        return tuple(units.duration(deadline) for deadline in self.deadlines)

    @property
    def margin_share(self) -> float:
        """The margin of equivalence as a fraction."""
        return units.fraction(self.margin)


@dataclass(frozen=True)
class Problem:
    """One thing wrong in an experiment file."""

    path: tuple[str | int, ...]
    message: str


def load(path: Path) -> Experiment:
    """Read and validate an experiment file.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; every problem is named.
    """
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise UsageError(f"{path} is larger than 1 MiB: not an experiment file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "`tare list` shows the experiments that ship"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file: {error.reason} at byte {error.start}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Experiment:
    """Validate the text of an experiment file; `name` is what errors call it.

    Raises:
        UsageError: something in it is wrong; every problem is named with its line.
    """
    try:
        document = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{name}:{line}: not valid YAML: {error.problem}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, CommentedMap):
        raise UsageError(
            f"{name}:1: an experiment is a mapping with 'title', 'factors' and 'baseline'",
            "start from experiments/example.yaml",
        )
    problems, canonical = _canonical(document)
    if not problems:
        try:
            return Experiment.model_validate(canonical)
        except ValidationError as error:
            problems = [_from_pydantic(item) for item in error.errors()]
    shown = "\n".join(f"{name}:{_line(document, p.path)}: {_where(p.path)}{p.message}" for p in problems)
    raise UsageError(shown, "`tare schema` prints what is allowed")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an experiment file, for editors."""
    schema = Experiment.model_json_schema()
    kinds = workloads.by_name()
    schema["properties"]["workload"]["enum"] = list(kinds)
    rows: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for workload in kinds.values():
        rows |= {f.name: _row_schema(f, many=True) for f in workload.factors.values()}
        settings |= {f.name: _row_schema(f, many=False) for f in workload.session_settings.values()}
    schema["properties"]["factors"] |= {"properties": rows, "additionalProperties": False}
    schema["properties"]["session"] |= {"properties": settings, "additionalProperties": False}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _row_schema(factor: Factor, *, many: bool) -> dict[str, Any]:
    level: dict[str, Any] = {"type": ["string", "number"]}
    if factor.choices:
        level = {"enum": list(factor.choices)}
    elif factor.examples:
        level["examples"] = list(factor.examples)
    described = {"description": factor.help, "default": factor.default}
    if not many:
        return {**level, **described}
    return {"anyOf": [level, {"type": "array", "items": level, "minItems": 1}], **described}


def _canonical(document: CommentedMap) -> tuple[list[Problem], dict[str, Any]]:
    """Bring every level into canonical form; collect what is wrong instead of stopping at it."""
    kinds = workloads.by_name()
    name = document.get("workload", "request-reply")
    workload = kinds.get(name) if isinstance(name, str) else None
    if workload is None:
        found = Problem(("workload",), f"{name!r} is no workload: choose {_either(kinds)}")
        return [found], {}
    problems: list[Problem] = []
    result: dict[str, Any] = {k: v for k, v in document.items()}
    known = set(Experiment.model_fields)
    problems += [
        Problem((key,), f"unknown field{_meant(key, known)}") for key in document if key not in known
    ]
    factors = _Rows("factors", workload.factors, problems)
    declared = document.get("factors")
    if declared is not None:
        result["factors"] = factors.many(declared, ("factors",))
        for key, levels in (result["factors"] or {}).items():
            if len(set(levels)) < len(levels):
                problems.append(Problem(("factors", key), "names a level twice"))
    for field in ("baseline", "floor"):
        if document.get(field) is not None:
            result[field] = factors.single(document[field], (field,))
            problems += _absent_levels(workload, result, field)
    if document.get("family") is not None:
        result["family"] = factors.many(document["family"], ("family",))
    for field in ("exclude", "a_a"):
        if document.get(field) is not None:
            rules = document[field]
            if not isinstance(rules, list):
                problems.append(Problem((field,), "is a list of mappings, one '- {...}' a rule"))
                continue
            result[field] = [factors.many(rule, (field, i)) for i, rule in enumerate(rules)]
    if document.get("session") is not None:
        settings = _Rows("session", workload.session_settings, problems)
        result["session"] = settings.single(document["session"], ("session",))
    defaults = {f.name: f.level(f.default) for f in workload.session_settings.values()}
    result["session"] = {**defaults, **(result.get("session") or {})}
    problems += _checked(document, "margin", units.fraction)
    if isinstance(document.get("deadlines"), list):
        problems += [
            p
            for i, value in enumerate(document["deadlines"])
            for p in _problem_of(units.duration, value, ("deadlines", i))
        ]
    if "margin" in result:
        result["margin"] = str(result["margin"])
    if document.get("statistic", "p50") not in workload.statistics:
        problems.append(
            Problem(("statistic",), f"{document['statistic']!r}: choose {_either(workload.statistics)}")
        )
    return problems, result


def _absent_levels(workload: Workload, result: Mapping[str, Any], field: str) -> list[Problem]:
    """A baseline or floor that no cell has would leave every question without an answer."""
    found = []
    factors = result.get("factors") or {}
    for key, level in (result[field] or {}).items():
        levels = factors.get(key, (workload.factors[key].level(workload.factors[key].default),))
        if level not in levels:
            found.append(
                Problem((field, key), f"{level!r} is not among the levels: {', '.join(levels)}")
            )
    return found


class _Rows:
    """Validates mappings from factor to level(s) against a workload's rows."""

    def __init__(self, title: str, rows: Mapping[str, Factor], problems: list[Problem]) -> None:
        self._title = title
        self._rows = rows
        self._problems = problems

    def many(self, node: object, path: tuple[str | int, ...]) -> dict[str, tuple[str, ...]]:
        """Factor -> one level or a list of them."""
        return {
            key: tuple(
                self._level(key, item, (*path, key, i) if isinstance(value, list) else (*path, key))
                for i, item in enumerate(value if isinstance(value, list) else [value])
            )
            for key, value in self._items(node, path)
        }

    def single(self, node: object, path: tuple[str | int, ...]) -> dict[str, str]:
        """Factor -> exactly one level."""
        return {key: self._level(key, value, (*path, key)) for key, value in self._items(node, path)}

    def _items(self, node: object, path: tuple[str | int, ...]) -> Iterable[tuple[str, Any]]:
        if not isinstance(node, dict):
            self._problems.append(Problem(path, f"is a mapping, not {type(node).__name__}"))
            return
        for key, value in node.items():
            if key not in self._rows:
                self._problems.append(
                    Problem((*path, key), f"unknown {self._title[:-1] if self._title == 'factors' else 'setting'}"
                            f"{_meant(key, self._rows)}: choose {_either(self._rows)}")
                )
            elif value is None or value == []:
                self._problems.append(Problem((*path, key), "has no level"))
            else:
                yield key, value

    def _level(self, key: str, value: object, path: tuple[str | int, ...]) -> str:
        self._problems += _problem_of(self._rows[key].level, value, path)
        try:
            return self._rows[key].level(value)
        except UsageError:
            return str(value)


def _checked(document: CommentedMap, field: str, parse_: Any) -> list[Problem]:
    return _problem_of(parse_, document[field], (field,)) if field in document else []


def _problem_of(parse_: Any, value: object, path: tuple[str | int, ...]) -> list[Problem]:
    try:
        parse_(value)
    except UsageError as error:
        return [Problem(path, error.what)]
    return []


def _from_pydantic(item: Any) -> Problem:
    path = tuple(item["loc"])
    if item["type"] == "missing":
        return Problem(path, "is required")
    found = item.get("input")
    shown = f" (found {found!r})" if isinstance(found, str | int | float | bool) else ""
    return Problem(path, item["msg"].removeprefix("Value error, ") + shown)


def _line(document: CommentedMap, path: tuple[str | int, ...]) -> int:
    """Line of the deepest node along a path that the document has."""
    node: Any = document
    line = 1
    for step in path:
        if isinstance(node, CommentedMap) and step in node:
            line = node.lc.key(step)[0] + 1
        elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
            line = node.lc.item(step)[0] + 1
        else:
            break
        node = node[step]
    return line


def _where(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) + ": " if path else ""


def _either(options: Iterable[str]) -> str:
    return ", ".join(options)


def _meant(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
