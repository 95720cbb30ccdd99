"""An experiment as its file would have it, and one trial of its first cell."""

from __future__ import annotations

import json
from typing import Any

from tare import experiment, plan
from tare.environments import Site
from tare.plan import Plan
from tare.workloads import Measurement


def laid_out(document: dict[str, Any]) -> Plan:
    """Plan it."""
    return plan.make(experiment.parse(json.dumps(document), "x.yaml"), 1)


def one_trial(document: dict[str, Any], site: Site) -> Measurement:
    """Measure once."""
    planned = laid_out(document)
    levels = planned.cells[0].levels
    with planned.workload.enter(levels, site, planned.session) as bench:
        found: Measurement = bench.measure(levels)
        return found
