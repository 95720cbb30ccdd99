"""The workload `migration` (paper D): what a live migration costs, with and without pageshare."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tare.environments import Site
from tare.errors import TrialError
from tare.published.beside import Beside
from tare.workloads import Bench, Measurement, Statistic, Workload, papers
from tare.workloads.findings import Findings
from tare.workloads.migration import (
    arms,
    certificates,
    crossings,
    ksm,
    requirements,
    rows,
    usage,
)
from tare.workloads.migration.arms import Arm
from tare.workloads.migration.beside import Throughput
from tare.workloads.migration.guest import Guest
from tare.workloads.migration.journey import clock_offset_ns, travel
from tare.workloads.migration.proxies import Proxies
from tare.workloads.migration.rows import MigrationLevels, MigrationSettings
from tare.workloads.migration.testbed import InsideTestbed, Testbed
from tare.workloads.rows import one_core

_PORT = 7501
_UNLIMITED = 1 << 40
_SET_NS = 1_000_000
"""By which the clock has to move to have been set, and not read late."""
_BOOT_S = {"debian": 35.0, "tiny": 6.0}
_TRIAL_S = {"debian": 7.0, "tiny": 3.0}
_WINDOWS = {"debian": 100, "tiny": 20}
"""A plain migration's bytes over the 3 MB that the kernel lets a connection send ahead."""

_STATISTICS = {
    "time": Statistic(
        "from the order to migrate until the guest runs at the destination: the paper's migration"
        " time"
    ),
    "wire": Statistic("bytes from source to destination, counted by the network interface", "B"),
    "downtime": Statistic("for how long the guest ran nowhere"),
    "cpu": Statistic(
        "processor time of both QEMUs' migration threads and of the proxies; of the destination's"
        " QEMU all threads until the guest runs; the guest's own threads, the index and KSM apart"
    ),
    "cpu_proxies": Statistic("the share of the proxies in cpu"),
    "answers": Statistic("bytes from destination to source", "B"),
    "setup": Statistic("time before the first page: connections, capabilities"),
    "first_pass": Statistic("time of the first iteration over the guest's memory"),
    "further_passes": Statistic("time of further iterations"),
    "rest": Statistic("time from the guest's stop to its running at the destination"),
    "system": Statistic("time that the whole machine spent in the kernel meanwhile"),
    "index_cpu": Statistic("processor time in which the receiver indexed its sources, before"),
    "beside_source": Statistic(
        "throughput of the guest that stays, during the migration over before", "1", "higher"
    ),
    "beside_destination": Statistic(
        "throughput of the destination's guest, during the migration over before", "1", "higher"
    ),
    "convergence": Statistic("iterations over the guest's memory until it converged", "1"),
}


@dataclass(frozen=True)
class MigrationBench(Bench[MigrationLevels, MigrationSettings]):
    """The testbed with its guests."""

    inside: InsideTestbed

    def measure(self, levels: MigrationLevels) -> Measurement:
        """Migrate the guest once, and bring it back.

        Raises:
            TrialError: it could not be migrated.
        """
        return _Trial(levels, self).run()


