"""Levels that name another machine: text of an experiment file, which may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import environments
from tare.environments.ssh import Ssh
from tare.errors import UsageError
from tare.far import Target

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)


@given(
    st.builds(
        Target,
        host=NAMES,
        user=st.none() | NAMES,
        port=st.none() | st.integers(1, 65535),
        netns=st.none() | NAMES,
    )
)
def test_what_a_target_shows_is_read_as_the_same(target):
    level = environments.level(f"ssh {target}")
    assert level == f"ssh {target}"
    assert environments.named(level) == Ssh(target)


@given(st.text())
def test_any_text_is_a_target_or_an_error_that_teaches(text):
    try:
        target = Target.parse(text)
    except UsageError as error:
        assert "user@host:port" in error.what
    else:
        assert not str(target).startswith("-")
        assert Target.parse(str(target)) == target


def test_blanks_do_not_matter():
    level = environments.level("ssh  root@192.0.2.1:22   from lab")
    assert level == "ssh root@192.0.2.1:22 from lab"


@pytest.mark.parametrize("level", ["ssh", "ssh ", "ssh -oProxyCommand=x", "ssh a:0", "ssh a:65536"])
def test_what_names_no_machine_is_refused(level):
    with pytest.raises(UsageError, match="names no machine"):
        environments.level(level)


def test_an_environment_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"gvisor.*user@host:port"):
        environments.level("xen")
