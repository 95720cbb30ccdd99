"""What every result has in common: frozen, plain, and written as JSON without loss of meaning."""

import dataclasses
import json

import numpy as np
import pytest

from tare import stats
from tare.stats.modes import two_modes
from tare.stats.noise import noise_floor
from tare.stats.operations import Operation, costs_of
from tare.stats.shares import by_contrast, changes_of, shares_of

RNG = np.random.default_rng(26)
A, B, C, D = RNG.lognormal(9, 0.05, (4, 9))
RATIO = stats.paired_ratio(A, B)

RESULTS = [
    RATIO,
    stats.paired_ratio([], []),
    stats.judge(RATIO, RATIO.p, margin=0.03, floor=10.0),
    stats.family_resolvable(8, 6),
    stats.summarise((RNG.lognormal(9, 0.1, 3000)).astype(np.int64), 1e9),
    stats.summarise(np.array([], dtype=np.int64)),
    stats.across([*A, None]),
    stats.decide({"a": 2.0}, blocks=8, min_blocks=8, max_blocks=9, target_percent=3.0),
    stats.deadline_view(1e4, p50_ns=A, p99_ns=B, replies=[9] * 9, late=[1] * 9, lost=[0] * 9),
    stats.block_trend(A),
    stats.clustered_proportion(np.array([1, 2]), np.array([5, 6])),
    two_modes(A),
    noise_floor([RATIO, RATIO]),
    by_contrast(base_floor=A, env_floor=B, base_middleware=C, env_middleware=D),
    shares_of({"client": A}, B),
    changes_of({"client": (A, B)}, (C, D)),
    costs_of([Operation("send", (1.0, 2.0), (3.0,))], A),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_plain_and_can_be_written(result):
    as_dict = dataclasses.asdict(result)
    assert json.loads(json.dumps(as_dict, allow_nan=False)) == json.loads(json.dumps(as_dict))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_cannot_be_changed(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, dataclasses.fields(result)[0].name, None)
