from __future__ import annotations

import gc
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.errors import TrialError
from tare.guests.agent import Agent
from tare.guests.monitor import Monitor, MonitorError, RefusedError

Answer = Callable[[dict[str, Any]], bytes | None]


@contextmanager
def far_side(answer: Answer) -> Iterator[Monitor]:
    """A monitor whose far side answers each question as told, not at all, or hangs up (b"")."""
    with Monitor("the far side", greets=False) as monitor:
        far = socket.socket(fileno=os.dup(monitor.far.fileno()))

        def serve() -> None:
            with far, suppress(OSError):
                # One question is under way at a time, and a short one comes in one piece.
                while question := far.recv(65536):
                    reply = answer(json.loads(question))
                    if reply == b"":
                        return
                    far.sendall(reply or b"")

        thread = threading.Thread(target=serve)
        thread.start()
        monitor.connect(5)
        try:
            yield monitor
        finally:
            with suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
            thread.join()


def returning(value: object) -> Answer:
    return lambda asked: json.dumps({"return": value, "id": asked["id"]}).encode() + b"\n"


def test_an_answer_comes_back_and_argument_names_get_hyphens() -> None:
    asked = []

    def answer(question: dict[str, Any]) -> bytes:
        asked.append(question)
        return returning({"pid": 7})(question)

    with far_side(answer) as monitor:
        assert monitor.ask("guest-exec", 5, capture_output=True) == {"pid": 7}
    assert asked[0]["execute"] == "guest-exec"
    assert asked[0]["arguments"] == {"capture-output": True}


def test_a_refusal_is_told_in_the_far_sides_words() -> None:
    def refuse(asked: dict[str, Any]) -> bytes:
        error = {"class": "GenericError", "desc": "no such file"}
        return json.dumps({"error": error, "id": asked["id"]}).encode() + b"\n"

    with (
        far_side(refuse) as monitor,
        pytest.raises(RefusedError, match="the far side refused: no such file"),
    ):
        monitor.ask("guest-file-open", 5)


def test_one_silence_is_enough() -> None:
    questions = []

    def stay_silent(asked: dict[str, Any]) -> None:
        questions.append(asked)

    with far_side(stay_silent) as monitor:
        for _ in range(3):
            with pytest.raises(MonitorError, match=r"did not answer guest-ping within 0\.05 s"):
                monitor.ask("guest-ping", 0.05)
    assert len(questions) <= 1


def test_a_far_side_that_hangs_up_is_seen_at_once() -> None:
    with far_side(lambda _: b"") as monitor, pytest.raises(MonitorError, match="hung up"):
        monitor.ask("guest-ping", 60)


def test_ctrl_c_interrupts_a_question_and_the_next_is_answered() -> None:
    main = threading.main_thread().ident
    assert main is not None
    interrupted = threading.Event()

    def answer(asked: dict[str, Any]) -> bytes | None:
        if interrupted.is_set():
            return returning("later")(asked)
        interrupted.set()
        signal.pthread_kill(main, signal.SIGINT)
        return None

    with far_side(answer) as monitor:
        with pytest.raises(KeyboardInterrupt):
            monitor.ask("guest-ping", 60)
        assert monitor.ask("guest-ping", 5) == "later"


def test_a_question_that_a_signal_ends_is_not_told_of_once_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    main = threading.main_thread().ident
    assert main is not None

    def answer(_: dict[str, Any]) -> None:
        signal.pthread_kill(main, signal.SIGTERM)

    try:
        with pytest.raises(Stopped), far_side(answer) as monitor:
            monitor.ask("guest-ping", 60)
    finally:
        signal.signal(signal.SIGTERM, before)
    del monitor
    gc.collect()
    assert not caplog.records


@settings(deadline=None, max_examples=50)
@given(st.binary(min_size=1).map(lambda raw: raw + b"\n"))
def test_any_bytes_from_the_far_side_are_an_error_or_ignored(raw: bytes) -> None:
    with far_side(lambda _: raw) as monitor, suppress(TrialError):
        monitor.ask("guest-ping", 0.05)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pid", "exited", "signal", "exitcode", "out-data", "buf-b64"]), inner
        )
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(_JSON)
def test_any_answer_of_an_agent_is_understood_or_an_error(value: object) -> None:
    with far_side(returning(value)) as monitor:
        agent = Agent(monitor, timeout_s=5)
        for question in (
            lambda: agent.start(["true"]),
            lambda: agent.ended(1),
            lambda: agent.read("/etc/hostname"),
        ):
            with suppress(TrialError):
                question()
