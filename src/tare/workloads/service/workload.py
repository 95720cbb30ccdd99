"""The workload `service`: a server where it is to be, and a client on the host that asks it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tare import accounting
from tare.command import Command
from tare.environments.on_host import InsideHost
from tare.errors import TrialError
from tare.host import Host
from tare.trees.merged import laid_out
from tare.workloads import Measurement, Statistic
from tare.workloads.command import requirements
from tare.workloads.command.document import substituted
from tare.workloads.command.executing import Executing, ExecutingBench, tree
from tare.workloads.command.executions import PROGRAM, STATISTICS, Session
from tare.workloads.command.rows import CommandSettings
from tare.workloads.service.document import AskedOfService
from tare.workloads.service.rows import AT_THE_TOP, ServiceLevels, ServiceSettings
from tare.workloads.service.serving import Serving

if TYPE_CHECKING:
    from pathlib import Path

    from tare.environments import Site
    from tare.workloads.findings import Findings

_CPU = "server_cpu"
_OF_THE_CLIENT = {
    name: replace(one, help=f"of the client: {one.help}")
    for name, one in STATISTICS.items()
    if name != "start"
}
_BUSY = 0.9
"""A share of a client's time from which on it may be what is measured."""
_START_S = 0.5


class AtTheClient(InsideHost):
    """The client's host, where its programs see this machine's files."""

    def _placed(self, argv: Sequence[str], env: Mapping[str, str] | None) -> Command:
        site = self.host.site
        namespace, cpus = site.hosts.client_ns, site.placement.client
        return replace(super()._placed(argv, env), netns=namespace, cpus=cpus)


@dataclass(frozen=True)
class ServiceBench(ExecutingBench[ServiceLevels]):
    """An environment with a server, and its client's host."""

    client: AtTheClient
    settled: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    """Lines of `setup` that have been run here, with their variables."""

    @property
    def own(self) -> ServiceSettings:
        """The settings, as what they are."""
        assert isinstance(self.settings, ServiceSettings)
        return self.settings

    def parameters(self, levels: ServiceLevels) -> dict[str, str]:
        """What stands for each name in braces."""
        where = {"address": self.inside.address, "port": str(self.own.port)}
        return {**self.workload.parameters_of(levels), **where}

    def measure(self, levels: ServiceLevels) -> Measurement:
        """Start the server, load it, run the client, and end both.

        Raises:
            TrialError: either failed; with its last words.
        """
        settings, now = self.settings, self.site.stopwatch.now
        with ExitStack() as stack:
            now("starting")
            server = stack.enter_context(self.served(levels))
            stack.enter_context(levels.interference.running(self.site, self.inside))
            if settings.warmup:
                now("warming up")
                self._ask(server, levels, settings.warmup)
            now("accounting")
            consumed, account = server.consumed_ns(), server.process.account()
            now("measuring")
            session = self._ask(server, levels, settings.runs or 1)
            now("accounting")
            server.look()
            account = accounting.difference(account, server.process.account())
            consumed = server.consumed_ns() - consumed
            now("ending")
        # Where a child that nobody waited for has ended, its time is in the first count alone.
        counted = {_CPU: consumed / len(session.executions)} if consumed >= 0 else {}
        return Measurement(
            values=self.values(session, **counted),
            counters=session.counters(),
            settings={
                "server": str(server),
                "client": shlex.join(self.argv("client", levels)),
                "wall_ns": [one.wall_ns for one in session.executions],
            },
            server=account,
            duration_ns=sum(one.wall_ns for one in session.executions),
        )

    @contextmanager
    def served(self, levels: ServiceLevels) -> Iterator[Serving]:
        """Have the server, ready and loaded.

        Raises:
            TrialError: it ended, or was not ready in time.
        """
        settings, parameters = self.own, self.parameters(levels)
        words, env = self.argv("server", levels), self.env(parameters)
        self._set_up(substituted(settings.setup, parameters), env)
        on_the_host = partial(self._on_the_host, env)
        hosts = self.site.hosts
        with Serving(
            self.inside,
            words,
            env,
            port=settings.port,
            server_ns=hosts.server_ns,
            client_ns=hosts.client_ns,
        ) as server:
            ready = replace(settings.ready, what=substituted(settings.ready.what, parameters))
            server.await_ready(ready, settings.patience, on_the_host)
            if settings.prepare:
                on_the_host(substituted(settings.prepare, parameters), self.line_s)
            yield server

    def _ask(self, server: Serving, levels: ServiceLevels, runs: int) -> Session:
        """Run the client so often."""
        parameters, argv = self.parameters(levels), self.argv("client", levels)
        options = (*self.options(parameters, "cleanup"), "--runs", str(runs))
        with self.client.start((PROGRAM, *options, "--", *argv), self.env(parameters)) as side:
            try:
                return self.read(server.watched(side), shlex.join(argv), parameters)
            except TrialError:
                server.look()  # a client that fails may be told of here sooner than what it asked
                raise

    def _on_the_host(self, env: Mapping[str, str], line: str, timeout_s: float) -> None:
        """Run a shell line where the client is."""
        self.client.run(("sh", "-c", line), timeout_s, env)

    def _set_up(self, line: str, env: Mapping[str, str]) -> None:
        """Run a shell line where the server is, unless that has been done."""
        done = (line, tuple(env.items()))
        if not line or done in self.settled:
            return
        try:
            # What it prints is of interest where it fails.
            words = ("sh", "-c", f"{{ {line}\n}} >&2")
            self.inside.run(words, self.line_s, env)
        except TrialError as error:
            raise TrialError(f"`setup` failed: {error.what}", error.remedy) from error
        self.settled.add(done)


