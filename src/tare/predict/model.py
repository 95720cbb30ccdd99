"""The model: a response in an environment from what is known without running it there.

    response = floor there + Σ weight * count * unit cost there
                           + Σ weight * remaining code * what code costs in a request there

- *floor there*: the floor transport (UDP), measured in the environment: the way to the server and
  back, with one wake-up.
- *counts*: what the server does beyond the floor for each request, counted on the host: readings of
  the clock, wake-ups between its threads, system calls beside those. Programs are the same in every
  environment, so counts are.
- *remaining code*: what the server needs on the host beyond the floor and its counted operations,
  and what the client needs beyond the floor, each at what a function called once in the middle of a
  request costs on its side there over here. The client stays on the host, but layers that run
  between request and reply leave its code cold.
- *weights*: how many times its unit cost an operation costs in the middle of a request; fitted over
  the calibration, one for each kind, common to all environments and transports.

Everything is in ns. Pure functions on numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

KINDS = ("clock", "wake-ups", "calls", "code", "client")
"""Kinds of work whose weight is fitted."""
COSTS: Mapping[str, str] = {
    "clock": "inside clock reading",
    "wake-ups": "inside wake by futex",
    "calls": "inside system call",
    "code": "inside function in a request",
    "client": "function in a request",
}
"""Kind -> the unit cost of the overhead vector that prices it."""
COLD: Mapping[str, str] = {"code": "inside cold function", "client": "cold function"}
"""Kind of code in a request -> what such code costs cold by itself."""
_COUNTED = ("clock", "wake-ups", "calls")
_CALLS_OF_A_WAKE_UP = 2.0
"""One wakes, one sleeps; the cost of a wake-up holds both."""
_SHRINKAGE = 0.5
"""How strongly weights are drawn to 1: as one observation whose logarithm is off by 1.4."""


@dataclass(frozen=True)
class Ground:
    """What a prediction of one response starts from."""

    floor_here_ns: float
    """The floor transport on the host."""
    here_ns: float
    """The response on the host, with the same payload and placement."""
    floor_there_ns: float
    """The floor transport in the environment."""
    client_share: float
    """Share of the client in what the response needs beyond the floor on the host, 0 to 1."""
    counts: Mapping[str, float]
    """Operations of the server for each request beyond the floor: "clock", "wake-ups", "calls"."""
    costs_here_ns: Mapping[str, float]
    """Unit costs on the host, by kind."""
    costs_there_ns: Mapping[str, float]
    """Unit costs in the environment, by kind."""


@dataclass(frozen=True)
class Terms:
    """A response's parts before they are weighted, in ns."""

    floor: float
    """Floor there, which is not weighted."""
    weighted: tuple[float, ...]
    """One for each of `KINDS`."""

    def total(self, weights: Sequence[float]) -> float:
        """The response, given the weights of `KINDS`."""
        return self.floor + sum(w * x for w, x in zip(weights, self.weighted, strict=True))


def terms(ground: Ground) -> Terms:
    """Price what the server does beyond the floor."""
    beyond = max(0.0, ground.here_ns - ground.floor_here_ns)
    counts = {kind: max(0.0, ground.counts.get(kind, 0.0)) for kind in _COUNTED}
    counts["calls"] = max(0.0, counts["calls"] - _CALLS_OF_A_WAKE_UP * counts["wake-ups"])
    here = sum(counts[kind] * ground.costs_here_ns[kind] for kind in _COUNTED)
    code = {
        "code": max(0.0, beyond * (1.0 - ground.client_share) - here),
        "client": beyond * ground.client_share,
    }
    priced = {kind: counts[kind] * ground.costs_there_ns[kind] for kind in _COUNTED}
    priced |= {
        kind: time * ground.costs_there_ns[kind] / ground.costs_here_ns[kind]
        for kind, time in code.items()
    }
    return Terms(ground.floor_there_ns, tuple(priced[kind] for kind in KINDS))


def log_additive(ground: Ground) -> float:
    """The simple model to be better than: environment and transport multiply."""
    return ground.here_ns * ground.floor_there_ns / ground.floor_here_ns


def fit(rows: Sequence[Terms], measured_ns: Sequence[float]) -> tuple[float, ...]:
    """Fit the weights of `KINDS`: least squares of logarithms, drawn towards 1.

    Args:
        rows: one for each measured response.
        measured_ns: the responses, shape (rows,), positive.

    Returns:
        The weights; all 1 without rows.
    """
    if not rows:
        return (1.0,) * len(KINDS)
    floor = np.array([row.floor for row in rows])
    weighted = np.array([row.weighted for row in rows])
    target = np.log(np.asarray(measured_ns, dtype=np.float64))

    def residuals(logs: np.ndarray) -> np.ndarray:
        predicted = np.log(floor + weighted @ np.exp(logs))
        return np.concatenate([predicted - target, math.sqrt(_SHRINKAGE) * logs])

    found = scipy.optimize.least_squares(residuals, np.zeros(len(KINDS)))
    return tuple(float(weight) for weight in np.exp(found.x))
