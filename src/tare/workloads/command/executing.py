"""What workloads share that run a user's programs: lines, executions, checks, readings."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic

from tare import capabilities, environments, rootless
from tare.command import PATH
from tare.errors import TrialError
from tare.tree import Tree, User
from tare.units import exact_duration
from tare.workloads import Bench, Made, Room, Statistic, rows
from tare.workloads.command import requirements
from tare.workloads.command.document import Asked, substituted, words
from tare.workloads.command.executions import (
    MOST_TOLD,
    PROGRAM,
    Execution,
    Session,
    Side,
    read,
)
from tare.workloads.command.reading import Reading, cut, ending
from tare.workloads.command.rows import CommandSettings, R, passed, with_lines

SLACK_S = 60.0
"""To start, and to be told of it."""
_LINE_S = 3600.0
"""How long a shell line may take at least: what it makes may be built or loaded."""
AUTO_S = 0.5
_OF_A_TRIAL_S = 0.1

Lines = Mapping[str, Mapping[str, str]]
"""Factor -> name -> command line."""


class Executing(rows.InEnvironment[R, CommandSettings]):
    """A workload that runs a user's programs, with an experiment's lines, parameters and readings.

    Attributes:
        asked: reads them in an experiment file.
        making: settings with shell lines that may make what is run.
        base: the factors of every experiment.
        measured: what is measured whatever is printed.
        lines: of each factor that names some; none where no experiment has said any.
        parameters: factors that are put in place of {name} -> levels.
        readings: statistic -> how it is found in what is printed.
        judged: the statistic that sessions are compared by; the first where none is declared.
    """

    settings = CommandSettings
    plot_factors = rows.PLOT | {"files"}
    programs = (PROGRAM,)
    response_times = False
    asked: ClassVar[type[Asked]] = Asked
    making: ClassVar[tuple[str, ...]] = ("prepare",)
    base: type[R]
    measured: ClassVar[Mapping[str, Statistic]]

    def __init__(
        self,
        lines: Lines | None = None,
        parameters: Mapping[str, Sequence[str]] | None = None,
        readings: Mapping[str, Reading] | None = None,
        judged: str | None = None,
    ) -> None:
        self.lines = lines or {}
        self.parameters = parameters or {}
        self.readings = readings or {}
        self.levels = with_lines(self.base, lines, [*self.parameters]) if lines else self.base
        found = {name: one.statistic for name, one in self.readings.items()}
        self.statistics = self.in_order(found)
        self.judged = judged or next(iter(self.statistics))

    def in_order(self, readings: Mapping[str, Statistic]) -> Mapping[str, Statistic]:
        """All statistics; the first is judged where an experiment declares none."""
        return {**self.measured, **readings}

    def of(self, asked: Mapping[str, Any]) -> Made:
        """With what an experiment file asks."""
        found = self.asked(asked, [*self.base.rows], [*self.measured])
        if found.problems:
            return Made(self, found.content, tuple(found.problems))
        lines = tuple((factor, tuple(named.items())) for factor, named in found.lines.items())
        parameters, readings = tuple(found.parameters.items()), tuple(found.readings.items())
        judged = asked.get("statistic")
        return Made(
            _made(type(self), lines, parameters, readings, str(judged) if judged else None),
            found.content,
        )

    def parameters_of(self, levels: R) -> dict[str, str]:
        """Parameter -> its level in a cell."""
        return {name: levels[name] for name in self.parameters}

    def combinations(self) -> Iterator[dict[str, str]]:
        """Every choice of levels that can stand in a cell: parameter -> level."""
        for levels in itertools.product(*self.parameters.values()):
            yield dict(zip(self.parameters, levels, strict=True))

    def called(self, levels: R, settings: CommandSettings) -> Iterator[Path]:
        """The first word of each line, what others start by its path, and files that are named.

        As taskset starts a program, and an interpreter reads a script.
        """
        parameters = self.parameters_of(levels)
        for factor in self.lines:
            first, *more = self.words(factor, levels, settings, parameters)
            names = (first, *(word for word in more if "/" in word))
            programs = (requirements.program(settings, name, parameters) for name in names)
            stdin = substituted(settings.stdin, parameters)
            for path in (*programs, *requirements.files_named(settings, (*more, stdin))):
                if path and requirements.is_here(settings, path):
                    yield path

    def programs_of(self, factor: str, settings: CommandSettings) -> list[str]:
        """Paths of the programs that a factor's lines run, whatever stands for the parameters.

        What is not there, no cell needs, or `prepare` makes it.
        """
        named = (
            requirements.program(settings, words(line, chosen, settings.shell)[0], chosen)
            for line in self.lines[factor].values()
            for chosen in self.combinations()
        )
        return [str(path) for path in dict.fromkeys(named) if path]

    def words(
        self, factor: str, levels: R, settings: CommandSettings, parameters: Mapping[str, str]
    ) -> list[str]:
        """The words of the line that a cell names.

        Args:
            factor: whose levels are names of lines.
            levels: the cell's.
            settings: of its sessions.
            parameters: what stands for each name in braces.
        """
        return words(self.lines[factor][levels[factor]], parameters, settings.shell)

    def applicable(self, levels: R) -> frozenset[str]:
        """How files come in means something for a guest alone."""
        guest = environments.row(levels.environment).own_kernel
        return super().applicable(levels) - (frozenset() if guest else {"files"})

    def lacking(self, levels: R, settings: CommandSettings, programs: Path) -> str | None:
        """What executes, and what disturbs; the files of this machine on another one."""
        if environments.is_far(levels.environment):
            return (
                "the files that a command of this machine sees are not on another one. Run Tare"
                " there, with `environment: native`"
            )
        if environments.row(levels.environment).own_kernel and rootless.is_on():
            return "a guest is given this machine's files by root alone. Run as root"
        parameters = self.parameters_of(levels)
        called = [self.words(line, levels, settings, parameters)[0] for line in self.lines]
        return (
            super().lacking(levels, settings, programs)
            or rows.unbuilt(programs / PROGRAM)
            or _forbidden()
            or requirements.lacking(
                settings,
                called,
                parameters,
                copied=levels.files == "copied",
                made="".join(settings[name] for name in self.making),
            )
            or levels.interference.lacking(levels.environment, tree=True)
        )

    def room(self, levels: R, settings: CommandSettings) -> Room:
        """What disturbs may have files of its own."""
        return Room(disk_bytes=levels.interference.disk_bytes(levels.environment))

    def secrets(self, settings: CommandSettings) -> Mapping[str, str | None]:
        """What is passed on by its name alone."""
        return {n: os.environ.get(n) for n, value in settings.env.items() if value is None}

    def seconds(self, levels: R, settings: CommandSettings) -> float:
        """Expected duration of a trial, by what an execution is said to take."""
        one = settings.takes / 1e9
        measured = max(one, AUTO_S) if settings.runs is None else settings.runs * one
        return _OF_A_TRIAL_S + settings.warmup * one + measured


@lru_cache(maxsize=64)
def _made(
    kind: type[Executing[Any]],
    lines: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    parameters: tuple[tuple[str, tuple[str, ...]], ...],
    readings: tuple[tuple[str, Reading], ...],
    judged: str | None,
) -> Executing[Any]:
    """One for each: levels of two are not of one type."""
    by_factor = {factor: dict(named) for factor, named in lines}
    return kind(by_factor, dict(parameters), dict(readings), judged)


def tree(
    settings: CommandSettings,
    called: Sequence[str],
    inputs: Sequence[str] = (),
    *,
    files: str = "shared",
    keep: bool = True,
) -> Tree:
    """The files that programs see, and with whose rights; what of them is copied.

    Args:
        settings: of the sessions.
        called: programs, by name or path.
        inputs: files beside those of the settings.
        files: how they come to where these run.
        keep: whether what is to be kept is brought back from there.
    """

    def placed(path: str) -> str:
        return str(Path(settings.cwd, path))

    return Tree(
        root=Path(settings.image),
        cwd=settings.cwd,
        user=User.invoking(),
        files="copied" if files == "copied" else "shared",
        programs=tuple(placed(p) if "/" in p else p for p in dict.fromkeys(called)),
        inputs=tuple(map(placed, (*settings.inputs, *inputs))),
        keep=tuple(map(placed, settings.keep)) if keep else (),
        path=passed(settings.env, {}).get("PATH", PATH),
    )


def _forbidden() -> str | None:
    """Say what is lacking of the rights by which a tree is laid out and a user is become."""
    another = () if User.invoking().uid == 0 else capabilities.ANOTHER
    absent = capabilities.lacking(*capabilities.COMMAND, *another)
    return f"{absent}, for a tree of its own. {capabilities.REMEDY}" if absent else None


@dataclass(frozen=True)
class ExecutingBench(Bench[R, CommandSettings], Generic[R]):
    """An environment, and what is run in it or towards it."""

    workload: Executing[R]

    def parameters(self, levels: R) -> dict[str, str]:
        """What stands for each name in braces."""
        return self.workload.parameters_of(levels)

    def argv(self, factor: str, levels: R) -> list[str]:
        """The words of the line that a cell names."""
        return self.workload.words(factor, levels, self.settings, self.parameters(levels))

    def env(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that are asked for."""
        return passed(self.settings.env, parameters)

    @property
    def line_s(self) -> float:
        """For how long a shell line may run that is not measured."""
        return max(self.settings.timeout / 1e9, _LINE_S)

    @property
    def execution_s(self) -> float:
        """How long an execution takes at most, with its preparation, check and clean-up."""
        lines = sum(bool(self.settings[name]) for name in ("prepare", "expect_file", "cleanup"))
        return self.settings.timeout / 1e9 + lines * self.line_s + SLACK_S

    def options(
        self, parameters: Mapping[str, str], *beside: str, tell: bool = False
    ) -> Iterator[str]:
        """How executions are made, to PROGRAM; but for how many.

        Args:
            parameters: what stands for each name in braces.
            beside: settings with a shell line that is run beside each: prepare, cleanup.
            tell: what each printed, also where nothing of it is read.
        """
        settings = self.settings
        yield from ("--timeout-ns", str(settings.timeout), "--exit", str(settings.expect_exit))
        yield from ("--line-timeout-ns", str(round(self.line_s * 1e9)))
        yield from ("--cwd", settings.cwd)
        if settings.output == "null":
            yield "--discard"
        if settings.stdin:
            yield from ("--stdin", substituted(settings.stdin, parameters))
        for name in beside:
            if settings[name]:
                yield from (f"--{name}", substituted(settings[name], parameters))
        if settings.expect_file:
            path = substituted(settings.expect_file[0], parameters)
            # Not by its name, for which sha256sum has rules of its own.
            yield from ("--check", f"sha256sum <{shlex.quote(path)}")
        if tell or self.workload.readings or settings.expect_output:
            yield from ("--tell", str(MOST_TOLD))

    def read(self, side: Side, told: str, parameters: Mapping[str, str]) -> Session:
        """Read what executions printed, and check it.

        Args:
            side: PROGRAM, started.
            told: the command as messages name it.
            parameters: as of `options`.

        Raises:
            TrialError: one failed, or what it printed or wrote is not what was expected.
        """
        settings = self.settings
        limit = exact_duration(settings.timeout)
        session = read(side, told, settings.expect_exit, self.execution_s, limit)
        for one in session.executions:
            self._check(told, one, parameters)
        return session

    def _check(self, told: str, one: Execution, parameters: Mapping[str, str]) -> None:
        pattern = self.settings.expect_output
        if pattern and not re.search(pattern, f"{one.stdout}\n{one.stderr}", re.MULTILINE):
            end = ending(one.stdout + one.stderr)
            raise TrialError(
                f"`{told}` printed nothing that matches {pattern!r}; its end: {end}"
                f"{cut(one.stdout, one.stderr)}"
            )
        if self.settings.expect_file:
            path, digest = self.settings.expect_file
            found = one.check.split()[:1]
            if found != [digest]:
                raise TrialError(
                    f"`{told}` wrote another {substituted(path, parameters)}: its checksum is"
                    f" sha256:{''.join(found)}, not sha256:{digest}"
                )

    def readings(self, session: Session) -> dict[str, float]:
        """Statistic -> the mean of what a session's executions printed.

        Raises:
            TrialError: it is not there, or cannot be judged.
        """

        def mean(name: str, reading: Reading) -> float:
            each = [reading.of(name, one.stdout, one.stderr) for one in session.executions]
            self._judgeable(name, min(each))
            return sum(each) / len(each)

        return {name: mean(name, one) for name, one in self.workload.readings.items()}

    def values(self, session: Session, **also: float) -> dict[str, float]:
        """Statistic -> the session's value, with what else was measured.

        Raises:
            TrialError: as of `readings`.
        """
        counted = {**session.values(), **also}
        for name, value in counted.items():
            self._judgeable(name, value)
        return {**counted, **self.readings(session)}

    def _judgeable(self, name: str, value: float) -> None:
        if name == self.workload.judged and value <= 0:
            raise TrialError(
                f"{name} was {value:g}: only positive numbers can be judged",
                "judge another `statistic`: this one is shown all the same",
            )
