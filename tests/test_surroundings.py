"""What surrounds the command line: other users, limits, and outputs that take nothing."""

import json
import os
import select
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import records
from needs import HOME, SMALL, in_a_line, needs_root, refused, tare
from tare.command import shell_line
from tare.errors import Exit


def without_capabilities(*words, cwd):
    """As root, who then reads no more than the files' modes allow."""
    return subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "tare", *words],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


HIDDEN = ("", "plan.json", "trials.ndjson", "environment.json")


@needs_root
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_another_user_keeps_to_himself_is_no_defect(tmp_path, hidden):
    theirs = records.small(tmp_path / "theirs").folder
    (theirs / hidden).chmod(0)
    for command in ("show", "report", "export"):
        found = without_capabilities(command, str(theirs), cwd=tmp_path)
        assert "Traceback" not in found.stderr
        assert found.returncode in (Exit.USAGE, Exit.UNAVAILABLE), (command, found)
        assert "ermission denied" in found.stderr or "is not readable" in found.stderr
    if hidden == "trials.ndjson":
        in_a_line(found, f"tare: cannot read or write {theirs / hidden}: Permission denied")


@needs_root
def test_what_others_keep_to_themselves_hides_no_result_of_mine(tmp_path):
    records.small(tmp_path / "results/mine")
    for number, hidden in enumerate(HIDDEN):
        (records.small(tmp_path / f"results/{number}").folder / hidden).chmod(0)
    listed = without_capabilities("list", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "results/mine" in listed.stdout


@pytest.mark.parametrize("command", ["run", "show", "new", "list", "report", "compare", "predict"])
def test_a_name_too_long_for_a_file_is_an_error_in_words(command):
    found = tare(command, "n" * 300, *(["n" * 300] if command == "compare" else []))
    assert found.returncode == Exit.USAGE
    assert "Traceback" not in found.stderr


def test_who_is_in_a_folder_that_is_gone_is_told(tmp_path):
    line = 'cd "$1" && rmdir "$1" && exec "$2" -m tare list'
    argv = ["sh", "-c", line, "sh", tmp_path, sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("tare: there is no folder where you are any more")


def on_a_pipe_without_a_reader(argv, stream):
    there, here = os.pipe()
    os.close(there)
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: here}
    try:
        return subprocess.run(
            [sys.executable, "-m", "tare", *argv], cwd=HOME, text=True, check=False, **kept
        )
    finally:
        os.close(here)


def test_a_reader_that_goes_away_changes_no_exit_code(tmp_path):
    a, b = (str(records.small(tmp_path / name).folder) for name in "ab")
    for argv, code in (
        (["list"], Exit.OK), (["schema"], Exit.OK), (["--help"], Exit.OK), (["show", a], Exit.OK),
        (["export", a], Exit.OK), (["compare", a, b, "--fail-on", "slower"], Exit.INCONCLUSIVE),
    ):  # fmt: skip
        found = on_a_pipe_without_a_reader(argv, "stdout")
        assert "Traceback" not in found.stderr, argv
        assert found.returncode == code, argv


@contextmanager
def full_pipe():
    """A pipe's two ends, of which the one to write to does not block and takes nothing more."""
    there, here = os.pipe()
    os.set_blocking(here, False)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(here, bytes(select.PIPE_BUF))
        yield there, here
    finally:
        os.close(there)
        os.close(here)


NOT_HEARD = [
    (["show", "/nonexistent"], Exit.USAGE),
    (["show", "--nonsense"], Exit.USAGE),
    (["check", "quickstart"], Exit.OK),
    (["compare", "RESULT", "RESULT", "--fail-on", "slower", "--json"], Exit.INCONCLUSIVE),
]


@pytest.mark.parametrize(("argv", "code"), NOT_HEARD)
def test_a_standard_error_that_takes_nothing_changes_no_exit_code(tmp_path, argv, code):
    result = str(records.small(tmp_path / "r").folder)
    words = [result if word == "RESULT" else word for word in argv]
    line = [sys.executable, "-m", "tare", *words]
    assert on_a_pipe_without_a_reader(words, "stderr").returncode == code
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(line, cwd=HOME, stdout=subprocess.PIPE, stderr=full, check=False)
    assert found.returncode == code
    closed = ["sh", "-c", f"{shell_line(*line)} 2>&-"]
    assert subprocess.run(closed, cwd=HOME, stdout=subprocess.PIPE, check=False).returncode == code
    with full_pipe() as (_, here):
        found = subprocess.run(line, cwd=HOME, stdout=subprocess.PIPE, stderr=here, check=False)
    assert found.returncode == code


def test_an_output_that_would_have_to_wait_is_waited_for():
    line = [sys.executable, "-m", "tare", "schema"]
    with full_pipe() as (there, here), subprocess.Popen(line, cwd=HOME, stdout=here) as running:
        os.set_blocking(there, False)
        said = b""
        while running.poll() is None:
            with suppress(BlockingIOError):
                said += os.read(there, select.PIPE_BUF)
        with suppress(BlockingIOError):
            said += os.read(there, 1 << 20)
    assert running.returncode == 0
    assert json.loads(said.lstrip(b"\0"))


def test_a_defect_that_cannot_be_told_is_no_verdict_either():
    broken = "from tare import cli; cli.document.refuse_bytes = None; cli.main()"
    with Path("/dev/full").open("w") as full:
        found = subprocess.run([sys.executable, "-c", broken], stderr=full, check=False)
    assert found.returncode == Exit.DEFECT


@pytest.mark.parametrize(
    "argv",
    [["list"], ["schema"], ["check", "quickstart"], ["doctor"], ["--help"], ["--version"],
     ["show", "RESULT"], ["show", "RESULT", "--json"], ["export", "RESULT"]],
)  # fmt: skip
def test_an_output_that_is_full_is_told_in_a_sentence(tmp_path, argv):
    result = str(records.small(tmp_path / "r").folder)
    words = [result if word == "RESULT" else word for word in argv]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "tare", *words],
            cwd=HOME, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert found.returncode == Exit.UNAVAILABLE
    assert found.stderr.startswith("tare: cannot write standard output: No space left"), found
    assert len(found.stderr.splitlines()) == 2


