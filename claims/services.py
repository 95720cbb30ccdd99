"""A11: what clients of services print, beside the same clients run by hand on the same wiring.

By hand: the same server in the same environment, and its client as a plain process in the client's
network and on its processors, which nothing times, watches, or shows other files. Both are measured
in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from claims.checking import Found, Workshop
from claims.peers import beside_peers
from tare import experiment, plan, process
from tare.command import Command
from tare.environments import Inside, Site
from tare.plan import Plan
from tare.workloads.command.executions import Printed
from tare.workloads.service.workload import ServiceBench

EXPERIMENTS = ("service-nginx.yaml", "service-redis.yaml", "service-postgresql.yaml")
_TIMEOUT_S = 300.0


def beside_by_hand(workshop: Workshop, name: str) -> Found:
    """The judged figure of a service, in each of its environments, over that by hand."""
    asked = plan.make(experiment.load(Path(__file__).parents[1] / "experiments" / name))
    arms = {
        f"{name.removesuffix('.yaml')}-{place}": (
            partial(measured, asked, place, ours),
            partial(measured, asked, place, by_hand),
        )
        for place in asked.experiment.factors["environment"]
    }
    return beside_peers(workshop, arms, "by hand", least=0.97, most=1.03)


How = Callable[[Plan, ServiceBench, str], float]


def measured(asked: Plan, place: str, how: How, site: Site, _: Inside) -> float:
    """One trial in an environment, entered anew."""
    cell = next(c for c in asked.cells if c.levels["environment"] == place)
    with asked.workload.enter(cell.levels, site, asked.session) as bench:
        assert isinstance(bench, ServiceBench)
        return how(asked, bench, cell.id)


def ours(asked: Plan, bench: ServiceBench, cell: str) -> float:
    """The figure of a trial, in its statistic's unit."""
    found = bench.measure(bench.workload.levels(asked.cell(cell).levels))
    return found.values[asked.experiment.statistic]


def by_hand(asked: Plan, bench: ServiceBench, cell: str) -> float:
    """The same of a client that was merely run."""
    levels = bench.workload.levels(asked.cell(cell).levels)
    statistic = asked.experiment.statistic
    with bench.served(levels):
        argv = tuple(bench.argv("client", levels))
        site = bench.site
        command = Command(argv, netns=site.hosts.client_ns, cpus=site.placement.client)
        said = process.run(command, _TIMEOUT_S)
    return bench.workload.readings[statistic].of(
        statistic, Printed(said.stdout), Printed(said.stderr)
    )
