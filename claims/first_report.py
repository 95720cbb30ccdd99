"""A13: from a machine as Debian leaves it to the first report, by `make run` alone."""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claims.checking import Found, Workshop
from claims.new_machines import said_there
from tare.errors import TrialError
from tare.stats.bounds import Kept

MOST_S = 360.0
_PROCESSORS = 2
_QUIET = 0.05
"""Of the processors' time, what others may take on a machine that is called quiet."""
_TIMEOUT_S = 3600.0
_TICKS = os.sysconf("SC_CLK_TCK")

_ON_THE_NEW_MACHINE = """set -e
packages() { dpkg-query --show | wc --lines; }
since() { awk -v began="$began" -v ended="$1" 'BEGIN { print ended - began }'; }
made() { since "$(stat --format=%.Y "$@" | sort | tail -n 1)"; }
before=$(packages)
began=$(date +%s.%N)
make run >&2
seconds=$(since "$(date +%s.%N)")
test -s results/quickstart-*/report.html
cat <<END
{"seconds": $seconds, "packages_s": $(made build/.setup/first), "venv_s": $(made build/.setup/venv),
"programs_s": $(made build/echo/echo-fastdds build/probe/probe), "before": $before,
"after": $(packages), "python": $(grep --count == requirements.lock)}
END
"""


def first_report(workshop: Workshop) -> Found:
    """Time `make run` on a new machine of this one's release."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:_PROCESSORS]
    if len(cpus) < _PROCESSORS:
        raise TrialError(f"this machine has {len(cpus)} processor, not {_PROCESSORS}")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    workshop.say(f"make run on a new machine of Debian's {release}, on processors {cpus}")
    busy, own, began = _busy_s(cpus), _own_s(), time.monotonic()
    words = ("fresh", release, _ON_THE_NEW_MACHINE)
    said = said_there(workshop, _TIMEOUT_S, *words, cpus=cpus)
    busy, own, wall = _busy_s(cpus) - busy, _own_s() - own, time.monotonic() - began
    found = json.loads(said[said.rindex('{"seconds"') :])
    return judge(found, max(0.0, busy - own) / (wall * len(cpus)))


def judge(found: Mapping[str, Any], others: float) -> Found:
    """Hold the time against the bound; what came too late beside others is no verdict.

    Args:
        found: what the new machine printed.
        others: share of the processors' time that went elsewhere, interrupts included.
    """
    seconds = float(found["seconds"])
    figure = (
        f"first report after {seconds:.0f} s: packages {found['packages_s']:.0f} s, then side by"
        f" side Python's until {found['venv_s']:.0f} s and programs until"
        f" {found['programs_s']:.0f} s, then the run;"
        f" {found['after'] - found['before']} Debian packages beside the {found['before']} of the"
        f" smallest root, {found['python']} of Python; others took {others:.1%} of the processors"
    )
    verdict = Kept.counted(seconds <= MOST_S)
    if verdict is Kept.FAILS and others > _QUIET:
        verdict, figure = Kept.INCONCLUSIVE, f"{figure}: not quiet"
    return Found(figure, {**found, "others": others}, counted=verdict)


def _busy_s(cpus: Sequence[int]) -> float:
    """Processor time that was not idle since boot, a hypervisor's theft included.

    Source: proc_stat(5); of the first eight columns the fourth and fifth are idle.
    """
    wanted = {f"cpu{cpu}" for cpu in cpus}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    columns = [line[1:9] for line in lines if line[0] in wanted]
    return sum(int(t) for line in columns for t in (*line[:3], *line[5:])) / _TICKS


def _own_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
