from pathlib import Path

import pytest

import workshops
from claims.new_machines import counted, failing, said_there
from tare.failures import ProcessError

SAID = """\
test-lab: 2324 passed, 1 skipped in 1242.86s (0:20:42)
test-native: 100% tests passed, 0 tests failed out of 457
test-pageshare: test result: ok. 86 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
"""


@pytest.mark.parametrize(
    ("said", "green"),
    [
        (SAID + "ended with 0\n", True),
        (SAID + "ended with 2\n", False),
        (SAID, False),
        ("ended with 0\n", False),
    ],
)
def test_a_machine_is_green_if_tests_ran_and_all_ended_well(said: str, green: bool):
    assert counted(said)[1] is green


def test_what_every_runner_of_tests_says_is_summed():
    assert counted(SAID)[0] == {"passed": 2324 + 457 + 86, "skipped": 1}


def test_the_tests_that_failed_are_named():
    said = """\
test-system: E   assert False
test-system: FAILED tests/system/test_wire.py::test_it_loads[disk 1-host] - assert False
test-system: ERROR tests/test_plan.py::test_a_plan
test-native: \t 12 - nvio: mpich: on two hosts (Failed)
test-native: \t 13 - walks-core (Timeout)
test-pageshare: ---- tls::a_stranger_is_refused stdout ----
test-pageshare: test result: FAILED. 85 passed; 1 failed; 0 ignored
"""
    assert failing(said) == [
        "nvio: mpich: on two hosts",
        "tests/system/test_wire.py::test_it_loads[disk 1-host]",
        "tests/test_plan.py::test_a_plan",
        "tls::a_stranger_is_refused",
        "walks-core",
    ]
    assert failing(SAID) == []


def test_of_a_machine_whose_making_is_cut_short_nothing_is_left(tmp_path: Path, monkeypatch):
    script, large = tmp_path / "setup/fresh", tmp_path / "large"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nmktemp -d >made\nsleep 60\n")
    script.chmod(0o755)
    large.mkdir()
    monkeypatch.setenv("TMPDIR", str(large))
    with pytest.raises(ProcessError):
        said_there(workshops.bare(tmp_path), 2.0, "fresh", "bookworm")
    made = Path((tmp_path / "made").read_text().strip())
    assert large in made.parents
    assert not list(large.iterdir())
