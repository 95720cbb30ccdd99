import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare import undo
from tare.command import Command, Secret, python_module, start_time
from tare.process import Output, ProcessError, run, start, wait_pid


def python(code: str, *args: str, **given: object) -> Command:
    return Command((sys.executable, "-c", code, *args), **given)  # type: ignore[arg-type]


def wait_until_gone(pid: int) -> None:
    assert wait_pid(pid, 10), f"process {pid} lives"


def test_run_returns_both_outputs() -> None:
    out = run(python("import sys; print('a'); print('b', file=sys.stderr)"), 20)
    assert (out.stdout, out.stderr) == ("a\n", "b\n")


def test_run_hands_over_standard_input() -> None:
    assert run(Command(("cat",)), 20, stdin="wörter\n").stdout == "wörter\n"


def test_nothing_is_inherited_but_what_the_command_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_OF_SOMEBODY", "1")
    found = run(Command(("env",), env={"MINE": "x"}), 20).stdout.splitlines()
    assert {line.split("=")[0] for line in found} == {
        "PATH",
        "HOME",
        "LC_ALL",
        "TARE_OWNER",
        "MINE",
    }


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (Command(("no-such-program",)), "not found", "no such program"),
        (Command((__file__,)), "not found", "not executable"),
        (Command(("true",), cwd=Path("/no/such/place")), "not found", "/no/such/place"),
        (Command(("true", "x" * (1 << 20))), "not found", "too long"),
        (python("import sys; sys.exit('it is broken')"), "exit", "it is broken"),
        (python("import os; os.kill(os.getpid(), 9)"), "signal", "Killed"),
        (python("import time; time.sleep(60)"), "timeout", "within 0.2 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_failures_are_worded_by_kind(command: Command, kind: str, words: str) -> None:
    with pytest.raises(ProcessError, match=words) as caught:
        run(command, 0.2 if kind == "timeout" else 20)
    assert caught.value.kind == kind


def test_an_accepted_exit_code_is_no_failure() -> None:
    assert run(python("print('x'); raise SystemExit(3)"), 20, accept=(0, 3)).stdout == "x\n"


def test_killing_kills_the_grandchildren_too() -> None:
    code = """
import subprocess, json
child = subprocess.Popen(["sleep", "60"])
print(json.dumps({"pid": child.pid}), flush=True)
child.wait()
"""
    with start(python(code)) as running:
        grandchild = running.event(20)["pid"]
        running.kill()
    wait_until_gone(grandchild)


DAEMON = "setsid -f sh -c 'echo $$; exec sleep 60' | head -n 1"


def test_killing_kills_whom_it_looks_after_in_another_session_too() -> None:
    code = f"""
import ctypes, json, subprocess, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
pid = subprocess.check_output({DAEMON!r}, shell=True, env={{}})
print(json.dumps({{"pid": int(pid)}}), flush=True)
time.sleep(60)
"""
    with start(python(code)) as running:
        daemon = running.event(20)["pid"]
    wait_until_gone(daemon)


def test_a_timeout_kills_the_whole_session(tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    code = f"""
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)  # a process group of its own
    open({str(pidfile)!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    with pytest.raises(ProcessError, match="did not end within 2 s and was killed"):
        run(python(code), 2)
    wait_until_gone(int(pidfile.read_text()))


def test_events_are_json_lines_and_other_lines_are_skipped() -> None:
    with start(python("print('noise'); print('{\"event\": \"ready\"}')")) as running:
        assert running.event(20) == {"event": "ready"}


def test_a_dialogue() -> None:
    code = """
import sys, json
for line in sys.stdin:
    print(json.dumps({"heard": line.strip()}), flush=True)
"""
    with start(python(code)) as running:
        for word in ("one", "two"):
            running.tell(word)
            assert running.event(20) == {"heard": word}


def test_stop_asks_and_returns_the_last_event() -> None:
    code = """
import signal, json
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(json.dumps({"event": "ready"}), flush=True)
signal.sigwait([signal.SIGTERM])
print(json.dumps({"event": "stopped"}))
"""
    with start(python(code)) as running:
        running.event(20)
        assert running.alive()
        assert running.stop(20) == {"event": "stopped"}
        assert not running.alive()


def test_stop_kills_who_does_not_listen() -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("{}", flush=True)
while True: signal.pause()
"""
    with start(python(code)) as running:
        running.event(20)
        with pytest.raises(ProcessError, match="did not end within"):
            running.stop(0.1)
        assert not running.alive()


def test_finish_waits_for_the_end_and_drains_a_flood() -> None:
    with start(python("for i in range(100_000): print('x' * 50)\nprint('{\"n\": 1}')")) as running:
        assert running.finish(60) == {"n": 1}


def test_a_child_that_holds_the_output_open_does_not_keep_us_waiting() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '60']); print('{\"n\": 1}')"
    with start(python(code)) as running:
        assert running.finish(50) == {"n": 1}


def test_an_event_of_who_died_says_how_with_its_last_words() -> None:
    with (
        start(python("import sys; sys.exit('no port left')")) as running,
        pytest.raises(ProcessError, match=r"exit code 1.*no port left"),
    ):
        running.event(20)


def test_an_event_that_does_not_come_times_out() -> None:
    with (
        start(Command(("sleep", "60"))) as running,
        pytest.raises(ProcessError, match="said nothing"),
    ):
        running.event(0.05)


def test_telling_the_dead_is_an_error() -> None:
    with start(Command(("true",))) as running:
        assert running.ended_within(20)
        with pytest.raises(ProcessError, match="does not read its input"):
            running.tell("x")
            running.tell("x")


def test_leaving_the_context_kills(tmp_path: Path) -> None:
    with start(Command(("sleep", "60")), log_dir=tmp_path) as running:
        pid = running.pid
    wait_until_gone(pid)


