"""The workload `command`: executions of a command, timed where they run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tare.environments.in_guest import InsideGuest
from tare.units import WEEK_NS
from tare.workloads import Measurement, Statistic
from tare.workloads.command import requirements
from tare.workloads.command.document import substituted
from tare.workloads.command.executing import AUTO_S, Executing, ExecutingBench, tree
from tare.workloads.command.executions import PROGRAM, STATISTICS, Session
from tare.workloads.command.rows import CommandLevels, CommandSettings
from tare.workloads.meeting import Meeting

if TYPE_CHECKING:
    from tare.environments import Site
    from tare.tree import Tree
    from tare.workloads.findings import Findings


_EMPTY_RUNS = 5
_STARTING = 0.1
"""A share of the time from which on it is starting that was measured."""


@dataclass(frozen=True)
class CommandBench(ExecutingBench[CommandLevels]):
    """An environment, and what is run in it."""

    def measure(self, levels: CommandLevels) -> Measurement:
        """Run a session's executions.

        Raises:
            TrialError: one failed, or what it printed or wrote is not what was expected.
        """
        session = self.executed(levels)
        return Measurement(
            values=self.values(session),
            counters=session.counters(),
            settings={
                "command": shlex.join(self.argv("command", levels)),
                "wall_ns": [one.wall_ns for one in session.executions],
            },
        )

    def executed(self, levels: CommandLevels, *, tell: bool = False) -> Session:
        """Run them, and return each; see `measure`.

        Args:
            levels: of the cell.
            tell: what each printed, also where nothing of it is read.
        """
        parameters, argv = self.parameters(levels), self.argv("command", levels)
        asked = [*self.options(parameters, "prepare", "cleanup", tell=tell), *self._runs()]
        with ExitStack() as stack:
            stack.enter_context(levels.interference.running(self.site, self.inside))
            meeting = self._meeting(stack)
            where = meeting.where if meeting else ()
            words = (PROGRAM, *asked, *where, "--", *argv)
            side = stack.enter_context(self.inside.start(words, self.env(parameters)))
            if meeting:
                meeting.arrived(side)
                meeting.await_end(self._longest_s)
            return self.read(side, shlex.join(argv), parameters)

    @property
    def _longest_s(self) -> float:
        executions = self.settings.warmup + (self.settings.runs or 1)
        return min(executions * self.execution_s + AUTO_S, WEEK_NS / 1e9)

    def _runs(self) -> Iterator[str]:
        settings = self.settings
        yield from ("--runs", str(settings.runs or 0), "--for-ns", str(round(AUTO_S * 1e9)))
        yield from ("--warmup", str(settings.warmup), "--empty", str(_EMPTY_RUNS))
        for word in shlex.split(settings.shell):
            yield from ("--empty-shell", word)

    def _meeting(self, stack: ExitStack) -> Meeting | None:
        """Where a guest says that all is over: to ask it meanwhile takes its own processor."""
        if not isinstance(self.inside, InsideGuest):
            return None
        return stack.enter_context(Meeting(self.site))


class Command(Executing[CommandLevels]):
    """The workload `command`, with an experiment's commands, parameters and readings."""

    name = "command"
    base = CommandLevels
    measured = STATISTICS
    fields = ("commands", "read")

    def in_order(self, readings: Mapping[str, Statistic]) -> Mapping[str, Statistic]:
        """What is read stands behind what is measured of every command."""
        self.shown = ("wall", "user", "system", "peak", "start", *readings)
        return super().in_order(readings)

    def subject(self, levels: CommandLevels) -> str:
        """What sentences about a cell speak of."""
        return f"The command {levels.command}"

    @contextmanager
    def enter(
        self, plot: CommandLevels, site: Site, settings: CommandSettings
    ) -> Iterator[CommandBench]:
        """Enter the environment that a plot names."""
        site = replace(site, tree=self.seen(plot, settings))
        with self.environment(plot).enter(site) as inside:
            yield CommandBench(site, inside, settings, self)

    def seen(self, plot: CommandLevels, settings: CommandSettings) -> Tree:
        """The files that executions see."""
        called = self.programs_of("command", settings)
        called += ["/bin/sh"] if settings.prepare or settings.cleanup else []
        called += ["/bin/sh", "sha256sum"] if settings.expect_file else []
        return tree(settings, called, self._stdin(settings), files=plot.files)

    def _stdin(self, settings: CommandSettings) -> list[str]:
        """The files of this machine that executions read, whatever stands for the parameters."""
        named = {substituted(settings.stdin, chosen) for chosen in self.combinations()} - {""}
        paths = (Path(settings.cwd, name) for name in named)
        return [str(p) for p in paths if requirements.is_here(settings, p) and p.exists()]

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
