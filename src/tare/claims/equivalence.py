"""A6: an equivalence that was declared before it was measured."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tare.claims import Claim, Result, Workshop, shown
from tare.claims.shipped import run_shipped
from tare.stats.verdict import Verdict


def _check_container(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        found = run_shipped(workshop, "container-equivalence.yaml", Path(folder))
    verdicts = {q.comparison.id: q.judgement.verdict for q in found.questions if q.judgement}
    data = {
        q.comparison.id: {"ratio": shown(q.ratio.ratio), "verdict": verdicts[q.comparison.id].value}
        for q in found.questions
    }
    figure = "; ".join(f"{name}: {v['ratio']} {v['verdict']}" for name, v in data.items())
    holds = all(verdict is Verdict.EQUIVALENT for verdict in verdicts.values())
    return Result(holds, figure, data)


CLAIMS = (
    Claim(
        "A6",
        "A container costs a response nothing: container and native, through the same bridge, are"
        " equivalent within 3 %, declared in advance, for UDP and Cyclone DDS.",
        "both intervals within 0.97 to 1.03",
        _check_container,
        experiments=("container-equivalence.yaml",),
    ),
)