def test_output_is_kept_in_the_log_directory(tmp_path: Path) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    with start(python(code), log_dir=tmp_path / "logs", name="it") as running:
        running.finish(20)
    assert (tmp_path / "logs/it.stdout").read_text() == "out\n"
    assert (tmp_path / "logs/it.stderr").read_text() == "err\n"


def test_the_pid_is_the_programs_own_through_the_whole_exec_chain() -> None:
    cpu = max(os.sched_getaffinity(0))
    code = """
import os, json
print(json.dumps({"pid": os.getpid(), "cpus": list(os.sched_getaffinity(0))}), flush=True)
input()
"""
    with start(python(code, cpus=(cpu,))) as running:
        assert running.event(20) == {"pid": running.pid, "cpus": [cpu]}


def test_a_process_dies_with_its_killed_owner() -> None:
    # The event shows that the exec chain is through, and the tie to the owner made.
    code = """
import sys, time
from tare.command import Command
from tare.process import start
with start(Command(("sh", "-c", "echo '{}'; exec sleep 60"))) as running:
    running.event(20)
    print(running.pid, flush=True)
    time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    wait_until_gone(pid)


def test_what_is_logged_can_be_pasted_into_a_shell(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    command = Command(("sh", "-c", 'echo "$A $(pwd)"'), env={"A": "it's $x"}, cwd=tmp_path)
    with caplog.at_level(logging.INFO, logger="tare.process"):
        wanted = run(command, 20).stdout
    line = caplog.messages[-1].partition(": ")[2]
    pasted = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert pasted.stdout == wanted == f"it's $x {tmp_path}\n"


def test_a_secret_is_pasted_by_its_name_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    command = Command(("sh", "-c", 'echo "$A $B"'), env={"A": Secret("hidden"), "B": "b c"})
    with caplog.at_level(logging.DEBUG):
        wanted = run(command, 20).stdout
    assert wanted == "hidden b c\n"
    assert "hidden" not in caplog.text
    line = caplog.messages[-1].partition(": ")[2]
    own = {**os.environ, "A": "hidden"}
    pasted = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=own, check=True
    )
    assert pasted.stdout == wanted


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1)
)
def test_quoting_survives_any_argument(words: list[str]) -> None:
    assert shlex.split(str(Command(("echo", *words)))) == ["echo", *words]


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=200))
def test_any_output_gives_an_event_or_one_worded_error(noise: bytes) -> None:
    with start(Command(("cat",))) as running:
        assert running._popen.stdin is not None
        running._popen.stdin.write(noise + b"\n")
        running._popen.stdin.close()
        try:
            while True:
                assert isinstance(running.event(20), dict)
        except ProcessError as error:
            assert error.kind in ("exit", "protocol")


def test_an_endless_line_is_refused() -> None:
    with (
        start(python("import sys\nwhile 1: sys.stdout.write('x' * 65536)")) as running,
        pytest.raises(ProcessError, match="1 MiB"),
    ):
        running.event(60)


def test_a_start_time_names_a_process_whatever_it_is_called() -> None:
    code = "open('/proc/self/comm', 'w').write('a) R (b'); print('{}', flush=True); input()"
    with start(python(code)) as running:
        before = start_time(running.pid)
        running.event(20)
        assert start_time(running.pid) == before
    assert start_time(running.pid) is None


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_dying_of_the_signal_that_asked_for_it_is_no_failure(how: signal.Signals) -> None:
    with start(Command(("sh", "-c", "echo '{}'; exec sleep 60"))) as running:
        running.event(20)
        assert running.stop(20, by=how) == {}


def test_dying_of_another_signal_is_one() -> None:
    with start(Command(("sh", "-c", "echo '{}'; kill -KILL $$"))) as running:
        running.event(20)
        assert running.ended_within(20)
        with pytest.raises(ProcessError, match="Killed"):
            running.stop(20)


def test_who_is_killed_with_it_is_gone_then_though_that_takes_a_while() -> None:
    grow = "import os, json; room = b'.' * (1 << 28); print(json.dumps({'pid': os.getpid()}))"
    child = (sys.executable, "-uc", f"{grow}; os.read(os.pipe()[0], 1)")
    with start(Command(("sh", "-c", '"$@" & wait', "sh", *child))) as running:
        pid = running.event(60)["pid"]
    assert wait_pid(pid, 0)


@pytest.mark.parametrize("number", [errno.ESRCH, errno.EINVAL])
def test_a_leader_that_is_gone_before_its_group_is_gone(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Linux 6.18 answers the first, 6.1 the second: also to what finds leftovers."""

    def gone(_pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", gone)
    assert wait_pid(1, 0)
    assert undo.kill([1], lambda _: True) == []


def test_a_module_of_tares_runs_where_python_does_not_find_it_by_itself(tmp_path: Path):
    """As in Debian's package; here a Python that does not read what refers to this checkout."""
    (tmp_path / "random.py").write_text("raise SystemExit('of the user')\n")
    python, *words = python_module("tare.workloads.migration.load")
    others = {"PYTHONPATH": sysconfig.get_path("purelib")}
    argv = [python, "-S", *words, "--help"]
    done = subprocess.run(
        argv, env=others, cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert "memcached" in done.stdout, done.stderr


def test_a_child_that_holds_the_pipes_open_keeps_nobody_waiting() -> None:
    shell = Command(("sh", "-c", "sleep 60 & echo said; echo more >&2"))
    assert run(shell, 20) == Output("said\n", "more\n")


def test_what_is_long_is_read_and_given_whole() -> None:
    whole = "x" * 1_000_000
    shell = Command(("sh", "-c", "sleep 1; cat; sleep 1"))
    assert run(shell, 30, stdin=whole).stdout == whole
