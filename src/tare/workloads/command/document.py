"""What an experiment file asks of commands: their names and lines, parameters, readings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tare.document import Problem, shown, worded
from tare.workloads.command.reading import Reading

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")
_NAMED = "a name is a letter, and up to 39 letters, digits, '_', '.' and '-' behind it"
_SETTINGS = ("prepare", "cleanup", "env", "stdin", "expect_file")
"""Settings in which parameters stand too."""


def substituted(text: str, parameters: Mapping[str, str]) -> str:
    """Put the levels of parameters in place of {name}; other braces stay."""
    for name, level in parameters.items():
        text = text.replace(f"{{{name}}}", level)
    return text


def words(line: str, parameters: Mapping[str, str], shell: str) -> list[str]:
    """The words of a command line: a parameter's level is no more than a part of one.

    Args:
        line: as it was written.
        parameters: name -> level.
        shell: that is given the whole line; empty for none.
    """
    if shell:
        return [*shlex.split(shell), "-c", substituted(line, parameters)]
    return [substituted(word, parameters) for word in shlex.split(line)]


class Asked:
    """The commands, parameters and readings of a document; all that is wrong with them.

    Args:
        document: of an experiment file, or an experiment's fields.
        factors: names of the factors that every command has.
        statistics: names of those that are measured of every command.
    """

    def __init__(
        self, document: Mapping[str, Any], factors: Sequence[str], statistics: Sequence[str]
    ) -> None:
        self.problems: list[Problem] = []
        self.content = dict(document)
        found = document.get("factors")
        self._factors: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        self.commands: dict[str, str] = {}
        """Name -> line."""
        for path, name, line in self._lines(document):
            self._command(path, name, line)
        self.parameters = tuple(self._parameters(document, factors))
        self.readings = dict(self._readings(document, statistics))
        if not self.problems and not self.commands:
            self._say(("factors", "command"), "is required: what is to be run")

    def _say(self, path: tuple[Any, ...], message: str) -> None:
        self.problems.append(Problem(path, message))

    def _lines(self, document: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
        """Where each command stands, its name, its line; the names become the factor's levels."""
        declared = document.get("commands")
        if isinstance(declared, Mapping) and declared:
            yield from ((("commands", name), name, line) for name, line in declared.items())
            factors = {"command": list(map(str, declared)), **self._factors}
            self.content["factors"] = factors
            return
        written = self._factors.get("command")
        if isinstance(written, str):
            name = program(written) or "command"
            written, at = {name: written}, ("factors", "command")
            yield at, name, written[name]
        elif isinstance(written, Mapping):
            for name, line in written.items():
                yield ("factors", "command", name), name, line
        elif written is not None:
            said = f"has to be a command line, or a mapping of names to them, not {shown(written)}"
            self._say(("factors", "command"), said)
            return
        if isinstance(written, Mapping):
            self.content["factors"] = {**self._factors, "command": list(map(str, written))}
            self.content["commands"] = self.commands

    def _command(self, path: tuple[Any, ...], name: Any, line: Any) -> None:
        if isinstance(line, list) and line and all(isinstance(w, str | int | float) for w in line):
            line = shlex.join(map(str, line))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._say(path, f"{shown(name)} is no name of a command: {_NAMED}")
        elif not isinstance(line, str) or not line.strip():
            self._say(path, f"has to be a command line, not {shown(line)}")
        else:
            try:
                shlex.split(line)
            except ValueError as error:
                self._say(path, f"cannot be split into words: {str(error).lower()}")
            self.commands[name] = line

    def _parameters(self, document: Mapping[str, Any], factors: Sequence[str]) -> Iterator[str]:
        """Factors that are not every command's, and stand as {name} where they are put in."""
        session = document.get("session")
        settings = session if isinstance(session, Mapping) else {}
        texts = [*self.commands.values(), *(str(settings.get(name, "")) for name in _SETTINGS)]
        for name in self._factors:
            if name in factors or not isinstance(name, str):
                continue
            if not _NAME.fullmatch(name):
                self._say(("factors", name), f"is no name of a parameter: {_NAMED}")
            elif any(f"{{{name}}}" in text for text in texts):
                yield name
            else:
                known = ", ".join(factors)
                said = f"unknown factor, and no {{{name}}} stands in a command: choose {known}"
                self._say(("factors", name), said)

    def _readings(
        self, document: Mapping[str, Any], statistics: Sequence[str]
    ) -> Iterator[tuple[str, Reading]]:
        written = document.get("read") or {}
        if not isinstance(written, Mapping):
            self._say(("read",), f"has to be a mapping of names, not {shown(written)}")
            return
        for name, one in written.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._say(("read", name), f"{shown(name)} is no name of a statistic: {_NAMED}")
            elif name in statistics:
                self._say(("read", name), "is measured of every command: choose another name")
            else:
                try:
                    yield name, Reading.model_validate(one)
                except ValidationError as error:
                    for item in error.errors():
                        found = worded(item)
                        self._say(("read", name, *found.path), found.message)


def program(line: str) -> str:
    """The name of a command's program, where that may name the command; else empty."""
    first = (line.split() or [""])[0].rpartition("/")[2]
    return first if _NAME.fullmatch(first) else ""