class Migration(Workload[MigrationLevels, MigrationSettings]):
    """The workload `migration`."""

    name = "migration"
    levels = MigrationLevels
    settings = MigrationSettings
    plot_factors = rows.PLOT
    statistics: Mapping[str, Statistic] = _STATISTICS
    programs = ("qemu-newer/*", "target/release/pageshare")
    paper = "D"
    figures = ("split", "throughput")
    response_times = False

    def subject(self, levels: MigrationLevels) -> str:
        """What sentences about a cell speak of."""
        return f"The migration of the {levels.guest} guest"

    def disturbs(self, levels: MigrationLevels) -> str | None:
        """Pages that the kernel merges for the whole machine, and a wire that does not wait."""
        if levels.arm.ksm:
            return "KSM is turned on and off for the whole machine. Leave the arms with `ksm` out"
        if levels.round_trip or levels.loss:
            return (
                "a wire with a distance is a program of real-time priority, which no share of a"
                " processor bounds. Leave `round_trip` and `loss` out"
            )
        return None

    def applicable(self, levels: MigrationLevels) -> frozenset[str]:
        """Leave out what means nothing: only a guest that is asked has a rate, only proxies TLS."""
        names = set(levels.rows)
        if not levels.arm.proxied:
            names.discard("tls")
        if rows.load(levels.guest) is None:
            names.discard("rate")
        return frozenset(names)

    def refused(
        self,
        levels: MigrationLevels,
        asked: Mapping[str, Sequence[str]],
    ) -> tuple[str, str] | None:
        """Work of the tiny guests, which have neither a disk nor a network nor programs."""
        if levels.testbed == "tiny" and levels.guest != "idle":
            why = "is more than a kernel with a shell can do: exclude it with testbed tiny"
            return "guest", f"{levels.guest!r} {why}, or take 'idle'"
        return None

    def lacking(
        self, levels: MigrationLevels, settings: MigrationSettings, programs: Path
    ) -> str | None:
        """What the guests are made of, and what the arm needs; see `requirements`."""
        return requirements.lacking(levels, programs)

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """Paper D's savings."""
        return papers.d.beside(found)

    def remarks(self, found: Findings) -> tuple[str, ...]:
        """What the wires carried, and the hosts had, where that is not what their levels say."""
        return (*crossings.remarks(found), *one_core(found, "processors", "one a host"))

    def environment(self, plot: MigrationLevels) -> Testbed:
        """Two hosts with guests of their own."""
        return Testbed(plot)

    def setup_seconds(self, plot: MigrationLevels) -> float:
        """Expected duration of three boots."""
        return _BOOT_S[plot.testbed]

    def seconds(self, levels: MigrationLevels, settings: MigrationSettings) -> float:
        """Expected duration of a trial; at a distance TCP's windows decide, not the wire's rate."""
        windows_s = _WINDOWS[levels.testbed] * levels.round_trip / 1e9
        return _TRIAL_S[levels.testbed] + settings.settle / 1e9 + windows_s

    @contextmanager
    def enter(
        self, plot: MigrationLevels, site: Site, settings: MigrationSettings
    ) -> Iterator[MigrationBench]:
        """Boot the guests."""
        with self.environment(plot).enter(site) as inside:
            yield MigrationBench(site, inside, settings)


