"""Who a user is."""

from __future__ import annotations

import os
import pwd

import pytest

from tare.errors import UsageError
from tare.tree import User


@pytest.fixture(autouse=True)
def nobody_asked_by_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)


def test_without_sudo_it_is_whoever_runs_it() -> None:
    user = User.invoking()
    assert (user.uid, user.gid) == (os.getuid(), os.getgid())
    assert set(user.groups) == set(os.getgroups())


@pytest.mark.skipif(os.geteuid() != 0, reason="sudo's variables are believed of root alone")
def test_under_sudo_it_is_who_typed_it_with_the_groups_of_that_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(known.pw_uid))
    monkeypatch.setenv("SUDO_GID", str(known.pw_gid))
    user = User.invoking()
    assert (user.uid, user.gid, user.name) == (known.pw_uid, known.pw_gid, "nobody")
    assert set(user.groups) == set(os.getgrouplist("nobody", known.pw_gid))
    monkeypatch.setenv("SUDO_UID", "4294967294")  # without a name
    assert User.invoking() == User(4294967294, known.pw_gid, (known.pw_gid,))
    monkeypatch.setenv("SUDO_UID", "me")
    with pytest.raises(UsageError, match="SUDO_UID='me'"):
        User.invoking()
