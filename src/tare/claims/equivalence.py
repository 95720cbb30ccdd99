"""A6 and the real halves of A3 and A4: experiments whose answer is known beforehand."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tare import analysis, experiment, machine, plan, runner, workloads
from tare.claims import Claim, Result, Workshop, shown
from tare.record import Record
from tare.stats.verdict import Verdict


def _run(workshop: Workshop, name: str, folder: Path) -> analysis.Analysis:
    """Run an experiment that ships and analyse it."""
    path = workshop.home / "experiments" / name
    asked = experiment.load(path)
    workload = workloads.by_name()[asked.workload]
    record = Record.create(
        folder / path.stem,
        path.read_text(encoding="utf-8"),
        plan.make(asked, workload),
        machine.fingerprint(workshop.programs),
    )

    def tell(progress: runner.Progress) -> None:
        left = progress.seconds_left
        workshop.say(f"block {progress.block + 1}, {progress.doing}, about {left:.0f} s left")

    runner.run(record, asked, workload, workshop.programs, workshop.cache, tell)
    return analysis.analyse(record)


def _check_container(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        found = _run(workshop, "container-equivalence.yaml", Path(folder))
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
    ),
)
