import pytest

from claims.new_machines import counted

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
