"""From the words of `tare measure` to the experiment file that they stand for."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from tare.command import PATH, shell_line
from tare.errors import Fault, FaultyFileError, UsageError

_T = TypeVar("_T")

_TRAILING = ("--parameter", "-P")
_BLOCKS = {"min": 8, "max": 20, "until": "3 %"}
_GATE_BLOCKS = 30
_LONGEST_TITLE, _LONGEST_HEAD = 200, 2000
FACTORS = ("environment", "placement", "vcpus", "memory", "interference", "files")
"""Those with an option of their own."""
_OF_GUESTS = ("vcpus", "memory", "files")
_OPTIONS = {
    "session.runs": "--runs-per-session",
    "session.inputs": "--input",
    "session.expect_exit": "--expect",
    "session.expect_output": "--expect",
    "session.expect_file": "--expect",
    "factors.environment": "--in",
    "factors.command": "the command",
    "gate.fail_on": "--fail-on",
    "gate.significance": "--significance",
}
"""Fields of an experiment file whose options have other names."""


@dataclass
class Asked:
    """What was typed, option by option; `document` says what is asked of the lab."""

    command: Sequence[str]
    against: Sequence[str]
    factors: Mapping[str, Sequence[str]]
    """Factor -> levels, those that were given."""
    parameters: Sequence[str]
    """Each NAME=LEVEL,LEVEL."""
    session: Mapping[str, str]
    """Setting -> text, those that were given."""
    read: Sequence[str]
    """Each NAME[:UNIT[:better]]=REGEX, or =json:PATH."""
    expect: Sequence[str]
    """Each `exit N`, `output REGEX` or `FILE sha256:HEX`."""
    statistic: str | None = None
    title: str | None = None
    blocks: int | None = None
    seed: int | None = None
    gate: Mapping[str, str] | None = None
    margin: str | None = None
    polite: Mapping[str, str] | None = None

    def document(self) -> dict[str, Any]:
        """The experiment file's content.

        Raises:
            UsageError: an option cannot be read.
        """
        words, trailing = _parted(self.command)
        commands = _named(_line(words), [_against(one, words) for one in self.against])
        parameters = _once("--parameter", map(_parameter, (*self.parameters, *trailing)))
        for name in parameters:
            if name in self.factors or name in ("environment", "command"):
                raise UsageError(f"--parameter {name}: that is a factor", "choose another name")
        factors: dict[str, Any] = {"environment": ["native"], **self.factors}
        factors |= {"command": commands, **parameters}
        base = _baseline(factors)
        # What only a guest is made of names no cell of the host.
        first = {n: next(iter(levels)) for n, levels in factors.items() if n not in _OF_GUESTS}
        document: dict[str, Any] = {
            "title": self.title or _title(commands, factors),
            "workload": "command",
            "factors": factors,
            "baseline": base,
            "a_a": [first | base],
            "session": {**self.session, **_once("--expect", map(_expected, self.expect))},
            "blocks": dict(_BLOCKS),
        }
        if self.margin is not None:
            document["margin"] = self.margin
        if self.gate is not None:  # it may end early, and takes no time to run a thing twice
            del document["a_a"]
            most = _GATE_BLOCKS if self.blocks is None else self.blocks
            document |= {"gate": dict(self.gate), "blocks": {"min": min(8, most), "max": most}}
        elif self.blocks is not None:
            document["blocks"] |= {"min": self.blocks, "max": self.blocks}
        if self.read:
            document["read"] = _once("--read", map(_reading, self.read))
        if self.statistic is not None:
            document["statistic"] = self.statistic
        if self.polite is not None:
            document["polite"] = dict(self.polite)
        if self.seed is not None:
            document["seed"] = self.seed
        return document


def written(document: Mapping[str, Any], typed: Sequence[str]) -> str:
    """The text of an experiment file, with what was typed at its head."""
    yaml = YAML()
    yaml.width = 10_000
    text = io.StringIO()
    yaml.dump(_laid_out(document), text)
    line = _cut(shell_line(*typed), _LONGEST_HEAD)
    return f"# {line}\n# Run it again, as it is or changed: tare run FILE\n{text.getvalue()}"


def _cut(line: str, most: int) -> str:
    """A line of a file that is to stay readable, and within what such a file may have."""
    return line if len(line) <= most else f"{line[:most]} ..."


def by_option(error: FaultyFileError) -> UsageError:
    """Tell the same by the options that were typed, and not by the fields that stand for them."""
    said = dict.fromkeys(
        str(Fault(fault.line, option, fault.message))
        for fault in error.faults
        if (option := _option(fault.field))
    )
    return UsageError("\n".join(said), "`tare measure --help` shows each option") if said else error


def _option(field: str) -> str | None:
    """None of a pair A/A, whose levels are told as their factors', and of the file as a whole."""
    head, name = [*field.split("."), ""][:2]
    if known := _OPTIONS.get(f"{head}.{name}"):
        return known
    if head == "factors":
        return f"--{name}" if name in FACTORS else f"--parameter {name}"
    others = {"session": f"--{name}", "polite": "--share", "read": f"--read {name}"}
    return None if head in ("", "a_a") else others.get(head, f"--{head}")


