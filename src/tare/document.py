"""A YAML file as a person wrote it: read within bounds, and where in it each thing stands.

Aliases are counted as if they were written out, before anything is made of them: a kilobyte of them
can stand for more than a machine holds.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    NodeEvent,
)
from ruamel.yaml.reader import ReaderError

from tare.errors import Fault, FaultyFileError, UsageError

MOST_BYTES = 64 << 10
_DEEPEST = 20
_MOST_NODES = 20_000
_LONGEST_SHOWN = 60

Steps = tuple[Any, ...]
"""Keys and indices from the document's root to a node."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a document."""

    path: Steps
    message: str


def read(path: Path) -> str:
    """Return the text of a file that a person wrote.

    Raises:
        UsageError: it cannot be read, or is no text of a size that a person writes.
    """
    try:
        # A pipe would be waited for, and empty when it is read again.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not an ordinary file", "write it to one first")
            return text_of(file, str(path))
    except OSError as error:
        raise _unreadable(str(path), error) from error


def text_of(file: BinaryIO, name: str) -> str:
    """Return the text of an open file; `name` is what errors call it.

    Raises:
        UsageError: it cannot be read, or is no text of a size that a person writes.
    """
    try:
        content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, error) from error
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{name} is larger than {MOST_BYTES >> 10} KiB: not an experiment file",
            "`tare list` shows the experiments that ship",
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        said = f"not UTF-8: byte 0x{content[error.start]:02x}"
        raise _faulty(name, number, said, "save the file in UTF-8") from error


def refuse_bytes(text: str) -> None:
    """Refuse what was typed, or a folder's name, where it is no text.

    Raises:
        UsageError: it holds bytes, as Python has them of a command line.
    """
    if found := re.search(r"\S*[\udc80-\udcff]\S*", text):
        raise UsageError(
            f"{os.fsencode(found[0])!r} is not UTF-8: no experiment file or table can hold it",
            "have a link to it, or a script, whose name is UTF-8",
        )


def _unreadable(name: str, error: OSError) -> UsageError:
    said = f"cannot read {name}: {error.strerror}"
    return UsageError(said, "`tare list` shows the experiments that ship")


def _faulty(name: str, number: int, message: str, remedy: str) -> FaultyFileError:
    return FaultyFileError(name, [Fault(number, "", message)], remedy)


class _Int(int):
    text = ""


class _Float(float):
    text = ""


def text_of_scalar(scalar: object) -> str:
    """A scalar as it stands in the file: of a command's words and levels 007 is not 7."""
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    return scalar.text if isinstance(scalar, _Int | _Float) else str(scalar)


class _Constructor(RoundTripConstructor):
    """Knows where it is: a number or a date that cannot be is an error without a line."""

    at = 0

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        self.at = node.start_mark.line
        found = super().construct_object(node, deep=deep)
        if isinstance(found, bool):  # of a command's words True is not true
            return found if node.value in ("true", "false") else node.value
        if not isinstance(found, int | float):
            return found
        kept = _Int(found) if isinstance(found, int) else _Float(found)
        kept.text = node.value
        return kept


def parse(text: str, name: str) -> CommentedMap:
    """Read a mapping; `name` is what errors call its file.

    Raises:
        UsageError: it is no YAML, too much of it, or no mapping.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.Constructor = _Constructor
    try:
        _refuse_too_much(text, name)
        document = yaml.load(text)
    except MarkedYAMLError as error:
        number = error.problem_mark.line if error.problem_mark else 0
        raise _no_yaml(name, number, error.problem) from error
    except ReaderError as error:
        number = text.count("\n", 0, error.position)
        raise _no_yaml(name, number, f"the character {chr(error.character)!a}") from error
    except TypeError as error:  # it has no hash
        why = "a key that is a list or a mapping"
        raise _no_yaml(name, yaml.constructor.at, why) from error
    except (YAMLError, ValueError, OverflowError) as error:
        raise _no_yaml(name, yaml.constructor.at, str(error).splitlines()[0]) from error
    if not isinstance(document, CommentedMap):
        said = "an experiment is a mapping with 'title', 'factors' and 'baseline', not"
        raise _faulty(name, 1, f"{said} {shown(document)}", "start from experiments/example.yaml")
    return document


def _no_yaml(name: str, line_index: int, why: str) -> UsageError:
    said = f"not valid YAML: {why}"
    return _faulty(name, line_index + 1, said, "compare with experiments/example.yaml")


def _refuse_too_much(text: str, name: str) -> None:
    """Go through the file's events, which costs no more than its length."""
    counted = _Counted()
    for event in YAML(typ="rt", pure=True).parse(text):
        where = (name, event.start_mark.line + 1)
        counted.add(event, where)
        if len(counted.open) > _DEEPEST:
            raise _faulty(*where, f"more than {_DEEPEST} levels deep", "write it flatter")
        if counted.total > _MOST_NODES:
            raise _faulty(*where, f"stands for more than {_MOST_NODES} values", _OUT)


