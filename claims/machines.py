"""D11: both machines of pageshare's wire, under a fuzzer and in simulated sessions."""

from __future__ import annotations

import re

from claims.benchmarks import toolchain
from claims.checking import Found, Workshop
from tare import process
from tare.command import Command
from tare.stats.bounds import Kept

_SESSIONS = 1_000_000
"""Of each kind: with a sender that may lie, and with a receiver that may."""
_FUZZ_S = 600
_TARGETS = ("pageshare-session", "pageshare-conversation")
_TIMEOUT_S = 3 * 3600.0
_TOLD = re.compile(r"(\d+) sessions, (\d+) with a (sender|receiver) that lies")
_FUZZED = re.compile(r"^(\S+): (\d+) inputs, cov: .*: (ok|BROKEN.*)$", re.MULTILINE)


def sessions(workshop: Workshop) -> Found:
    """D11: no wrong byte, no growth beyond the bound; the test asserts both of each session."""
    workshop.say(f"{_SESSIONS} sessions of either kind")
    test = ("cargo", "test", "--quiet", "--release", "-p", "pageshare-wire", "--test", "sessions")
    env = toolchain() | {"PAGESHARE_SESSIONS": str(_SESSIONS)}
    command = Command((*test, "--", "--nocapture", "so_many"), env=env, cwd=workshop.home)
    said = process.run(command, _TIMEOUT_S, accept=(0, 101)).stdout
    told = {liar: (int(run), int(lies)) for run, lies, liar in _TOLD.findall(said)}
    sound = "test result: ok" in said and len(told) == 2 and all(lies for _, lies in told.values())
    words = ", ".join(
        f"{run} sessions, in {lies} of which the {liar} lies" for liar, (run, lies) in told.items()
    )
    return Found(
        f"{words or 'no sessions'}: {'none' if sound else 'one'} as it should not be",
        {f"sessions in which the {liar} lies": lies for liar, (_, lies) in told.items()},
        counted=Kept.counted(sound and all(run >= _SESSIONS for run, _ in told.values())),
    )


def fuzzed(workshop: Workshop) -> Found:
    """D11: what ten minutes of fuzzing each find."""
    workshop.say(f"fuzzing {' and '.join(_TARGETS)}, {_FUZZ_S} s each")
    script = str(workshop.home / "fuzz/run")
    command = Command((script, str(_FUZZ_S), *_TARGETS), env=toolchain(), cwd=workshop.home)
    said = process.run(command, _TIMEOUT_S, accept=(0, 1)).stdout
    found = {target: (int(inputs), state) for target, inputs, state in _FUZZED.findall(said)}
    each = (f"{target} {inputs} inputs {state}" for target, (inputs, state) in found.items())
    figure = ", ".join(each)
    tried = [found.get(target, (0, "not told")) for target in _TARGETS]
    sound = all(inputs > 0 and state == "ok" for inputs, state in tried)
    return Found(
        f"fuzzed for {_FUZZ_S} s each: {figure or 'nothing'}",
        {f"inputs of {target}": inputs for target, (inputs, _) in found.items()},
        counted=Kept.counted(sound),
    )