def _laid_out(value: Any) -> Any:
    """Mappings a line a key, lists of levels in one line."""
    if isinstance(value, Mapping):
        return {key: _laid_out(one) for key, one in value.items()}
    if isinstance(value, list):
        line = CommentedSeq(map(_laid_out, value))
        line.fa.set_flow_style()
        return line
    # Else it would be read as a key, or the line end NEL as a space.
    if isinstance(value, str) and (value.startswith("?") or "\x85" in value):
        return DoubleQuotedScalarString(value)
    return value


def variables(given: Sequence[str], environment: Mapping[str, str]) -> str:
    """The setting `env`: what was given, and where programs are looked for, if not as usual."""
    words = list(given)
    path = environment.get("PATH", PATH)
    if path != PATH and not any(word.partition("=")[0] == "PATH" for word in words):
        words.insert(0, f"PATH={path}")
    return shlex.join(words)


def levels(factor: str, text: str) -> list[str]:
    """The levels of a factor, between commas; one that holds commas stands alone."""
    from tare.workloads.command.rows import CommandLevels  # noqa: PLC0415 - so that --help is fast

    try:
        CommandLevels.rows[factor].level(text.strip())
    except UsageError:
        return [level.strip() for level in text.split(",")]
    return [text.strip()]


def exports(named: Mapping[str, Path | None], others: Sequence[str]) -> list[tuple[str, Path]]:
    """Format and file of each export, of options of their own and of FORMAT=FILE.

    Raises:
        UsageError: it cannot be read, or written: told before anything is measured.
    """
    from tare import export  # noqa: PLC0415 - so that --help is fast

    found = [(format_, path) for format_, path in named.items() if path is not None]
    for text in others:
        format_, _, path = text.partition("=")
        if not path:
            raise UsageError(
                f"cannot read --export {text!r}", "write FORMAT=FILE, such as hyperfine=times.json"
            )
        export.refuse_unknown(format_)
        found.append((format_, Path(path)))
    for _, file in found:
        if not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: its folder is not there", "make it first")
    return found


def joined(paths: Sequence[str] | None) -> str:
    """Paths as one setting."""
    return shlex.join(paths or [])


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take parameters off the command's end, where it has a place for them."""
    rest, trailing = list(words), list[str]()
    while len(rest) > 2 and rest[-2] in _TRAILING and "=" in rest[-1]:
        name = rest[-1].partition("=")[0]
        if not any(f"{{{name}}}" in word for word in rest[:-2]):
            break
        trailing.insert(0, rest.pop())
        rest.pop()
    return rest, trailing