class _Counted:
    """How much the events so far stand for."""

    def __init__(self) -> None:
        self.total = 0
        self.open: list[tuple[str | None, int]] = []
        """Anchor of each collection around, and the total before it."""
        self._sizes: dict[str | None, int] = {}

    def add(self, event: Any, where: tuple[str, int]) -> None:
        if isinstance(event, CollectionEndEvent):
            anchor, before = self.open.pop()
            self._sizes[anchor] = self.total - before
        elif isinstance(event, AliasEvent):
            if any(event.anchor == anchor for anchor, _ in self.open):
                raise _faulty(*where, f"*{event.anchor} stands for what it is in", _OUT)
            self.total += self._sizes.get(event.anchor, 1)
        elif isinstance(event, NodeEvent):
            _refuse_extras(event, where, {*self._sizes, *(anchor for anchor, _ in self.open)})
            if isinstance(event, CollectionStartEvent):
                self.open.append((event.anchor, self.total))
            else:
                self._sizes[event.anchor] = 1
            self.total += 1


_OUT = "write out what is meant"


def _refuse_extras(event: Any, where: tuple[str, int], anchors: set[str | None]) -> None:
    """Refuse what YAML knows and an experiment has no use for."""
    if event.anchor and event.anchor in anchors:
        raise _faulty(*where, f"&{event.anchor} is there twice", "give each another name")
    if event.tag is not None:
        tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
        raise _faulty(*where, f"the tag {tag} means nothing here", "remove it")


def line(document: CommentedMap, path: Steps) -> int:
    """Line of the deepest node along a path that the document has."""
    node: Any = document
    found = 1
    for step in path:
        try:
            if isinstance(node, CommentedMap) and step in node:
                found = node.lc.key(step)[0] + 1
            elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
                found = node.lc.item(step)[0] + 1
            else:
                break
        except KeyError:  # merged in from another mapping: the line of what it is in
            pass
        node = node[step]
    return found


def shown(value: object) -> str:
    """A value in a message: as it is written, or what kind of thing it is."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(_short(str(value)))
        case Mapping():
            return "a mapping"
        case list() | tuple() | set():
            return "a list"
        case _:
            return _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def refusal(document: CommentedMap, name: str, problems: Iterable[Problem]) -> FaultyFileError:
    """All that is wrong in a document, each thing with its place."""
    faults = (Fault(line(document, p.path), _field(p.path), p.message) for p in problems)
    return FaultyFileError(name, faults, "`tare schema` prints what is allowed")


def _field(path: Steps) -> str:
    return ".".join(step if isinstance(step, str) else shown(step) for step in path)


def problems(error: ValidationError, content: object) -> list[Problem]:
    """What pydantic found wrong with a document of ours, in its reader's words and places.

    Args:
        error: of all of it; a union has an error a branch, which become one.
        content: what was validated.
    """
    found: dict[tuple[Steps, str], Problem] = {}
    ways: dict[Steps, dict[str, None]] = {}
    for item in error.errors():
        *above, last = item["loc"] or ("",)
        said = _WORDS.get(item["type"], "").format(**item.get("ctx", {}))
        if item["type"] in ("missing", "extra_forbidden"):
            path = (*_within(above, content), last)
            found[path, said] = Problem(path, said)
            continue
        path = _within(item["loc"], content)
        if item["type"] == "value_error":
            said = str(item["ctx"]["error"])
            found[path, said] = Problem(path, said)
        elif said:
            any_of = ways.setdefault(path, {})
            any_of[said] = None
            words = f"has to be {' or '.join(any_of)}, not {shown(item['input'])}"
            found[path, ""] = Problem(path, words)
        else:
            found.setdefault((path, ""), Problem(path, f"cannot be {shown(item['input'])}"))
    return [*found.values()]


def _within(steps: Iterable[Any], content: Any) -> Steps:
    """A path without pydantic's names for the branches of a union, which no document has."""
    kept = []
    for step in steps:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            continue
        kept.append(step)
    return tuple(kept)


_WORDS = {
    "missing": "is required",
    "extra_forbidden": "unknown field: remove it",
    "string_type": "text",
    "string_too_short": "text of {min_length} characters or more",
    "string_pattern_mismatch": "a plain name",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    "int_parsing_size": "a whole number of fewer digits",
    "literal_error": "{expected}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "too_short": "a list of {min_length} or more",
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a mapping"),
}
"""Type of pydantic's error -> what a value has to be."""
