"""What runc and runsc are told of a process."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tare.environments import oci
from tare.tree import Tree, User
from tare.trees.merged import Merged

MERGED = Merged(Tree(Path("/"), "/", User(1, 1)), Path("/root"), "in memory", Path("/scratch"))


def limits(monkeypatch: pytest.MonkeyPatch, merged: Merged | None, hard: int) -> dict[str, tuple]:
    own = {resource.RLIMIT_NOFILE: (4096, hard), resource.RLIMIT_STACK: (1 << 23, -1)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: own.get(which, (1, 2)))
    told = oci.process(("true",), {}, merged)["rlimits"]
    return {one["type"]: (one["soft"], one["hard"]) for one in told}


def test_a_users_program_has_the_limits_that_it_has_natively(monkeypatch: pytest.MonkeyPatch):
    found = limits(monkeypatch, MERGED, 1 << 20)
    assert found["RLIMIT_NOFILE"] == (4096, 1 << 20)
    assert found["RLIMIT_STACK"] == (1 << 23, (1 << 64) - 1)
    assert found["RLIMIT_CORE"] == (1, 2)


@pytest.mark.parametrize(("hard", "told"), [(-1, 1024), (1 << 20, 1024), (512, 512)])
def test_ours_have_few_descriptors_whatever_there_could_be(
    monkeypatch: pytest.MonkeyPatch, hard: int, told: int
):
    assert limits(monkeypatch, None, hard) == {"RLIMIT_NOFILE": (told, told)}
