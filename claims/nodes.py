"""C2: what 4 KiB cost at this node and at another one, by nvio's own benchmark."""

from __future__ import annotations

import json
from typing import Any

from claims import Claim, Result, Workshop, conclude
from tare import process
from tare.command import Command
from tare.stats import Interval, Method
from tare.stats.bounds import Bound

_HERE_US = 1.0
_OVER_ECHO = 1.3
_IDLE = 0.01
_TIMEOUT_S = 1800.0


def _check(workshop: Workshop) -> Result:
    workshop.say("4 KiB here, at another node, and a bare epoll echo, in turns: 1 and 4 clients")
    argv = (str(workshop.programs / "nvio/nvio-bench"), "latency")
    data: dict[str, Any] = json.loads(process.run(Command(argv), _TIMEOUT_S).stdout)
    runs = data["runs"]
    local = max(run[way]["p50_us"] for run in runs for way in ("local_read", "local_write"))
    over = {
        f"{run['clients']} clients {name}": run[f"{name}_over_echo"]
        for run in runs
        for name in ("read", "write")
    }
    idle = max(run["idle_manager_share"] for run in runs)
    figure = f"here p50 {local:.2f} us at most; another node over a bare echo: " + ", ".join(
        f"{name} {ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        for name, ratio in over.items()
    )
    figure += f"; an idle manager takes {idle:.2%} of a core"
    bounds = [
        Bound(f"{name} over a bare echo", _interval(ratio), most=_OVER_ECHO)
        for name, ratio in over.items()
    ]
    return conclude(bounds, figure, data, counted=local <= _HERE_US and idle < _IDLE)


def _interval(ratio: dict[str, float]) -> Interval:
    ends = (ratio["median"], ratio["low"], ratio["high"])
    return Interval(*ends, 0.95, Method.T, int(ratio["rounds"]))


CLAIMS = (
    Claim(
        "C2",
        "What is cached at this node costs a copy, what is cached at another hardly more than a"
        " message; a manager that nobody asks does nothing.",
        "4 KiB here at most 1 us p50; at another node at most 1.3 x a bare epoll echo, with 1 and 4"
        " clients; idle under 1 % of a core",
        _check,
    ),
)
