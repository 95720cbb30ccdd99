"""The workload `command`: executions of a command, timed where they run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import environments
from tare.environments.in_guest import InsideGuest
from tare.errors import TrialError
from tare.tree import Tree, User
from tare.units import exact_duration
from tare.workloads import Bench, Made, Measurement, Statistic, rows
from tare.workloads.command.document import Asked, substituted, words
from tare.workloads.command.executions import PROGRAM, STATISTICS, Execution, Session, read
from tare.workloads.command.reading import Reading, ending
from tare.workloads.command.rows import CommandLevels, CommandSettings, with_commands
from tare.workloads.meeting import Meeting

if TYPE_CHECKING:
    from tare.environments import Site
    from tare.workloads.findings import Findings


_EMPTY_RUNS = 5
_SLACK_S = 60.0
"""To start, to prepare, to check and to clean up."""
_AUTO_S = 0.5
_ALL_TOLD = 65_536
_STARTING = 0.1
"""A share of the time from which on it is starting that was measured."""
_OF_A_TRIAL_S = 0.1


@dataclass(frozen=True)
class CommandBench(Bench[CommandLevels, CommandSettings]):
    """An environment, and what is run in it."""

    workload: Command

    def measure(self, levels: CommandLevels) -> Measurement:
        """Run a session's executions.

        Raises:
            TrialError: one failed, or what it printed or wrote is not what was expected.
        """
        session = self.executed(levels)
        return Measurement(
            values={**session.values(), **self._readings(session)},
            counters=session.counters(),
            settings={
                "command": shlex.join(self._argv(levels)),
                "wall_ns": [one.wall_ns for one in session.executions],
            },
        )

    def executed(self, levels: CommandLevels, *, tell: bool = False) -> Session:
        """Run them, and return each; see `measure`.

        Args:
            levels: of the cell.
            tell: what each printed, also where nothing of it is read.
        """
        settings, parameters = self.settings, self.workload.parameters_of(levels)
        argv = self._argv(levels)
        env = {n: substituted(v, parameters) for n, v in settings.env.items()}
        told = shlex.join(argv)
        reads = tell or self.workload.readings or settings.expect_output
        asked = [*self._options(parameters), *(["--tell", str(_ALL_TOLD)] if reads else [])]
        with ExitStack() as stack:
            stack.enter_context(levels.interference.running(self.site, self.inside))
            meeting = self._meeting(stack)
            where = meeting.where if meeting else ()
            side = stack.enter_context(
                self.inside.start((PROGRAM, *asked, *where, "--", *argv), env)
            )
            if meeting:
                meeting.arrived(side)
                meeting.await_end(self._longest_s)
            limit = exact_duration(settings.timeout)
            timeout_s = settings.timeout / 1e9 + _SLACK_S
            session = read(side, told, settings.expect_exit, timeout_s, limit)
        for one in session.executions:
            self._check(told, one, parameters)
        return session

    def _argv(self, levels: CommandLevels) -> list[str]:
        line, parameters = self.workload.commands[levels.command], self.workload.parameters_of
        return words(line, parameters(levels), self.settings.shell)

    @property
    def _longest_s(self) -> float:
        executions = self.settings.warmup + (self.settings.runs or 1)
        return executions * (self.settings.timeout / 1e9 + _SLACK_S) + _AUTO_S

    def _options(self, parameters: Mapping[str, str]) -> Iterator[str]:
        settings = self.settings
        yield from ("--runs", str(settings.runs or 0), "--for-ns", str(round(_AUTO_S * 1e9)))
        yield from ("--warmup", str(settings.warmup), "--empty", str(_EMPTY_RUNS))
        yield from ("--timeout-ns", str(settings.timeout), "--exit", str(settings.expect_exit))
        yield from ("--cwd", settings.cwd)
        if settings.shell:
            yield from ("--empty-shell", shlex.split(settings.shell)[0])
        if settings.output == "null":
            yield "--discard"
        if settings.stdin:
            yield from ("--stdin", substituted(settings.stdin, parameters))
        for name in ("prepare", "cleanup"):
            if settings[name]:
                yield from (f"--{name}", substituted(settings[name], parameters))
        if settings.expect_file:
            path = substituted(settings.expect_file[0], parameters)
            yield from ("--check", f"sha256sum -- {shlex.quote(path)}")

    def _meeting(self, stack: ExitStack) -> Meeting | None:
        """Where a guest says that all is over: to ask it meanwhile takes its own processor."""
        if not isinstance(self.inside, InsideGuest):
            return None
        return stack.enter_context(Meeting(self.site))

    def _check(self, told: str, one: Execution, parameters: Mapping[str, str]) -> None:
        pattern = self.settings.expect_output
        if pattern and not re.search(pattern, f"{one.stdout}\n{one.stderr}", re.MULTILINE):
            end = ending(one.stdout + one.stderr)
            raise TrialError(f"`{told}` printed nothing that matches {pattern!r}; its end: {end}")
        if self.settings.expect_file:
            path, digest = self.settings.expect_file
            found = one.check.split()[:1]
            if found != [digest]:
                raise TrialError(
                    f"`{told}` wrote another {substituted(path, parameters)}: its checksum is"
                    f" sha256:{''.join(found)}, not sha256:{digest}"
                )

    def _readings(self, session: Session) -> dict[str, float]:
        def mean(name: str, reading: Reading) -> float:
            each = [reading.of(name, one.stdout, one.stderr) for one in session.executions]
            return sum(each) / len(each)

        return {name: mean(name, one) for name, one in self.workload.readings.items()}


class Command(rows.InEnvironment[CommandLevels, CommandSettings]):
    """The workload `command`, with an experiment's commands, parameters and readings.

    Attributes:
        commands: name -> line; none where no experiment has said any.
        parameters: names of the factors that are put in place of {name}.
        readings: statistic -> how it is found in what a command prints.
    """

    name = "command"
    settings = CommandSettings
    plot_factors = rows.PLOT | {"files"}
    programs = (PROGRAM,)
    response_times = False
    fields = ("commands", "read")
    shown = ("wall", "user", "system", "peak", "start")

    def __init__(
        self,
        commands: Mapping[str, str] | None = None,
        parameters: Sequence[str] = (),
        readings: Mapping[str, Reading] | None = None,
    ) -> None:
        self.commands = commands or {}
        self.parameters = tuple(parameters)
        self.readings = readings or {}
        self.levels = (
            with_commands(tuple(self.commands), self.parameters) if commands else (CommandLevels)
        )
        self.statistics: Mapping[str, Statistic] = {
            **STATISTICS,
            **{name: one.statistic for name, one in self.readings.items()},
        }

    def of(self, asked: Mapping[str, Any]) -> Made:
        """With what an experiment file asks."""
        found = Asked(asked, [*CommandLevels.rows], [*STATISTICS])
        if found.problems:
            return Made(self, found.content, tuple(found.problems))
        key = (tuple(found.commands.items()), found.parameters, tuple(found.readings.items()))
        return Made(_made(*key), found.content)

    def parameters_of(self, levels: CommandLevels) -> dict[str, str]:
        """Parameter -> its level in a cell."""
        return {name: levels[name] for name in self.parameters}

    def subject(self, levels: CommandLevels) -> str:
        """What sentences about a cell speak of."""
        return f"The command {levels.command}"

    def applicable(self, levels: CommandLevels) -> frozenset[str]:
        """How files come in means something for a guest alone."""
        guest = environments.row(levels.environment).own_kernel
        return super().applicable(levels) - (frozenset() if guest else {"files"})

    def lacking(self, levels: CommandLevels, programs: Path) -> str | None:
        """What executes, and what disturbs; the files of this machine on another one."""
        if environments.is_far(levels.environment):
            return (
                "the files that a command of this machine sees are not on another one. Run Tare"
                " there, with `environment: native`"
            )
        return (
            super().lacking(levels, programs)
            or rows.unbuilt(programs / PROGRAM)
            or levels.interference.lacking()
        )

    def seconds(self, levels: CommandLevels, settings: CommandSettings) -> float:
        """Expected duration of a trial, by what an execution is said to take."""
        one = settings.takes / 1e9
        measured = max(one, _AUTO_S) if settings.runs is None else settings.runs * one
        return _OF_A_TRIAL_S + settings.warmup * one + measured

    @contextmanager
    def enter(
        self, plot: CommandLevels, site: Site, settings: CommandSettings
    ) -> Iterator[CommandBench]:
        """Enter the environment that a plot names."""
        site = replace(site, tree=self._tree(plot, settings))
        with self.environment(plot).enter(site) as inside:
            yield CommandBench(site, inside, settings, self)

    def _tree(self, plot: CommandLevels, settings: CommandSettings) -> Tree:
        """The files that commands see, and with whose rights; what of them is copied."""
        called = [shlex.split(line)[0] for line in self.commands.values() if not settings.shell]
        called += shlex.split(settings.shell)[:1]
        called += ["/bin/sh"] if settings.prepare or settings.cleanup else []
        called += ["/bin/sh", "sha256sum"] if settings.expect_file else []

        def placed(path: str) -> str:
            return str(Path(settings.cwd, path))

        return Tree(
            root=Path(settings.image),
            cwd=settings.cwd,
            user=User.invoking(),
            files="copied" if plot.files == "copied" else "shared",
            programs=tuple(placed(p) if "/" in p else p for p in dict.fromkeys(called)),
            inputs=tuple(map(placed, settings.inputs)),
            keep=tuple(map(placed, settings.keep)),
        )

    def remarks(self, found: Findings) -> tuple[str, ...]:
        """Where starting is what was measured: the reader may have meant the command."""
        said = []
        for view in found.cells:
            start, wall = (view.estimates[name].value for name in ("start", "wall"))
            if view.cell.replica == 1 and start and wall and start > _STARTING * wall:
                said.append((view.cell.id, start, wall))
        if not said:
            return ()
        named = ", ".join(
            f"{cell} {start / 1e6:.3g} of {wall / 1e6:.3g} ms" for cell, start, wall in said
        )
        return (
            f"You measured starting: an empty program takes more than a tenth of what is reported"
            f" ({named}). Give an execution more to do; let a session have more of them"
            " (--runs-per-session); or measure a server, which starts once.",
        )


@lru_cache(maxsize=64)
def _made(
    commands: tuple[tuple[str, str], ...],
    parameters: tuple[str, ...],
    readings: tuple[tuple[str, Reading], ...],
) -> Command:
    """One for each: levels of two are not of one type."""
    return Command(dict(commands), parameters, dict(readings))
