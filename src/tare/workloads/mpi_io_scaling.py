"""What walks, row by row, would take on many nodes: a model, with this run's figures in it.

A product of n x n cells by P processes, one a node, on a grid as square as it can be:

    plain(P) = W / P + P c(P) / mu               every call is served by the one file system
    nvio(P)  = W / P + c(P) s + F                calls are served by P managers, as many as callers

W      processor seconds of one product: proportional to n^3
c(P)   calls of one process: 2 n + n / sqrt(P)
mu     calls a second that the file system serves, whoever asks: plain's calls over its time in I/O
s      seconds of one call under nvio with the blocks spread over simulated nodes
F      seconds to write the product back, at whatever the file system takes: proportional to n^2

It leaves out: the network between nodes and its sharing, a file system of several servers (which
serves more calls a second), and waiting for the slowest. Ranks and managers of this run share one
machine's processors, which makes s larger than on nodes of their own. Source of the argument:
Malinowski and Czarnul 2017, section 4 (the load of a node is constant).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from tare.cell import Cell
from tare.levels import Levels
from tare.workloads.findings import Findings
from tare.workloads.mpi_io_rows import MpiLevels

PROCESSES = (1, 4, 16, 64, 144, 256, 400, 576, 625)
"""Squares, as Cannon's algorithm likes them; the paper ran over 600."""
VERTICES = 20_000
"""The paper's largest matrix."""
_S = 1e-9


@dataclass(frozen=True)
class Scaling:
    """The model with a run's figures: seconds of one product of `VERTICES`."""

    multiply_s: float
    """W: of the whole product, on one processor."""
    served_per_s: float
    """mu."""
    call_s: float
    """s."""
    write_back_s: float
    """F."""

    def plain_s(self, processes: int) -> float:
        """Seconds of one product by plain MPI-IO."""
        calls = processes * _calls(VERTICES, processes)
        return self.multiply_s / processes + calls / self.served_per_s

    def nvio_s(self, processes: int) -> float:
        """Seconds of one product under nvio."""
        calls = _calls(VERTICES, processes)
        return self.multiply_s / processes + calls * self.call_s + self.write_back_s


def scaling(found: Findings) -> Scaling | None:
    """Fill the model in; None where the run lacks plain, or nvio on two or more nodes.

    Of each arm the cells with most ranks count, and of them the largest matrix, at power 2.
    """
    plain, spread = (_largest(found, nodes=nodes) for nodes in (False, True))
    processors = found.fingerprint.cpu.usable
    if plain is None or spread is None or processors is None:
        return None
    measured = [t for t in found.trials if t.status == "ok" and t.counters.get("calls")]
    of_plain = [t for t in measured if t.cell == plain.id]
    of_spread = [t for t in measured if t.cell == spread.id]
    if not of_plain or not of_spread:
        return None
    # Ranks take turns on the processors; of more, each computes with a whole share (walks/team.cc).
    at_once = plain.levels.read(MpiLevels.ranks)
    busy = min(processors, at_once * max(1, processors // at_once))
    grown = VERTICES / spread.levels.read(MpiLevels.vertices)
    ranks = spread.levels.read(MpiLevels.ranks)
    calls_ns = ((t.values["read"] + t.values["write"]) * ranks / t.counters["calls"]
                for t in of_spread)  # fmt: skip
    return Scaling(
        multiply_s=median(_S * t.values["compute"] * busy for t in of_plain) * grown**3,
        served_per_s=median(t.counters["calls"] / (_S * t.values["io"]) for t in of_plain),
        call_s=_S * median(calls_ns),
        write_back_s=_S * median(t.values.get("close", 0.0) for t in of_spread) * grown**2,
    )


def _largest(found: Findings, *, nodes: bool) -> Cell | None:
    """The arm's cell with the most ranks, then the largest matrix."""

    def wanted(levels: Levels) -> bool:
        if levels.get("pattern") != "rows" or levels["power"] != "2":
            return False
        cache = levels.read(MpiLevels.cache)
        return int(cache.setting("nodes", "1")) > 1 if nodes else cache.settings is None

    cells = [v.cell for v in found.cells if v.cell.replica == 1 and wanted(v.cell.levels)]
    return max(
        cells,
        key=lambda c: (c.levels.read(MpiLevels.ranks), c.levels.read(MpiLevels.vertices)),
        default=None,
    )


def _calls(vertices: int, processes: int) -> float:
    return 2 * vertices + vertices / math.sqrt(processes)