def test_an_output_that_is_closed_is_no_traceback():
    found = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m tare list >&-"],
        cwd=HOME, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


def test_a_limit_that_is_too_small_for_the_libraries_is_told_at_once(tmp_path):
    limit = ["prlimit", f"--as={400_000 << 10}", sys.executable, "-m", "tare"]
    for argv in (["list"], ["show", str(records.small(tmp_path / "r").folder)]):
        found = subprocess.run(
            [*limit, *argv], cwd=HOME, capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == Exit.UNAVAILABLE
        in_a_line(found, "ulimit -v 1048576 or more")
    enough = [*limit[:1], f"--as={1 << 30}", *limit[2:], "show", str(tmp_path / "r")]
    subprocess.run(enough, cwd=HOME, capture_output=True, timeout=60, check=True)


@pytest.mark.parametrize(
    "argv", [["measure", "--dry-run", "--", "cat"], ["new", "--title"], ["run"], ["history"]]
)
def test_bytes_that_are_no_text_are_told_as_what_they_are(argv):
    found = tare(*argv, b"caf\xe9")
    assert found.returncode == Exit.USAGE, found
    in_a_line(found, r"caf\xe9")
    in_a_line(found, "is not UTF-8: no experiment file or table can hold it")


def test_a_folder_whose_name_is_no_text_is_told_too(tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102 - no text
    refused("is not UTF-8", "measure", "--dry-run", "--", "true", cwd=folder)


@needs_root
@pytest.mark.parametrize("home", ["/dev/null", "/proc/nowhere"])
def test_a_home_that_cannot_be_written_is_told_before_anything_is_made(tmp_path, home):
    (tmp_path / "file.yaml").write_text(SMALL)
    for argv in (["run", "file.yaml"], ["measure", "--", "true"]):
        found = tare(*argv, cwd=tmp_path, HOME=home, XDG_CACHE_HOME="")
        assert found.returncode == Exit.UNAVAILABLE, found.stderr
        in_a_line(found, f"cannot make {home}/.cache/tare, where guest images are kept")
        assert [path.name for path in tmp_path.iterdir()] == ["file.yaml"]
