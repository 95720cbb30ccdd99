"""Claims that need a far machine say so before they measure for minutes."""

import pytest

import claims
from claims import Workshop
from tare.errors import UnavailableError
from tare.testing import far_machine


@pytest.mark.parametrize("claim", ["B2", "B5"])
def test_a_claim_without_an_sshd_begins_nothing(claim, monkeypatch, tmp_path):
    monkeypatch.setattr(far_machine, "INSTALLED", tmp_path / "sshd")
    workshop = Workshop(tmp_path, tmp_path, tmp_path, tmp_path, pytest.fail)
    with pytest.raises(UnavailableError) as refused:
        claims.by_id(claim).check(workshop)
    assert "make setup" in str(refused.value.remedy)
    assert list(tmp_path.iterdir()) == []
