"""How evenly something is split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def jain_index(shares: Sequence[float]) -> float:
    """Jain's index: (Σx)² / (n Σx²), 1 where all have the same, 1/n where one has everything.

    Source: Jain, Chiu & Hawe 1984, DEC Research Report TR-301.

    Args:
        shares: what each got, shape (n,), not negative, not all zero; any unit.

    Raises:
        ValueError: empty, negative, infinite, or all zero.
    """
    values = np.asarray(shares, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError("fairness is of at least one share")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise ValueError(f"shares must be finite, not negative and not all zero, but are {shares}")
    # Scaled, so that squares of very small or large shares stay within range.
    values = values / values.max()
    return float(values.sum() ** 2 / (values.size * (values**2).sum()))
