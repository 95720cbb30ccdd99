import tempfile
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import interference, mounts
from tare.environments import scratch_disk
from tare.errors import TrialError, UsageError
from tare.interference import Interference

some = st.one_of(
    st.just(Interference()),
    st.builds(
        Interference, st.just("cpu"), st.integers(1, 100), st.sampled_from(["host", "inside"])
    ),
    st.builds(
        Interference,
        st.sampled_from(["memory", "disk"]),
        st.integers(1, 256),
        st.sampled_from(["host", "inside"]),
    ),
    st.builds(
        Interference,
        st.just("network"),
        st.integers(1, 10**12),
        st.sampled_from(["host", "inside"]),
    ),
)


@given(some)
def test_what_is_written_is_read_again(one: Interference) -> None:
    assert Interference.parse(str(one)) == one


@pytest.mark.parametrize(
    ("text", "kind", "level", "where"),
    [
        ("none", None, 0, "host"),
        ("host cpu 50 %", "cpu", 50, "host"),
        ("inside cpu 5%", "cpu", 5, "inside"),
        ("inside  memory 2", "memory", 2, "inside"),
        ("host network 100 Mbit/s", "network", 100_000_000, "host"),
        ("host disk 1", "disk", 1, "host"),
    ],
)
def test_people_write_it_so(text: str, kind: str | None, level: int, where: str) -> None:
    assert Interference.parse(text) == Interference(kind, level, where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "cpu 50 %", "host cpu", "host cpu 0 %", "host cpu 101 %", "host cpu 50", "host memory 0",
     "host memory 1.5", "host memory 9999", "host network 5", "host network 0 Mbit/s",
     "guest cpu 5 %", "inside gpu 1", "host disk -1", "host cpu \u0665\u0660 %"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_allowed_forms(text: str) -> None:
    forms = "such as '100 Mbit/s'" if text == "host network 5" else "'none', or where, what and"
    with pytest.raises(UsageError, match=forms):
        Interference.parse(text)


@given(st.text() | st.builds("{} {} {}".format, st.text(), st.text(), st.text()))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert Interference.parse(str(Interference.parse(text))) == Interference.parse(text)
    except UsageError as error:
        assert error.what


def test_what_the_measured_workload_counts_is_not_taken_for_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client's interface and a guest's processor count both."""
    monkeypatch.setattr(interference, "_NEXT_TURN_S", 0.01)
    alive = SimpleNamespace(alive=lambda: True)
    counts = iter([0, 10])
    now = [0]

    def count() -> int:
        now[0] = next(counts, now[0])
        return now[0]

    loading = Interference("network", 1, "host")._loading(alive, count, 10)  # type: ignore[arg-type]
    with pytest.raises(TrialError, match="stood still while the trial ran"), loading:
        counts = iter([20])  # the trial's own


@pytest.mark.parametrize(
    ("text", "environment", "tree", "said"),
    [
        ("inside disk 1", "native", True, "Take `host disk 1`"),
        ("inside disk 2", "qemu", True, "Take `host disk 2`"),
        ("inside disk 1", "uml", False, "Take `host disk 1`"),
        ("inside disk 1", "gvisor", False, "Take `host disk 1`"),
        ("inside disk 1", "ssh me@far/container", False, "Take `host disk 1`"),
        ("inside disk 1", "container", False, "Set TMPDIR"),
        ("host disk 1", "container", False, "Set TMPDIR"),
    ],
)
def test_a_load_of_a_disk_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: str, tree: bool, said: str
) -> None:
    monkeypatch.setattr(mounts, "kind_at", lambda _: "tmpfs")
    assert said in (Interference.parse(text).lacking(environment, tree=tree) or "")


def test_where_temporary_files_are_in_memory_the_hosts_disk_is_another_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_disk = scratch_disk._ON_DISK
    monkeypatch.setattr(mounts, "kind_at", lambda path: "ext4" if path == on_disk else "tmpfs")
    monkeypatch.setattr("tare.packages.lacking", lambda _: None)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/in/memory")
    for text, environment in (("host disk 1", "native"), ("inside disk 1", "ssh me@far/qemu")):
        assert Interference.parse(text).lacking(environment) is None


def test_its_files_take_room_and_a_guests_device_none() -> None:
    assert Interference.parse("host disk 2").disk_bytes("qemu") == 128 << 20
    assert Interference.parse("inside disk 2").disk_bytes("qemu") == 0
    assert Interference.parse("host memory 2").disk_bytes("native") == 0
