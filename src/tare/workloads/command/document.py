"""What an experiment file asks of commands: their names and lines, parameters, readings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tare.document import Problem, problems, shown, text_of_scalar
from tare.workloads.command.reading import Reading

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")
_NAMED = "a name is a letter, and up to 39 letters, digits, '_', '.' and '-' behind it"
_OF_ALL = ("inputs", "keep")
"""Settings that files are brought by for all cells of an environment."""


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
    """The command lines, parameters and readings of a document; all that is wrong with them.

    Args:
        document: of an experiment file, or an experiment's fields.
        factors: names of the factors that every experiment of the workload has.
        statistics: names of those that are measured whatever is printed.

    Attributes:
        named: factor whose levels are names of command lines -> the field that keeps these.
        settings: names of settings in which parameters stand, too.
        put_in: names that stand in braces for what the workload knows.
        lines: factor -> name -> line.
        parameters: name -> levels.
    """

    named: Mapping[str, str] = {"command": "commands"}
    settings: tuple[str, ...] = ("prepare", "cleanup", "env", "stdin", "expect_file")
    put_in: tuple[str, ...] = ()

    def __init__(
        self, document: Mapping[str, Any], factors: Sequence[str], statistics: Sequence[str]
    ) -> None:
        self.problems: list[Problem] = []
        self.content = dict(document)
        found = document.get("factors")
        self._factors: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        self.lines: dict[str, dict[str, str]] = {factor: {} for factor in self.named}
        session = self.content.get("session")
        self._shell = session.get("shell") if isinstance(session, Mapping) else None
        if isinstance(self._shell, str):
            self._split(("session", "shell"), self._shell, "")
        for factor, field in self.named.items():
            self._read_lines(factor, field)
        self.parameters = dict(self._parameters(factors))
        self.readings = dict(self._readings(document, statistics))
        for factor, field in self.named.items():
            if not self.problems and not self.lines[factor]:
                path = (field,) if field == factor else ("factors", factor)
                self._say(path, f"is required: the {factor} that is to be run")

    def _say(self, path: tuple[Any, ...], message: str) -> None:
        self.problems.append(Problem(path, message))

    def _read_lines(self, factor: str, field: str) -> None:
        """Take the lines from their field, or from the factor; their names become its levels."""
        at: tuple[str, ...] = (field,)
        written = self.content.get(field)
        if not written:
            at, written = ("factors", factor), self._factors.get(factor)
        if isinstance(written, str) or (at == (field,) and isinstance(written, list)):
            self._line(factor, at, program(joined(written)) or factor, written)
        elif isinstance(written, Mapping):
            for name, line in written.items():
                self._line(factor, (*at, name), name, line)
        elif written is not None:
            said = f"has to be a command line, or a mapping of names to them, not {shown(written)}"
            self._say(at, said)
        if not self.lines[factor]:
            return
        self.content[field] = self.lines[factor]
        levels = {factor: list(self.lines[factor])}
        factors = self.content.get("factors") or {}
        if isinstance(factors, Mapping):
            own = at == (field,)  # and the factor, if it is there, says which of the lines are run
            self.content["factors"] = {**levels, **factors} if own else {**factors, **levels}

    def _line(self, factor: str, path: tuple[Any, ...], name: Any, written: Any) -> None:
        line = joined(written)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._say(path, f"{shown(name)} is no name of a {factor}: {_NAMED}")
        elif not line.strip():
            self._say(path, f"has to be a command line, not {shown(written)}")
        else:
            if not self._shell:  # which splits it
                self._split(path, line, " without a `shell`")
            self.lines[factor][name] = line

    def _split(self, path: tuple[Any, ...], line: str, unless: str) -> None:
        try:
            shlex.split(line)
        except ValueError as error:
            self._say(path, f"cannot be split into words ({str(error).lower()}){unless}")

    def _parameters(self, factors: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Factors that are not every experiment's, and stand as {name} where they are put in."""
        session = self.content.get("session")
        settings = session if isinstance(session, Mapping) else {}
        texts = [line for lines in self.lines.values() for line in lines.values()]
        texts += [str(settings.get(name, "")) for name in self.settings]
        for name, levels in self._factors.items():
            if name in factors or not isinstance(name, str):
                continue
            for setting in _OF_ALL:
                if f"{{{name}}}" in str(settings.get(setting, "")):
                    said = f"is the same for all cells and cannot hold {{{name}}}: name each file"
                    self._say(("session", setting), f"{said}, or their folder")
            if not _NAME.fullmatch(name):
                self._say(("factors", name), f"is no name of a parameter: {_NAMED}")
            elif name in self.put_in:
                self._say(("factors", name), "is put in by Tare: choose another name")
            elif any(f"{{{name}}}" in text for text in texts):
                listed = levels if isinstance(levels, list | tuple) else (levels,)
                yield name, tuple(map(text_of_scalar, listed))
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
                    for found in problems(error, one):
                        self._say(("read", name, *found.path), found.message)


def joined(written: Any) -> str:
    """A command line, also of a list of its words; empty where it is neither."""
    if isinstance(written, list) and all(isinstance(word, str | int | float) for word in written):
        return shlex.join(map(text_of_scalar, written))
    return written if isinstance(written, str) else ""


def program(line: str) -> str:
    """The name of a command's program, where that may name the command; else empty."""
    try:
        first = (shlex.split(line) or [""])[0].rpartition("/")[2]
    except ValueError:  # a shell's, perhaps
        return ""
    return first if _NAME.fullmatch(first) else ""
