"""A6: an equivalence that was declared before it was measured."""

from __future__ import annotations

import tempfile
from pathlib import Path

from claims import Claim, Result, Workshop, conclude, shown
from claims.shipped import run_shipped
from tare.stats.bounds import Bound

_LEAST, _MOST = 0.97, 1.03


def _check_container(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        found = run_shipped(workshop, "container-equivalence.yaml", Path(folder))
    bounds = [Bound(q.comparison.id, q.ratio.ratio, _LEAST, _MOST) for q in found.questions]
    figure = "; ".join(f"{bound.name}: {shown(bound.found)}" for bound in bounds)
    return conclude(bounds, figure, {})


CLAIMS = (
    Claim(
        "A6",
        "A container costs a response nothing: container and native, through the same bridge, are"
        " equivalent within 3 %, declared in advance, for UDP and Cyclone DDS.",
        "both intervals within 0.97 to 1.03",
        _check_container,
        experiments=("container-equivalence.yaml",),
        grows=True,
    ),
)
