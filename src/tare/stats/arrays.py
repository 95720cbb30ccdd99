"""What every statistic takes: one number a block, absent where the trial is absent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BlockValues = Sequence[float | None] | npt.NDArray[np.floating] | npt.NDArray[np.integer]
"""One scalar a block, shape (blocks,); None or NaN where that block's trial is absent."""


def to_array(values: BlockValues, name: str = "values") -> FloatArray:
    """Turn block values into floats with NaN for absence.

    Args:
        values: shape (blocks,).
        name: what to call them in the error.

    Raises:
        ValueError: not one-dimensional, or a value is infinite. An infinite value is neither a
            measurement nor an absence, so it cannot be kept and must not be dropped in silence.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one number a block, but has shape {array.shape}")
    infinite = np.flatnonzero(np.isinf(array))
    if infinite.size:
        raise ValueError(
            f"{name} is infinite in block {infinite[0]}; give None for an absent trial"
        )
    return array


def present(values: BlockValues) -> FloatArray:
    """The values of the sessions that have one, which has to be positive.

    Raises:
        ValueError: a value that is infinite, zero or negative.
    """
    array = to_array(values)
    found = array[~np.isnan(array)]
    if found.size and found.min() <= 0.0:
        raise ValueError(f"a session's value is {found.min():g}; an absent one is None, not 0")
    return found


def complete_blocks(**columns: BlockValues) -> tuple[dict[str, FloatArray], int]:
    """Keep the blocks in which every column has a value.

    Returns:
        The columns over complete blocks, and how many blocks were dropped.

    Raises:
        ValueError: the columns have different lengths.
    """
    arrays = {name: to_array(values, name) for name, values in columns.items()}
    lengths = {name: array.size for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must cover the same blocks, but their lengths differ: {lengths}")
    whole = ~np.isnan(list(arrays.values())).any(axis=0)
    return {name: array[whole] for name, array in arrays.items()}, int((~whole).sum())
