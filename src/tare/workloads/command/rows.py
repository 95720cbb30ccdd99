"""The factors of a user's programs, and what their sessions share."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, cast

from tare import placement
from tare.command import Secret
from tare.errors import UsageError
from tare.levels import Factor, Settings, choice
from tare.workloads import rows
from tare.workloads.command.document import substituted


def text(default: str, help: str, *examples: str) -> Factor[str]:
    """A row that holds any text."""
    return Factor(str, str, default, help, examples=examples)


def line(help: str, *examples: str) -> Factor[str]:
    """A factor whose levels are names of command lines."""
    return Factor(str, str, "", help, examples=examples, named=True)


class RunLevels(rows.Placed):
    """What whatever runs a user's programs has in common."""

    environment: Factor[str]
    files = choice(
        ("shared", "copied"),
        "shared",
        "How the files of this machine come into a guest: its file tree, shared, or the program,"
        " its libraries, `stdin` and `inputs`, copied into its memory.",
    )
    interference = rows.INTERFERENCE
    placement = Factor(
        placement.parse,
        str,
        "anywhere",
        "Processors of the command (server), virtual CPUs and VMM: anywhere, same-core, or sets"
        " such as 'server=1 vmm=1 vcpus=1'.",
        examples=("anywhere", "same-core"),
    )


class CommandLevels(RunLevels):
    """The factors of every command."""

    environment = rows.environment("Where the command runs")
    command = line(
        "What is run: a command line, or a mapping of names to them, of which the names are levels."
        " No shell reads it, unless `shell` says so. {threads} stands for a level of the factor"
        " `threads`.",
        "gzip -9 -c corpus.tar",
    )


R = TypeVar("R", bound=RunLevels)


def with_lines(
    base: type[R], lines: Mapping[str, Iterable[str]], parameters: Sequence[str]
) -> type[R]:
    """The same with an experiment's own lines, by their names, and its parameters as factors.

    Args:
        base: the factors of every experiment.
        lines: factor of these -> names.
        parameters: names.
    """
    named = {}
    for factor, names in lines.items():
        first, *more = names
        named[factor] = choice((first, *more), first, f"The {factor}, by its name.")
    found = cast("type[R]", type("Levels", (base,), {**named}))
    own = {name: text("", f"What stands in the place of {{{name}}}.") for name in parameters}
    for name, row in own.items():
        row.name = name
    # No attributes: a parameter may have any name.
    found.rows = {"environment": found.rows["environment"], **named, **own, **found.rows}
    return found


def _runs(written: object) -> int | None:
    return None if written == "auto" else rows.count("1", "", most=1_000_000).parse(written)


Variables = Mapping[str, str | None]
"""Name -> value; None where it is taken from the environment of Tare, and written nowhere."""


def _variables(written: object) -> Variables:
    try:
        parted = [word.partition("=") for word in shlex.split(str(written))]
    except ValueError as error:
        raise UsageError(f"{written!r} cannot be split into words: {error}") from error
    for name, sign, _ in parted:
        if not name or (not sign and not _NAME.fullmatch(name)):
            raise UsageError(
                f"{name!r} is no variable: write NAME=VALUE, or NAME alone for the value of the"
                " moment, with spaces between"
            )
    return {name: value if sign else None for name, sign, value in parted}


_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def _shown_variables(found: Variables) -> str:
    return " ".join(n if v is None else f"{n}={shlex.quote(v)}" for n, v in found.items())


def passed(variables: Variables, parameters: Mapping[str, str]) -> dict[str, str]:
    """What programs are given; a value that Tare has and the file has not is a secret.

    A variable that is not set is left out: `requirements.lacking` has said so.

    Args:
        variables: that are asked for.
        parameters: what stands for each name in braces, but for those of a secret.
    """
    own = {n: Secret(os.environ[n]) for n, v in variables.items() if v is None and n in os.environ}
    return {
        n: own[n] if v is None else substituted(v, parameters)
        for n, v in variables.items()
        if v is not None or n in own
    }


def _regex(written: object) -> str:
    try:
        re.compile(str(written))
    except re.error as error:
        raise UsageError(f"{written!r} is no regular expression: {error}") from error
    return str(written)


def _checksum(written: object) -> tuple[str, str] | None:
    if not str(written):
        return None
    path, _, digest = str(written).rpartition(" ")
    if not path.strip() or not re.fullmatch(r"sha256:[0-9a-fA-F]{64}", digest):
        raise UsageError(f"{written!r} is no checksum: write 'FILE sha256:' and 64 hex digits")
    return path.strip(), digest.removeprefix("sha256:").lower()


def _shown_checksum(found: tuple[str, str] | None) -> str:
    return f"{found[0]} sha256:{found[1]}" if found else ""


def _end(written: object) -> int:
    if re.fullmatch(r"-?[0-9]{1,3}", str(written)) and -64 <= int(str(written)) <= 255:
        return int(str(written))
    raise UsageError(f"{written!r} is no exit code: write 0 to 255, or minus a signal's number")


def _paths(written: object) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(str(written)))
    except ValueError as error:
        raise UsageError(f"{written!r} cannot be split into paths: {error}") from error


def _absolute(written: object) -> str:
    return os.path.abspath(os.path.expanduser(str(written)))  # noqa: PTH100, PTH111 - it stays text


class CommandSettings(Settings):
    """What sessions share. Parameters stand as {name} in those that hold lines or paths."""

    runs = Factor(
        _runs,
        lambda runs: "auto" if runs is None else str(runs),
        "auto",
        "Executions that are measured in a session; auto: as many as begin within half a second,"
        " that of `prepare`, `cleanup` and `expect_file` counted.",
        examples=("auto", "1", "10"),
    )
    warmup = rows.count("1", "Executions before, in every session.", least=0, most=1_000_000)
    prepare = text("", "Shell line before each execution, outside of its time.")
    cleanup = text("", "Shell line after each execution, outside of its time.")
    shell = text("", "What is given the whole command line, such as sh; none where empty.", "sh")
    env = Factor(
        _variables,
        _shown_variables,
        "",
        "Environment variables, beside PATH, HOME and a C locale; NAME alone is a secret, which has"
        " the value of the moment and is kept in no file.",
        examples=("OMP_NUM_THREADS=2 MODE=fast", "MODE=fast API_TOKEN"),
    )
    cwd = Factor(_absolute, str, ".", "The folder it works in.")
    stdin = text("", "The file that is its standard input; /dev/null where empty.")
    timeout = rows.duration(
        "2 h",
        "An execution that takes longer is killed; a shell line beside it, after an hour at least.",
        "10 s",
        least=1,
    )
    output = choice(
        ("captured", "null"),
        "captured",
        "Where standard output goes: held in memory, the two ends of much, or to /dev/null.",
    )
    expect_exit = Factor(_end, str, "0", "The exit code of one that went well.")
    expect_output = Factor(
        _regex, str, "", "Regular expression that is found in what it prints; else the trial fails."
    )
    expect_file = Factor(
        _checksum,
        _shown_checksum,
        "",
        "A file that it has written then, and its checksum: FILE sha256:HEX; else the trial fails.",
    )
    inputs = Factor(
        _paths, shlex.join, "", "Files and folders that are copied too, with `files: copied`."
    )
    keep = Factor(
        _paths, shlex.join, "", "Paths whose content is brought back to the host; nothing else is."
    )
    image = text(
        "/", "Whose files it sees: the root of this machine, or a folder with an unpacked image."
    )
    takes = rows.duration(
        "500 ms",
        "About what an execution takes, with what is run beside it: for the plan's estimate only.",
    )
