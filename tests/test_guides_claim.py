import pytest

from claims import guides
from needs import HOME


@pytest.mark.parametrize(
    ("written", "counts"),
    [
        ("def test_one(): pass\ndef test_two(): pass", {"passed": 2}),
        ("def test_one(): assert False", {"failed": 1}),
        ("import pytest\ndef test_one(): pytest.skip()", {"skipped": 1}),
    ],
)
def test_tests_are_counted_as_this_checkouts_pytest_tells(tmp_path, written, counts):
    file = tmp_path / "test_written.py"
    file.write_text(written)
    assert guides.of_tests(HOME, ["-c", str(HOME / "pyproject.toml"), str(file)]) == counts
