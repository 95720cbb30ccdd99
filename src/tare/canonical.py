"""Brings what an experiment file says into canonical form, and collects all that is wrong in it.

Levels are checked against the rows of the workload (`workloads.Factor`); what has a fixed shape is
left to the model (`experiment.Experiment`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tare import units
from tare.errors import UsageError
from tare.workloads import Factor, Workload, registry

Path = tuple[str | int, ...]
"""Keys and indices from the document's root to a node."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in an experiment file."""

    path: Path
    message: str


def canonical(
    document: Mapping[str, Any], known: Iterable[str]
) -> tuple[list[Problem], dict[str, Any]]:
    """Bring every level into canonical form.

    Args:
        document: the file's content.
        known: names of the fields that an experiment has.

    Returns:
        What is wrong, and the content with canonical levels (of no use where something is).
    """
    kinds = registry.by_name()
    name = document.get("workload", "request-reply")
    workload = kinds.get(name) if isinstance(name, str) else None
    if workload is None:
        found = Problem(("workload",), f"{name!r} is no workload: choose {', '.join(kinds)}")
        return [found], {}
    return _Canonical(document, workload).all(frozenset(known))


class _Canonical:
    """One document on its way to canonical form."""

    def __init__(self, document: Mapping[str, Any], workload: Workload) -> None:
        self._document = document
        self._workload = workload
        self._problems: list[Problem] = []
        self._result = dict(document)
        self._factors = _Rows("factor", workload.factors, self._problems)

    def all(self, known: frozenset[str]) -> tuple[list[Problem], dict[str, Any]]:
        for key in self._document:
            if key not in known:
                self._say((key,), f"unknown field{_meant(key, known)}")
        self._levels()
        for field in ("baseline", "floor"):
            self._one_cell(field)
        if self._has("family"):
            self._result["family"] = self._factors.many(self._document["family"], ("family",))
        for field in ("exclude", "a_a"):
            self._rules(field)
        self._session()
        self._quantities()
        self._statistic()
        return self._problems, self._result

    def _has(self, field: str) -> bool:
        return self._document.get(field) is not None

    def _say(self, path: Path, message: str) -> None:
        self._problems.append(Problem(path, message))

    def _levels(self) -> None:
        if not self._has("factors"):
            return
        levels = self._factors.many(self._document["factors"], ("factors",))
        self._result["factors"] = levels
        for key, named in levels.items():
            if len(set(named)) < len(named):
                self._say(("factors", key), "names a level twice")

    def _one_cell(self, field: str) -> None:
        """A baseline or floor that no cell has would leave every question without an answer."""
        if not self._has(field):
            return
        chosen = self._factors.single(self._document[field], (field,))
        self._result[field] = chosen
        factors = self._result.get("factors")
        for key, level in chosen.items():
            row = self._workload.factors[key]
            levels = factors.get(key) if isinstance(factors, dict) else None
            if level not in (levels or (row.level(row.default),)):
                allowed = ", ".join(levels or (row.level(row.default),))
                self._say((field, key), f"{level!r} is not among the levels: {allowed}")

    def _rules(self, field: str) -> None:
        if not self._has(field):
            return
        rules = self._document[field]
        if not isinstance(rules, list):
            self._say((field,), "is a list of mappings, one '- {...}' a rule")
            return
        self._result[field] = [self._factors.many(r, (field, i)) for i, r in enumerate(rules)]

    def _session(self) -> None:
        rows = self._workload.session_settings
        settings = {row.name: row.level(row.default) for row in rows.values()}
        if self._has("session"):
            found = _Rows("setting", rows, self._problems)
            settings |= found.single(self._document["session"], ("session",))
        self._result["session"] = settings

    def _quantities(self) -> None:
        if "margin" in self._document:
            self._problems += _problem_of(units.fraction, self._document["margin"], ("margin",))
            self._result["margin"] = str(self._document["margin"])
        deadlines = self._document.get("deadlines")
        if isinstance(deadlines, list):
            for i, value in enumerate(deadlines):
                self._problems += _problem_of(units.deadline, value, ("deadlines", i))
        if not self._workload.response_times:
            for field in ("deadlines", "causes", "floor"):
                if self._document.get(field):
                    self._say((field,), f"means nothing for {self._workload.name}: remove it")

    def _statistic(self) -> None:
        known = self._workload.statistics
        statistic = self._document.get("statistic", next(iter(known)))
        self._result["statistic"] = statistic
        if not isinstance(statistic, str) or statistic not in known:
            self._say(("statistic",), f"{statistic!r}: choose {', '.join(known)}")


class _Rows:
    """Validates mappings from factor to level(s) against a workload's rows."""

    def __init__(self, kind: str, rows: Mapping[str, Factor], problems: list[Problem]) -> None:
        self._kind = kind
        self._rows = rows
        self._problems = problems

    def many(self, node: object, path: Path) -> dict[str, tuple[str, ...]]:
        """Factor -> one level or a list of them."""
        return {
            key: tuple(
                self._level(key, item, (*path, key, i) if isinstance(value, list) else (*path, key))
                for i, item in enumerate(value if isinstance(value, list) else [value])
            )
            for key, value in self._items(node, path)
        }

    def single(self, node: object, path: Path) -> dict[str, str]:
        """Factor -> exactly one level."""
        return {
            key: self._level(key, value, (*path, key)) for key, value in self._items(node, path)
        }

    def _items(self, node: object, path: Path) -> Iterable[tuple[str, Any]]:
        if not isinstance(node, dict):
            self._problems.append(Problem(path, f"is a mapping, not {type(node).__name__}"))
            return
        for key, value in node.items():
            if key not in self._rows:
                what = f"unknown {self._kind}{_meant(key, self._rows)}"
                choices = ", ".join(self._rows)
                self._problems.append(Problem((*path, key), f"{what}: choose {choices}"))
            elif value is None or value == []:
                self._problems.append(Problem((*path, key), "has no level"))
            else:
                yield key, value

    def _level(self, key: str, value: object, path: Path) -> str:
        self._problems += _problem_of(self._rows[key].level, value, path)
        try:
            return self._rows[key].level(value)
        except UsageError:
            return str(value)


def _problem_of(parse: Callable[[object], object], value: object, path: Path) -> list[Problem]:
    try:
        parse(value)
    except UsageError as error:
        return [Problem(path, error.what)]
    return []


def _meant(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
