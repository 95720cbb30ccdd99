"""A10: commands beside hyperfine, interleaved; the same in every environment; what it costs.

Each program is by another hand than ours, takes a tenth of a second or more, and what it prints is
known. hyperfine (https://github.com/sharkdp/hyperfine) is the field's own tool: both measure as
many executions of a session after one that warms up, without a shell; medians are compared.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from claims.checking import Found, Workshop
from claims.everywhere import absence, in_each, judged
from claims.peers import beside_peers
from tare import process
from tare.environments import Inside, Site
from tare.errors import TrialError
from tare.placement import Placement
from tare.stats.bounds import Kept
from tare.testing.site import levels_of, site_for
from tare.workloads.command import Command
from tare.workloads.command.executions import PROGRAM

_RUNS = 10
_PLACES = ("native", "container", "gvisor", "uml", "qemu")
_ADDED_RUNS, _ADDED_SESSIONS, _MOST_ADDED_NS = 200, 5, 1e6
_TIMEOUT_S = 300.0
_SUM = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) select sum(i) from n"  # noqa: E501 - one query


@dataclass(frozen=True)
class Program:
    """A command, and what its output has to match."""

    line: str
    prints: str


PROGRAMS: Mapping[str, Program] = {
    "gzip": Program("gzip -9 -n -v -c /usr/bin/openssl", r"^/usr/bin/openssl:\s+[0-9.]+%"),
    "openssl": Program("openssl pkeyutl -kdf scrypt -kdflen 8 -pkeyopt pass:a -pkeyopt salt:b"
                       " -pkeyopt N:65536 -pkeyopt r:8 -pkeyopt p:1 -hexdump", "^0000 - 1c 35"),
    "sqlite3": Program(f"sqlite3 :memory: '{_SUM}'", "^20000100000$"),
    "python3": Program("python3 -c 'print(sum(i * i for i in range(10 ** 6)))'",
                       "^333332833333500000$"),
    "gcc": Program("gcc -O2 -S -x c -o - /usr/include/linux/bpf.h", r"\.ident"),
}  # fmt: skip


def beside_hyperfine(workshop: Workshop) -> Found:
    """The median of each program over hyperfine's."""
    arms = {name: (_ours(one), _hyperfine(one)) for name, one in PROGRAMS.items()}
    found = beside_peers(workshop, arms, "hyperfine", least=0.98, most=1.02)
    return replace(found, line=f"median wall times: {found.line}")


def _ours(program: Program) -> Callable[[Site, Inside], float]:
    def measure(site: Site, _: Inside) -> float:
        with _bench(program, "native", site, runs=str(_RUNS), output="null") as bench:
            return bench()

    return measure


def _hyperfine(program: Program) -> Callable[[Site, Inside], float]:
    def measure(site: Site, _: Inside) -> float:
        told = site.scratch / "hyperfine.json"
        options = ("--shell=none", "--warmup=1", f"--runs={_RUNS}", f"--export-json={told}")
        command = process.Command(("hyperfine", *options, program.line), cwd=Path("/"))
        process.run(command, _TIMEOUT_S)
        return float(json.loads(told.read_text())["results"][0]["median"]) * 1e9

    return measure


@contextmanager
def _bench(
    program: Program, place: str, site: Site, **session: str
) -> Iterator[Callable[[], float]]:
    """A program's session in an environment: its median wall time in ns."""
    workload = Command({"command": {"it": program.line}})
    settings = workload.settings.defaults().but(cwd="/", **session)
    levels = levels_of(workload, environment=place)
    with workload.enter(levels, site, settings) as bench:
        yield lambda: bench.measure(levels).values["wall"]


def everywhere(workshop: Workshop) -> Found:
    """Whether each program runs in each environment, and puts out what it should."""
    data: dict[str, str] = {}

    def look(place: str) -> int:
        good = 0
        with site_for(place, workshop.programs, workshop.cache) as (level, site):
            anywhere = replace(site, placement=Placement())
            for name, program in PROGRAMS.items():
                workshop.say(f"{name} in {place}")
                asked = {"runs": "1", "warmup": "0", "expect_output": program.prints}
                try:
                    with _bench(program, level, anywhere, **asked) as measured:
                        data[f"{place}/{name}"] = f"{measured() / 1e6:.1f} ms"
                    good += 1
                except TrialError as error:
                    data[f"{place}/{name}"] = error.what
        return good

    found, absent = in_each(workshop, look, _PLACES)
    wanted = len(found) * len(PROGRAMS)
    line = f"{sum(found.values())} of {wanted} pairs of program and environment ran, and printed"
    line += f" what they should{absence(absent)}"
    kept = judged({place: good == len(PROGRAMS) for place, good in found.items()}, absent)
    return Found(line, {"everywhere": data, "absent": absent}, counted=kept)


def added(workshop: Workshop) -> Found:
    """What an execution takes beyond its own time: of many of a program that does nothing."""
    each = []
    for _ in range(_ADDED_SESSIONS):
        argv = (str(workshop.programs / PROGRAM), f"--runs={_ADDED_RUNS}", "--", "true")
        began = time.monotonic_ns()
        said = process.run(process.Command(argv), _TIMEOUT_S).stdout
        taken = time.monotonic_ns() - began
        lines = [json.loads(line) for line in said.splitlines()]
        own = sum(line["wall_ns"] for line in lines if line["event"] == "execution")
        each.append((taken - own) / _ADDED_RUNS)
    median = statistics.median(each)
    line = f"beside its own time an execution takes {median / 1e6:.3f} ms"
    counted = Kept.counted(max(each) <= _MOST_ADDED_NS)
    return Found(f"{line}, {max(each) / 1e6:.3f} at most", {"added_ns": each}, counted=counted)
