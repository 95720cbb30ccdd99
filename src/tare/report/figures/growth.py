"""How cost grows with what was varied as a number: ranks, vertices, file size, power."""

from __future__ import annotations

from tare.analysis import Analysis
from tare.analysis.growth import Growth
from tare.report.figures.axis import Axis, plain, written
from tare.report.figures.figure import Figure, Line, Panel, legend, series
from tare.report.wording import Names
from tare.stats import Interval
from tare.workloads.mpi_io_scaling import PROCESSES, VERTICES


def growth(analysis: Analysis, names: Names) -> Figure | None:
    """Levels over each factor, a line for each arm, with the exponent in words."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    styles = series(names.main(cell)[0] for found in analysis.growths for _, cell in found.cells)
    drawn: dict[str, list[Line]] = {}
    said = []
    for found in analysis.growths:
        points, bars = [], []
        for number, cell in found.cells:
            estimate = analysis.view(cell.id).estimates[statistic]
            if estimate.value is not None:
                points.append((number, estimate.value))
                if estimate.low is not None and estimate.high is not None:
                    bars.append((number, estimate.low, estimate.high))
        if points:
            panel, arm = _panel(analysis, found, names), names.main(found.cells[0][1])[0]
            line = Line(styles[arm], tuple(points), bars=tuple(bars), kind="points")
            drawn.setdefault(panel, []).append(line)
            said.append(f"{panel}, {arm}: exponent {_shown(found.exponent)}")
    if not drawn:
        return None
    panels = [
        Panel(
            heading,
            _over([x for line in lines for x, _ in line.points]),
            Axis(
                [y for line in lines for _, y in line.points]
                + [y for line in lines for _, *ends in line.bars for y in ends],
                written(unit),
                upright=True,
            ),
            tuple(lines),
        )
        for heading, lines in drawn.items()
    ]
    return Figure(
        "growth",
        "How it grows",
        "Both axes are logarithmic, so that a straight line is a power: 1 is in proportion. Lines"
        " are 95 % intervals over blocks. " + "; ".join(dict.fromkeys(said)) + ".",
        "The cost of each arm over every factor that was varied as a number.",
        panels=tuple(panels),
        legend=legend(styles),
    )


def many_processes(analysis: Analysis, _names: Names) -> Figure | None:
    """The model of the paper's cluster, drawn from this run's figures: no measurement."""
    model = analysis.model
    if model is None:
        return None
    arms = {"plain": model.plain_s, "nvio": model.nvio_s}
    styles = series(arms)
    lines = tuple(
        Line(styles[arm], tuple((p, 1e9 * seconds(p)) for p in PROCESSES), kind="dashed")
        for arm, seconds in arms.items()
    )
    return Figure(
        "many_processes",
        "By model, not measured: many processes",
        f"One product of {VERTICES} x {VERTICES} cells, row by row. With this run's figures:"
        f" multiplying takes {model.multiply_s:.3g} processor seconds, the file system serves"
        f" {model.served_per_s:.3g} calls a second, a call under nvio across nodes takes"
        f" {1e6 * model.call_s:.3g} us, writing back {model.write_back_s:.3g} s. Plain calls all"
        " meet at one file system; under nvio there are as many managers as processes. What the"
        " model leaves out is said in docs/mpi-io.md. Both axes are logarithmic.",
        "Modelled time of one product over the number of processes, plain and under nvio.",
        panels=(
            Panel(
                "",
                _over(list(PROCESSES)),
                Axis([y for line in lines for _, y in line.points], written("ns"), upright=True),
                lines,
            ),
        ),
        legend=legend(styles),
        axes=("processes, each on a node of its own", "time of one product"),
    )


def _over(values: list[float] | list[int]) -> Axis:
    """A logarithmic axis that is marked where something was varied."""
    return Axis(values, plain, marks=sorted(set(values)))


def _panel(analysis: Analysis, found: Growth, names: Names) -> str:
    """What was varied, and what else sets this line apart."""
    _, cell = found.cells[0]
    others = [c.levels for c in analysis.plan.cells]
    # Every line is an arm of the baseline's factor, which nodes are a setting of.
    said = (found.factor, *analysis.experiment.baseline)
    apart = [
        names.level(name, level)
        for name, level in cell.levels.items()
        if name not in said and len({levels.get(name) for levels in others}) > 1
    ]
    return f"over {found.factor}" + (f": {', '.join(apart)}" if apart else "")


def _shown(exponent: Interval) -> str:
    if exponent.estimate is None or exponent.low is None or exponent.high is None:
        return "unresolved"
    return f"{exponent.estimate:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]"
