"""What C1, C6 and C11 make of nvio's campaigns, whole, failed or cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import claims
import workshops
from claims import Workshop
from tare.errors import TrialError
from tare.stats.bounds import Kept

RESULT: dict[str, Any] = {
    "wanted": 3, "done": 3, "failed": 0, "holds": True,
    "totals": {
        "own/mpich/1 nodes": {"parts": 1, "passed": 1, "served": 9},
        "own/mpich/2 nodes": {"parts": 1, "passed": 1, "served": 9, "remote": 3},
        "hdf5": {"parts": 1, "passed": 4},
    },
}  # fmt: skip
SCRIPT = """\
import json, sys
print(json.dumps({{"part": "own/mpich/0", "outcome": {{"passed": 1}}, "done": 1, "wanted": 3}}))
print("words of some program")
print(json.dumps({{"result": {result!r}}}))
sys.exit({status})
"""


def workshop(home: Path, said: list[str], status: int, **differing: Any) -> Workshop:
    """A checkout with a campaign that tells of one part, and of this result."""
    script = home / "nvio/conformance/campaign.py"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT.format(result={**RESULT, **differing}, status=status))
    return Workshop(home, home / "build", home, home, said.append)


def test_a_whole_campaign_holds_and_each_of_its_parts_was_told(tmp_path: Path) -> None:
    said: list[str] = []
    found = claims.by_id("C1").check(workshop(tmp_path, said, 0))
    assert found.holds
    assert found.figure.startswith("3 of 3 parts done, 0 failures; 6 programs passed")
    assert "1 of 3 parts done, own/mpich/0 last" in said
    assert json.dumps(found.as_json())


@pytest.mark.parametrize(
    ("status", "holds", "verdict"), [(1, False, Kept.FAILS), (3, None, Kept.INCONCLUSIVE)]
)
def test_a_failure_breaks_the_claim_and_missing_parts_leave_it_inconclusive(
    tmp_path: Path, status: int, holds: bool | None, verdict: Kept
) -> None:
    found = claims.by_id("C1").check(workshop(tmp_path, [], status, holds=holds, done=2))
    assert found.verdict is verdict
    assert "2 of 3 parts done" in found.figure


@pytest.mark.parametrize(
    "nothing",
    [
        {"passed": 0, "skipped": 9},
        {"passed": 0, "skipped": 90_000, "served": 9, "remote": 9},
        {"passed": 9, "served": 0, "remote": 0},
        {"passed": 9, "served": 9, "remote": 0},
    ],
)
@pytest.mark.parametrize("claim", ["C1", "C9"])
def test_where_nvio_served_nothing_or_no_node_another_one_nothing_is_shown(
    tmp_path: Path, claim: str, nothing: dict[str, int]
) -> None:
    many = {"passed": 10_000, "served": 10_000, "remote": 10_000}
    kinds = {f"own/{mpi}/2 nodes": {"parts": 9, **many} for mpi in ("mpich", "openmpi")}
    whole = workshop(tmp_path / "whole", [], 0, totals=kinds)
    assert claims.by_id(claim).check(whole).verdict is Kept.HOLDS
    totals = {**kinds, "own/mpich/3 nodes": {"parts": 9, **nothing}}
    without = workshop(tmp_path / "without", [], 0, totals=totals)
    assert claims.by_id(claim).check(without).verdict is Kept.INCONCLUSIVE


@pytest.mark.parametrize(("points", "holds"), [(9_999, False), (10_000, True)])
def test_too_few_crash_points_do_not_hold(tmp_path: Path, points: int, holds: bool) -> None:
    totals = {"points": {"points": points}, "kills": {"kills": 200}}
    assert claims.by_id("C6").check(workshop(tmp_path, [], 0, totals=totals)).holds is holds


@pytest.mark.parametrize(
    ("ended", "limit", "wrong", "verdict"),
    [
        (15, 7, 0, Kept.HOLDS),
        (15, 7, 1, Kept.FAILS),
        (14, 7, 0, Kept.INCONCLUSIVE),  # one had nothing to be held against
        (15, 6, 0, Kept.INCONCLUSIVE),  # one failed by itself
    ],
)
def test_jobs_under_slurm_keep_their_claim_where_all_were_judged_and_no_file_is_wrong(
    tmp_path: Path, ended: int, limit: int, wrong: int, verdict: Kept
) -> None:
    script = tmp_path / "nvio/conformance/slurm.py"
    script.parent.mkdir(parents=True)
    said = f"{ended} jobs ended, 10 were killed ({limit} at their limit), {wrong} files wrong"
    script.write_text(f"import sys\nprint({said!r})\nsys.exit({min(wrong, 1)})\n")
    found = claims.by_id("C11").check(workshops.bare(tmp_path))
    assert found.verdict is verdict
    told = f"{2 * ended} jobs ended and 20 were killed, {2 * limit} of these at their limit"
    assert told in found.figure


def test_where_there_is_no_slurm_its_claim_says_what_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "nvio/conformance/slurm.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys\nprint('not run: there is no slurmd')\nsys.exit(77)\n")
    with pytest.raises(TrialError, match="not run: there is no slurmd"):
        claims.by_id("C11").check(workshops.bare(tmp_path))
