import pytest

from claims import first_report
from tare.stats.bounds import Kept

FOUND = {
    "seconds": 300.0, "packages_s": 60.0, "venv_s": 90.0, "programs_s": 100.0,
    "before": 100, "after": 250, "python": 40,
}  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "others", "verdict"),
    [
        (359.0, 0.01, Kept.HOLDS),
        (359.0, 0.40, Kept.HOLDS),
        (361.0, 0.01, Kept.FAILS),
        (361.0, 0.40, Kept.INCONCLUSIVE),
    ],
)
def test_what_came_too_late_counts_only_on_a_quiet_machine(
    seconds: float, others: float, verdict: Kept
):
    found = first_report.judge({**FOUND, "seconds": seconds}, others)
    assert found.counted is verdict
    assert "150 Debian packages" in found.line