def _line(words: Sequence[str]) -> str:
    """One word with spaces in it is a line by itself, as people quote it, or a program's name."""
    if not words:
        raise UsageError("give a command: tare measure [options] -- COMMAND ARG...")
    return words[0] if len(words) == 1 and not shutil.which(words[0]) else _join(words)


def _join(words: Sequence[str]) -> str:
    """As `shlex.join`, but a place for a parameter is not quoted: a reader is spared its quotes."""
    return " ".join(
        word
        if re.fullmatch(r"([\w@%+=:,./-]|\{(?![\w.-]*\.\.)[\w.-]+\})+", word)
        else shlex.quote(word)
        for word in words
    )


def _against(line: str, words: Sequence[str]) -> str:
    """A program alone is given the command's own arguments."""
    if len(words) > 1 and len(line.split()) == 1:
        return _join([line, *words[1:]])
    return line


def _named(line: str, others: Sequence[str]) -> dict[str, str]:
    """Name commands by their programs, or where these are alike new and old."""
    from tare.workloads.command.document import program  # noqa: PLC0415 - so that --help is fast

    lines = [line, *others]
    programs = [program(one) for one in lines]
    if len(set(programs)) < len(lines) or not all(programs):
        old = ["old"] if len(others) == 1 else [f"old{i + 1}" for i in range(len(others))]
        programs = ["new", *old] if others else ["command"]
    return dict(zip(programs, lines, strict=True))


def _parameter(text: str) -> tuple[str, list[str]]:
    name, sign, levels = text.partition("=")
    if not sign or not name or not levels:
        raise UsageError(f"cannot read --parameter {text!r}", "write NAME=LEVEL,LEVEL")
    return name, levels.split(",")


def _reading(text: str) -> tuple[str, dict[str, str]]:
    head, sign, how = text.partition("=")
    name, unit, better = [*head.split(":"), "", ""][:3]
    if not sign or how in ("", "json:") or head.count(":") > 2:
        raise UsageError(
            f"cannot read --read {text!r}",
            "write NAME=REGEX or NAME=json:PATH, with :UNIT and :higher or :lower behind the name,"
            " such as 'qps:1/s=([0-9.]+) queries/s'",
        )
    found = {"json": how[5:]} if how.startswith("json:") else {"regex": how}
    return name, found | ({"unit": unit} if unit else {}) | ({"better": better} if better else {})


def _expected(clause: str) -> tuple[str, str]:
    kind, _, rest = clause.partition(" ")
    if kind in ("exit", "output") and rest:
        return f"expect_{kind}", rest
    if " sha256:" in clause:
        return "expect_file", clause
    raise UsageError(
        f"cannot read --expect {clause!r}", "write 'exit 3', 'output REGEX' or 'FILE sha256:HEX'"
    )


def _once(option: str, found: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """What was given by name; of two with one name, the first would be dropped in silence."""
    named: dict[str, _T] = {}
    for name, value in found:
        if name in named:
            what = name.removeprefix("expect_")
            raise UsageError(f"{option}: {what} is given twice", "leave one of them out")
        named[name] = value
    return named


def _baseline(factors: Mapping[str, Any]) -> dict[str, str]:
    """Another command's cells, or else those of the first environment, or of a parameter's first.

    The command that was named last is what the first is held against.
    """
    commands = list(factors["command"])
    if len(commands) > 1:
        return {"command": commands[-1]}
    for name, levels in factors.items():
        if name != "command" and len(levels) > 1:
            return {name: levels[0]}
    return {}


def _title(commands: Mapping[str, str], factors: Mapping[str, Any]) -> str:
    names, places = list(commands), factors["environment"]
    if len(names) > 1:
        return f"Is {names[0]} faster than {' or '.join(names[1:])}?"
    line = _cut(commands[names[0]], _LONGEST_TITLE)
    if len(places) > 1:
        return f"What does `{line}` take in {', '.join(places[1:])}, and {places[0]}?"
    return f"What does `{line}` take?"
