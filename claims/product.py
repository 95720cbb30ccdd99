"""C8: the exact product of walks beside the raw product that it is built on."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from claims import Claim, Result, Workshop, conclude, shown
from tare import process
from tare.command import Command
from tare.stats import Ratio, paired_ratio
from tare.stats.bounds import Bound, Kept

_SIZE = 2000
_REPEATS = 12
_ONE_PLANE = 0.9
_MORE_PLANES = 0.7
_TIMEOUT_S = 600.0
_WITHOUT_VNNI = "AVX2"


@dataclass(frozen=True)
class _Case:
    """One case of `walks bench`: raw time of as many planes over the product's."""

    planes: tuple[int, int]
    cells: tuple[int, int, int]
    speed: Ratio

    @property
    def bound(self) -> Bound:
        least = _ONE_PLANE if self.planes == (1, 1) else _MORE_PLANES
        return Bound(self.name, self.speed.ratio, least=least)

    @property
    def name(self) -> str:
        return f"{self.planes[0]} x {self.planes[1]} planes"


def _check(workshop: Workshop) -> Result:
    # In random order, so that neither is always the one that finds the processor warm.
    order: list[str | None] = [None, _WITHOUT_VNNI]
    random.Random(1).shuffle(order)  # noqa: S311 - an order, not a secret
    said = {}
    for isa in order:
        kind = "as it is" if isa is None else f"without VNNI ({isa})"
        workshop.say(f"products of {_SIZE} x {_SIZE}, {_REPEATS} times each case, {kind}")
        said[isa] = _bench(workshop, isa)
    if said[_WITHOUT_VNNI]["vnni"]:
        return Result(Kept.UNDECIDED, "oneDNN could not be kept from VNNI", {})
    cases = [_case(case) for case in said[None]["cases"]]
    # The product checked itself in each case, or the program would have failed.
    widths = sorted({width for case in cases for width in case.cells})
    figure = "; ".join(f"{case.name} {shown(case.speed.ratio, 2)} of raw" for case in cases)
    figure += f"; exact with cells of {', '.join(map(str, widths))} bytes, with and without VNNI"
    slow = [_case(case) for case in said[_WITHOUT_VNNI]["cases"]]
    data = {
        "without VNNI": {case.name: shown(case.speed.ratio, 2) for case in slow},
        "oneDNN": said[None]["onednn"],
        "VNNI": said[None]["vnni"],
        "threads": said[None]["threads"],
    }
    return conclude((case.bound for case in cases), figure, data)


def _bench(workshop: Workshop, isa: str | None) -> dict[str, Any]:
    argv = (
        str(workshop.programs / "walks/walks-mpich"), "bench",
        "--size", str(_SIZE), "--repeats", str(_REPEATS),
    )  # fmt: skip
    env = {} if isa is None else {"ONEDNN_MAX_CPU_ISA": isa}
    out = process.run(Command(argv, env=env), _TIMEOUT_S).stdout
    found: dict[str, Any] = json.loads(next(li for li in out.splitlines() if li.startswith("{")))
    return found


def _case(case: dict[str, Any]) -> _Case:
    """Against the faster of oneDNN's two interfaces, k times where the product needs k."""
    raw = [
        case["pairs"] * min(both)
        for both in zip(case["raw_gemm_s"], case["raw_matmul_s"], strict=True)
    ]
    left, right = case["planes"]
    a, b, c = case["cells"]
    return _Case((left, right), (a, b, c), paired_ratio(raw, case["product_s"]))


CLAIMS = (
    Claim(
        "C8",
        "An exact product of walks runs nearly at raw oneDNN's speed, k planes at that of k raw"
        " products, and is exact at every cell width, with and without VNNI.",
        "0.9 x raw with one plane, 0.7 x raw / k with k; exact",
        _check,
    ),
)
