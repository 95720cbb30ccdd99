"""When nvio is blamed for what a random program did under it, and when plain MPI is no oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance_scripts import loaded

LINES, OTHER = [["1 read 7"]], [["1 read 8"]]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with loaded("compare", monkeypatch) as script:
        yield script


class Program:
    """Observes one thing after another without nvio, and one thing under it; raises what fails."""

    def __init__(self, plain: list[Any], cached: Any) -> None:
        self.plain, self.cached = plain, cached
        self.runs = 0

    def __call__(self, *, nvio: dict[str, str] | None) -> Any:
        seen = self.cached
        if nvio is None:
            seen = self.plain[min(self.runs, len(self.plain) - 1)]
            self.runs += 1
        if isinstance(seen, Exception):
            raise seen
        return seen, "nvio: process"


def test_what_is_the_same_is_run_once_in_each_arm(compare: Any) -> None:
    program = Program([LINES], LINES)
    assert compare.both_arms(program, {})[:2] == (LINES, LINES)
    assert program.runs == 1


def test_a_difference_is_nvios_where_plain_mpi_is_the_same_every_time(compare: Any) -> None:
    program = Program([LINES], OTHER)
    assert compare.both_arms(program, {})[:2] == (LINES, OTHER)
    assert program.runs == 1 + compare.PLAIN_TRIES


@pytest.mark.parametrize("failure", ["RunError", "HangError"])
def test_a_failure_is_nvios_where_plain_mpi_never_fails(compare: Any, failure: str) -> None:
    with pytest.raises(getattr(compare, failure), match="under nvio"):
        compare.both_arms(Program([LINES], getattr(compare, failure)("under nvio")), {})


@pytest.mark.parametrize("cached", [OTHER, "RunError", "HangError"])
def test_what_goes_wrong_without_nvio_too_is_no_oracle(compare: Any, cached: Any) -> None:
    seen = getattr(compare, cached)("fails") if isinstance(cached, str) else cached
    for now_and_then in (OTHER, compare.RunError("exit status 139"), compare.HangError("no end")):
        with pytest.raises(compare.NoOracleError, match="every time"):
            compare.both_arms(Program([LINES, LINES, LINES, now_and_then], seen), {})


def test_what_plain_mpi_cannot_run_at_all_is_no_oracle(compare: Any) -> None:
    with pytest.raises(compare.NoOracleError, match="failed: exit status 139"):
        compare.both_arms(Program([compare.RunError("exit status 139")], LINES), {})


@pytest.mark.parametrize(
    ("failure", "plain", "blamed"),
    [
        ("RunError", "RunError", False),
        ("HangError", "HangError", False),
        ("RunError", "HangError", True),
        ("RunError", None, True),
        ("WrongBytesError", "WrongBytesError", True),
    ],
)
def test_a_program_that_knows_its_bytes_is_excused_by_a_plain_run_that_fails_alike(
    compare: Any, failure: str, plain: str | None, blamed: bool
) -> None:
    tally = compare.Tally()
    sometimes = LINES if plain is None else getattr(compare, plain)("fails")
    program = Program([LINES, LINES, sometimes], getattr(compare, failure)("fails"))
    assert compare.observed(program, {}, 7, tally, knows=True, alone=True) is None
    assert (tally.failures, tally.without_oracle) == (int(blamed), int(not blamed))
