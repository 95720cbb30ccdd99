"""Brings what an experiment file says into canonical form, and collects all that is wrong in it.

Levels are checked against the rows of the workload (`Workload.levels`); what has a fixed shape is
left to the model (`experiment.Experiment`).
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tare import units, workloads
from tare.document import Problem, Steps, shown, text_of_scalar
from tare.errors import UsageError
from tare.levels import Factor
from tare.workloads import AnyWorkload

_MOST_COMBINATIONS = 10_000
_LONGEST_LEVEL = 2_000
_LONGEST_SETTING = 20_000
"""A PATH is one, and may have a folder a package."""
_LONGEST_GUESSED = 100


def canonical(
    document: Mapping[str, Any], known: Iterable[str], *, recorded: bool = False
) -> tuple[list[Problem], dict[str, Any]]:
    """Bring every level into canonical form.

    Args:
        document: the file's content.
        known: names of the fields that an experiment has.
        recorded: it was run already: levels are read, and not asked whether anything comes of them.

    Returns:
        What is wrong, and the content with canonical levels (of no use where something is).
    """
    kinds = workloads.by_name()
    name = document.get("workload", "request-reply")
    workload = kinds.get(name) if isinstance(name, str) else None
    if workload is None:
        found = f"{shown(name)} is no workload{_meant(name, kinds)}: choose {', '.join(kinds)}"
        return [Problem(("workload",), found)], {}
    made = workload.of(document)
    if made.problems:
        return list(made.problems), {}
    reader = _Canonical(made.content, made.workload, recorded=recorded)
    return reader.all(frozenset(known))


class _Canonical:
    """One document on its way to canonical form."""

    def __init__(
        self, document: Mapping[str, Any], workload: AnyWorkload, *, recorded: bool
    ) -> None:
        self._document = document
        self._recorded = recorded
        self._workload = workload
        self._problems: list[Problem] = []
        self._result = dict(document)
        self._factors = _Rows("factor", workload.levels.rows, self._problems)

    def all(self, known: frozenset[str]) -> tuple[list[Problem], dict[str, Any]]:
        for key in self._document:
            if key not in known:
                self._say((key,), f"unknown field{_meant(key, known) or ': remove it'}")
            elif key in workloads.own_fields() - {*self._workload.fields} and self._has(key):
                self._say((key,), f"means nothing for {self._workload.name}: remove it")
        self._levels()
        for field in ("baseline", "floor"):
            self._one_cell(field)
        if self._has("family") and self._document["family"] != "none":
            self._result["family"] = self._rule(self._document["family"], ("family",))
        for field in ("exclude", "a_a"):
            self._rules(field)
        self._session()
        self._quantities()
        self._statistic()
        if not self._problems and not self._recorded:
            self._combinations()
        return self._problems, self._result

    def _has(self, field: str) -> bool:
        return self._document.get(field) is not None

    def _say(self, path: Steps, message: str) -> None:
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
        for key, level in chosen.items():
            self._among(level, key, (field, key))

    def _among(self, level: str, key: str, path: Steps) -> None:
        levels = self._levels_of(key)
        if level not in levels:
            meant = _meant(level, levels)
            self._say(path, f"{level!r} is not among the levels: {', '.join(levels)}{meant}")

    def _levels_of(self, key: str) -> Sequence[str]:
        """The levels that a factor has, by default its only one."""
        factors = self._result.get("factors")
        row = self._workload.levels.rows[key]
        found = factors.get(key) if isinstance(factors, dict) else None
        return found or (row.level(row.default),)

    def _rule(self, node: object, path: Steps) -> dict[str, tuple[str, ...]]:
        """A rule with a level that no cell has would silently match nothing."""
        found = self._factors.many(node, path)
        if not self._recorded and not self._problems:
            for key, levels in found.items():
                listed = len(levels) > 1
                for i, level in enumerate(levels):
                    self._among(level, key, (*path, key, i) if listed else (*path, key))
        return found

    def _rules(self, field: str) -> None:
        if not self._has(field):
            return
        rules = self._document[field]
        if not isinstance(rules, list):
            said = f"has to be a list of mappings, one '- {{...}}' a rule, not {shown(rules)}"
            self._say((field,), said)
            return
        self._result[field] = [self._rule(r, (field, i)) for i, r in enumerate(rules)]

    def _combinations(self) -> None:
        """Go through the cross product for what cannot be, and for factors that nothing has."""
        factors = self._workload.levels.rows
        levels = {name: self._levels_of(name) for name in factors}
        if (count := math.prod(map(len, levels.values()))) > _MOST_COMBINATIONS:
            most = f"the most are {_MOST_COMBINATIONS}: name fewer levels"
            self._say(("factors",), f"make {count} combinations, and {most}")
            return
        excluded: Sequence[Mapping[str, Sequence[str]]] = self._result.get("exclude") or ()
        without_use = set(self._result.get("factors") or ())
        found: dict[Problem, None] = {}
        some_left = False
        for combination in itertools.product(*levels.values()):
            every = self._workload.levels(dict(zip(factors, combination, strict=True)))
            if any(all(every[k] in allowed for k, allowed in rule.items()) for rule in excluded):
                continue
            some_left = True
            without_use -= self._workload.applicable(every)
            if refused := self._workload.refused(every, levels):
                factor, why = refused
                at = (levels[factor].index(every[factor]),)
                written = self._document.get("factors", {})
                many = isinstance(written.get(factor), list)
                found[Problem(("factors", factor, *(at if many else ())), why)] = None
        self._problems += found
        for name in sorted(without_use) if some_left else ():
            self._say(("factors", name), "means nothing for any of the cells: remove it")

    def _session(self) -> None:
        rows = self._workload.settings.rows
        settings = dict(self._workload.settings.defaults())
        if self._has("session"):
            found = _Rows("setting", rows, self._problems, _LONGEST_SETTING)
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
            meant = _meant(statistic, known)
            self._say(("statistic",), f"{shown(statistic)}{meant}: choose {', '.join(known)}")


class _Rows:
    """Validates mappings from factor to level(s) against a workload's rows."""

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, Factor[Any]],
        problems: list[Problem],
        longest: int = _LONGEST_LEVEL,
    ) -> None:
        self._kind = kind
        self._rows = rows
        self._problems = problems
        self._longest = longest

    def many(self, node: object, path: Steps) -> dict[str, tuple[str, ...]]:
        """Factor -> one level or a list of them."""
        return {
            key: tuple(
                self._level(key, item, (*path, key, i) if isinstance(value, list) else (*path, key))
                for i, item in enumerate(value if isinstance(value, list) else [value])
            )
            for key, value in self._items(node, path)
        }

    def single(self, node: object, path: Steps) -> dict[str, str]:
        """Factor -> exactly one level."""
        return {
            key: self._level(key, value, (*path, key)) for key, value in self._items(node, path)
        }

    def _items(self, node: object, path: Steps) -> Iterable[tuple[str, Any]]:
        if not isinstance(node, dict):
            self._problems.append(Problem(path, f"has to be a mapping, not {shown(node)}"))
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

    def _level(self, key: str, value: object, path: Steps) -> str:
        text = ""
        try:
            text = _written(value, "level", self._longest)
            return _parsed(self._rows[key], value, text)
        except UsageError as error:
            self._problems.append(Problem(path, error.what))
            return text


def _parsed(row: Factor[Any], value: object, text: str) -> str:
    """A level as it stands there; a whole number in another notation, 0x10 or +1, as its digits."""
    try:
        return row.level(text)
    except UsageError:
        if isinstance(value, bool) or not isinstance(value, int):
            raise
        return row.level(str(int(value)))


def _written(value: object, kind: str, longest: int = _LONGEST_LEVEL) -> str:
    """A scalar as a person would write it.

    Raises:
        UsageError: it is none, or nobody means one so long.
    """
    if value is None or isinstance(value, dict | list | tuple | set):
        quote = "; put it into quotes if it is a word" if value is None and kind == "level" else ""
        raise UsageError(f"has to be one {kind}, not {shown(value)}{quote}")
    text = text_of_scalar(value)
    if len(text) > longest:
        raise UsageError(f"is longer than {longest} characters")
    return text


def _problem_of(parse: Callable[[object], object], value: object, path: Steps) -> list[Problem]:
    try:
        parse(_written(value, "quantity"))
    except UsageError as error:
        return [Problem(path, error.what)]
    return []


def _meant(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word)[:_LONGEST_GUESSED], list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
