"""Where a response's time goes, by cause: where every thread was, added up against the response.

The lines are measured by themselves and nothing is got by subtracting the rest, so the sum can fall
short of the response (something is missing) or exceed it (something is counted twice), and both are
shown. Means are used throughout, since means add and medians do not. `unit_costs` goes on to say
what the threads did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tare.stats.arrays import BlockValues, complete_blocks
from tare.stats.budget import fieller
from tare.stats.interval import Interval, Method, mean_interval

__all__ = ["AccountLine", "ClosingAccount", "closing_account"]


@dataclass(frozen=True)
class AccountLine:
    """One class of threads in one state."""

    name: str
    """Such as "vcpu on CPU" or "client waiting for a CPU"."""
    time: Interval
    """Mean time for each request over blocks, in ns."""
    share: Interval
    """That over the mean response, by Fieller."""


@dataclass(frozen=True)
class ClosingAccount:
    """On-CPU and run-queue time of every thread involved against the mean response."""

    lines: tuple[AccountLine, ...]
    """The account's lines, in the order given."""
    response: Interval
    """Mean response over blocks, in ns."""
    sum: Interval
    """Sum of the lines over blocks, in ns."""
    closure: Interval
    """Sum over response: 1 closes. Above 1 where threads ran at the same time on several cores,
    which the account does not correct; below 1 where somebody else's time is missing."""
    n_used: int
    """Blocks in which every line and the response have a value."""
    n_dropped: int
    """Blocks in which only some have."""

    def closes_within(self, tolerance: float) -> bool:
        """Whether the whole interval of the closure lies within 1 ± tolerance (a fraction)."""
        return self.closure.within(1.0 - tolerance, 1.0 + tolerance)


def closing_account(
    lines_ns: Mapping[str, BlockValues],
    response_ns: BlockValues,
    confidence: float = 0.95,
    method: Method = Method.SIGN_FLIP,
) -> ClosingAccount:
    """Add up where the threads were, and hold the sum against the mean response.

    On one core, where one thing runs at a time, the closure should be 1 but for idle time.

    Args:
        lines_ns: name -> ns for each request, shape (blocks,): accumulated time of a class of
            threads in one state over the session, divided by the session's requests.
        response_ns: mean response of the same sessions, shape (blocks,).
        confidence: nominal coverage of each interval by itself.
        method: of the intervals in ns.

    Raises:
        ValueError: no line, different lengths, or an infinite value.
    """
    if not lines_ns:
        raise ValueError("an account needs at least one line")
    # Keyed by position, since a line may bear any name, the response's included.
    columns, dropped = complete_blocks(
        response=response_ns,
        **{f"line {i}": values for i, values in enumerate(lines_ns.values())},
    )
    response = columns.pop("response")
    total = np.sum(list(columns.values()), axis=0)
    return ClosingAccount(
        lines=tuple(
            AccountLine(
                name,
                mean_interval(values, confidence, method),
                fieller(values, response, confidence),
            )
            for name, values in zip(lines_ns, columns.values(), strict=True)
        ),
        response=mean_interval(response, confidence, method),
        sum=mean_interval(total, confidence, method),
        closure=fieller(total, response, confidence),
        n_used=int(response.size),
        n_dropped=dropped,
    )