class Service(Executing[ServiceLevels]):
    """The workload `service`, with an experiment's servers, clients, parameters and readings."""

    name = "service"
    settings = ServiceSettings
    asked = AskedOfService
    making = ("setup", "prepare")
    base = ServiceLevels
    measured: ClassVar[Mapping[str, Statistic]] = {
        **_OF_THE_CLIENT,
        _CPU: Statistic(
            "processor time of the server and its children for each run of the client, as the"
            " kernel that runs it counts, in ticks of 10 ms"
        ),
    }
    fields = ("server", "client", "read", *AT_THE_TOP)

    def in_order(self, readings: Mapping[str, Statistic]) -> Mapping[str, Statistic]:
        """What is read comes first: a client often runs for as long as it is told."""
        self.shown = (*readings, "wall", _CPU)
        return {**readings, **self.measured}

    def subject(self, levels: ServiceLevels) -> str:
        """What sentences about a cell speak of."""
        return f"The server {levels.server}"

    def lacking(
        self, levels: ServiceLevels, settings: CommandSettings, programs: Path
    ) -> str | None:
        """The user whose rights the server is to have, too."""
        user = requirements.rights(settings["as"])
        return super().lacking(levels, settings, programs) or (
            user if isinstance(user, str) else None
        )

    def seconds(self, levels: ServiceLevels, settings: CommandSettings) -> float:
        """Expected duration of a trial."""
        return _START_S + super().seconds(levels, settings)

    @contextmanager
    def enter(
        self, plot: ServiceLevels, site: Site, settings: CommandSettings
    ) -> Iterator[ServiceBench]:
        """Enter the environment that a plot names, and the client's host."""
        called = ["/bin/sh", *self.programs_of("server", settings)]
        served = tree(settings, called, files=plot.files, keep=False)
        user = requirements.rights(settings["as"])
        if isinstance(user, str):
            raise TrialError(user)
        served = replace(served, user=user)
        at_client = replace(site, tree=tree(settings, ()))
        with (
            laid_out(at_client, own_kernel=True) as merged,
            self.environment(plot).enter(replace(site, tree=served)) as inside,
        ):
            client = AtTheClient(Host(site), "client", merged=merged)
            yield ServiceBench(site, inside, settings, self, client)

    def remarks(self, found: Findings) -> tuple[str, ...]:
        """Where a client was busy throughout, and what it could not ask was not served."""
        busy = []
        for view in found.cells:
            user, system, wall = (view.estimates[n].value for n in ("user", "system", "wall"))
            if view.cell.replica == 1 and wall and (user or 0) + (system or 0) > _BUSY * wall:
                busy.append(view.cell.id)
        said = super().remarks(found)
        if not busy:
            return said
        return (
            *said,
            "The client used a whole processor, or more, for more than nine tenths of its time"
            f" ({', '.join(busy)}): where it has one thread, you measured the client. Give it more"
            " threads, or more of them.",
        )
