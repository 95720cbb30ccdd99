"""Levels that name another machine: text of an experiment file, which may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import environments
from tare.destination import Destination
from tare.environments.qemu import Qemu
from tare.environments.ssh import Ssh
from tare.errors import UsageError

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)


@given(
    st.builds(
        Destination,
        host=NAMES,
        user=st.none() | NAMES,
        port=st.none() | st.integers(1, 65535),
        netns=st.none() | NAMES,
    )
)
def test_what_a_destination_shows_is_read_as_the_same(destination):
    level = environments.level(f"ssh {destination}")
    assert level == f"ssh {destination}"
    assert environments.named(level) == Ssh(destination)


@given(st.text())
def test_any_text_is_a_target_or_an_error_that_teaches(text):
    try:
        destination = Destination.parse(text)
    except UsageError as error:
        assert "user@host:port" in error.what
    else:
        assert not str(destination).startswith("-")
        assert Destination.parse(str(destination)) == destination


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


@pytest.mark.parametrize("holding", ["container", "qemu"])
def test_a_level_names_what_the_machine_holds(holding):
    written = f"ssh root@192.0.2.1:22/{holding} from lab"
    assert environments.level(written) == written
    assert environments.named(written) == Ssh(
        Destination("192.0.2.1", "root", 22, "lab"), environments.by_name()[holding]
    )
    assert environments.is_guest_of_qemu(written) == (holding == "qemu")


def test_what_no_machine_can_hold_is_refused_with_what_it_can():
    for level in ("ssh root@192.0.2.1/xen", "ssh root@192.0.2.1/", "ssh a/qemu/qemu"):
        with pytest.raises(UsageError, match=r"/container|names no machine"):
            environments.level(level)


def test_a_guest_there_is_made_of_what_the_plot_asks_for():
    levels = {"environment": "ssh root@192.0.2.1/qemu", "vcpus": "2", "memory": "1 GiB"}
    asked = environments.for_plot(levels)
    assert isinstance(asked, Ssh)
    assert isinstance(asked.held, Qemu)
    assert (asked.held.vcpus, asked.held.memory_bytes) == (2, 1 << 30)


@pytest.mark.parametrize(
    ("level", "device"),
    [
        ("gvisor", "raw"),
        ("uml", "loop"),
        ("native", "nfs"),
        ("container", "nfs"),
        ("ssh root@192.0.2.1", "raw"),
        ("ssh root@192.0.2.1/qemu", "loop"),
    ],
)
def test_a_device_that_an_environment_does_not_offer_is_refused_before_it_is_entered(level, device):
    asked = environments.for_plot({"environment": level, "device": device})
    found = asked.availability()
    assert not found.available
    # Where nothing of the environment itself is missing, it is the device.
    if environments.named(level).availability().available:
        assert "device" in found.detail