class _Trial:
    """One migration there, measured, and the way back."""

    def __init__(self, levels: MigrationLevels, bench: MigrationBench) -> None:
        self._arm = levels.arm
        self._levels = levels
        self._settings = bench.settings
        self._site = bench.site
        self._bed = bench.inside.bed

    def run(self) -> Measurement:
        bed = self._bed
        bed.require_home()
        bed.warm_up(self._settings.warmup / 1e9)
        with ExitStack() as stack:
            if self._arm.returning:
                bed.visit(keep_home=self._arm.differing)
                time.sleep(self._settings.away / 1e9)
            if self._arm.ksm:
                stack.enter_context(ksm.merging(self._site.leftovers, bed.home.pid))
            prealloc = self._levels.destination == "preallocated"
            there = stack.enter_context(bed.awaiting(prealloc=prealloc))
            offset = clock_offset_ns()
            measured, proxies = self._measured(stack, there)
            moved = clock_offset_ns() - offset
            bed.bring_back(there)
            if abs(moved) > _SET_NS:
                raise TrialError(
                    f"this machine's clock was set by {moved / 1e9:+.3f} s during the migration,"
                    " whose times are told by it",
                    "see that its time is synchronised before a run",
                )
            if proxies is None:
                return measured
            # Read with the guest at home: it has arrived, whatever these say of its migration.
            told = {"proxies": proxies.records_of_pages(), "index_seconds": proxies.index_seconds}
            return replace(measured, settings={**measured.settings, **told})

    def _measured(self, stack: ExitStack, there: Guest) -> tuple[Measurement, Proxies | None]:
        bed, arm, home = self._bed, self._arm, self._bed.home
        wire = bed.lay_wire(self._levels)
        for guest in (home, there):
            self._prepare(guest)
        proxies = stack.enter_context(self._proxies(arm)) if arm.proxied else None
        uri = proxies.outward if proxies else f"tcp:{bed.wire.destination_address}:{_PORT}"
        there.ask("migrate-incoming", uri=proxies.inward if proxies else uri)
        beside = Throughput(bed, self._settings.settle / 1e9)
        bed.wire.relayed()
        traffic, system = bed.wire.traffic(), usage.machine_system_ns()
        # The destination's other threads begin and end within the migration.
        source = usage.Meter.start(home.pid, usage.threads(home.pid))
        destination = usage.Meter.start(there.pid, there.vcpus)
        meters = proxies.meters() if proxies else ()
        vcpus = {g.name: (g, g.vcpu_ns()) for g in (home, bed.stays, bed.peer)}
        try:
            journey = travel(home, there, uri, self._settings.timeout / 1e9)
        except TrialError as error:
            said = f"; {proxies.last_words()}" if proxies else ""
            raise TrialError(f"{error.what}{said}", error.remedy) from error
        cpu = {"source": source.read(), "destination": destination.read()}
        for name, meter in zip(("sender", "receiver"), meters, strict=False):
            cpu[name] = meter.read()
        system = usage.machine_system_ns() - system
        traffic = bed.wire.traffic().since(traffic)
        wire |= bed.wire.relayed()
        guests = {role: _used(vcpus, g) for role, g in bed.guests(home).items()}
        values: dict[str, float] = {
            "time": journey.total,
            "wire": traffic.forth,
            "answers": traffic.back,
            "downtime": journey.downtime,
            "cpu": sum(cpu.values()),
            "cpu_proxies": cpu.get("sender", 0) + cpu.get("receiver", 0),
            "system": system,
            "index_cpu": proxies.index_ns if proxies else 0,
            "convergence": journey.iterations,
            **journey.parts(),
            **beside.ratios(journey),
        }
        settings: dict[str, Any] = {
            "wire": wire,
            "journey": asdict(journey),
            "cpu_ns": cpu,
            "guests_cpu_share": {n: ns / journey.total for n, ns in guests.items()},
            "throughput": beside.series(journey),
        }
        measured = Measurement(
            # A part that took no time is absent: ratios of it would mean nothing.
            values={name: float(value) for name, value in values.items() if value > 0},
            settings=settings,
            duration_ns=journey.total,
        )
        return measured, proxies

    def _prepare(self, guest: Guest) -> None:
        """Set every capability that some arm sets, so that none is left of the last trial."""
        known = {name for arm in arms.ARMS for name in arm.capabilities}
        on = {name: name in self._arm.capabilities for name in sorted(known)}
        limit = round(self._settings.downtime_limit / 1e6)
        guest.allow(
            {"events": True, "return-path": True, **on},
            {
                "max-bandwidth": _UNLIMITED,
                "downtime-limit": limit,
                "multifd-compression": "none",
                **self._arm.parameters,
            },
        )

    def _proxies(self, arm: Arm) -> Proxies:
        bed = self._bed
        send = [*(arm.send or ())]
        if arm.ksm:
            send += ["--ksm-pid", str(bed.home.pid)]
        if arm.differing:
            send += ["--kept", str(bed.kept_home), "--keep-name", bed.session]
        receive = [*arm.receive]
        if arm.returning:
            receive += ["--kept", str(bed.kept)]
        for source in arm.sources:
            if source == "peer":
                receive += ["--source", f"pid:{bed.peer.pid}"]
            elif bed.image is not None:
                receive += ["--source", f"image:{bed.image}"]
        return Proxies(
            self._site.programs,
            bed.wire,
            bed.scope,
            bed.trip_folder(),
            send=send,
            receive=receive,
            cpus=bed.cpus,
            tls=certificates.make(bed.scratch / "pki") if self._levels.tls == "on" else None,
        )


def _used(before: Mapping[str, tuple[Guest, int]], guest: Guest) -> int:
    _, began = before[guest.name]
    return max(0, guest.vcpu_ns() - began)
