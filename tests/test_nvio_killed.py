"""Which rounds a cell of nvio's killed programs may hold, beside the draws one after the other."""

from __future__ import annotations

import pytest

from conformance_scripts import loaded


@pytest.mark.parametrize("synced", [[0, 0], [1, 3], [40, 0], [300, 299]])
def test_allowed_rounds_are_those_of_all_draws_in_order(
    synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, cells = 7, 20
    wanted: list[set[int]] = [{0} for _ in range(cells * len(synced))]
    with loaded("killed", monkeypatch) as killed:
        for rank, last in enumerate(synced):
            state = killed.first_state(seed, rank)
            for number in range(1, last + 3):
                for _ in range(killed.WRITES_A_ROUND):
                    state = (state * killed.MULTIPLIER + killed.INCREMENT) & killed.MASK
                    cell = (state >> 33) % cells * len(synced) + rank
                    wanted[cell] = {number} if number <= last else wanted[cell] | {number}
        assert killed.allowed_rounds(seed, len(synced), cells, synced) == wanted
