import json
import os
import platform
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import machine, meanwhile

HOME = Path(__file__).parents[1]


def test_counters_only_grow() -> None:
    before = meanwhile.state()
    did = meanwhile.difference(before, meanwhile.state())
    assert did.seconds > 0
    assert did.context_switches >= 0
    assert did.steal_ns >= 0
    assert all(value is None or value >= 0 for value in did.pressure_us.values())


def test_what_a_kernel_does_not_count_is_absent_not_zero(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\nctxt 5\n")
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/100 1234\n")
    found = meanwhile.state(tmp_path)
    assert found.pressure_us == {"cpu": None, "memory": None, "io": None}
    assert (found.load_1min, found.context_switches) == (0.5, 5)
    assert meanwhile.difference(found, found).pressure_us["io"] is None


def test_a_fingerprint_survives_json_and_is_like_itself(tmp_path: Path) -> None:
    found = machine.fingerprint(tmp_path)
    assert found["kernel"]["release"] == platform.release()
    assert machine.unlike(found, json.loads(json.dumps(found))) == {}


def test_another_build_of_a_program_is_another_fingerprint(tmp_path: Path) -> None:
    program = tmp_path / "echo" / "echo-udp"
    program.parent.mkdir()
    program.write_bytes(b"one")
    program.chmod(0o755)
    one = machine.fingerprint(tmp_path)
    program.write_bytes(b"two")
    assert list(machine.unlike(one, machine.fingerprint(tmp_path))) == ["programs.echo/echo-udp"]


RUN_BY_TRIALS = (
    "build/echo/echo-udp", "build/probe/probe", "build/probe/execute",
    "build/nvio/nvio", "build/nvio/nvio-manager", "build/nvio/libnvio.so",
    "build/nvio/libnvio-mpich.so", "build/nvio/libyield.so", "build/nvio/grid-openmpi",
    "build/nvio/programs/slab-pnetcdf", "build/nvio/programs/slab.py",
    "build/walks/walks-mpich", "build/walks/walks-openmpi",
    "build/qemu-newer/root/usr/bin/qemu-system-x86_64", "target/release/pageshare",
)  # fmt: skip
RUN_BY_NONE = (
    "build/echo/echo_udp_test", "build/echo/libecho_core.a", "build/probe/probe_test",
    "build/probe/execute_test",
    "build/nvio/nvio-tests", "build/nvio/nvio-bench", "build/nvio/fuzz-trace",
    "build/nvio/killed-mpich", "build/walks/walks-core-test",
    "build/qemu-newer/root/usr/bin/qemu-pr-helper", "target/release/libpageshare.rlib",
)  # fmt: skip


def test_every_program_that_a_trial_can_run_is_told_by_its_hash_and_no_other(tmp_path: Path):
    for name in (*RUN_BY_TRIALS, *RUN_BY_NONE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = machine.fingerprint(tmp_path / "build")["programs"]
    assert found.keys() == {name.removeprefix("build/") for name in RUN_BY_TRIALS}
    assert len(set(found.values())) == len(RUN_BY_TRIALS)


def test_what_was_not_built_is_left_out(tmp_path: Path):
    assert machine.fingerprint(tmp_path / "build")["programs"] == {}


NO_MATTER = {
    "ethtool": "turns offloads off, and nothing else",
    "procps": "for a reader",
    "libpnetcdf-dev": "headers; the library is asked for",
    "libopenmpi-dev": "headers; the library is asked for",
    "mmdebstrap": "its image stands in the trial's facts",
    "openssl": "makes certificates",
    "cpio": "packs the image",
    "binutils": "packs the image",
}


@pytest.mark.parametrize("part", ["hosts", "workloads", "qemu", "migration", "mpi-io"])
def test_every_package_that_trials_are_set_up_with_is_in_the_fingerprint(part: str):
    lines = (HOME / "setup/apt" / f"{part}.txt").read_text().splitlines()
    named = {line.split()[0] for line in lines if re.match("[a-z]", line)}
    assert named
    assert named - NO_MATTER.keys() <= set(machine._PACKAGES)


def test_other_processors_are_another_machine_however_many(monkeypatch: pytest.MonkeyPatch):
    def on(processors: set[int]) -> dict:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
        return machine.fingerprint(Path("/nowhere"))

    began = on({0, 1})
    assert machine.changed(began, on({1, 0}), ()) == []
    assert machine.changed(began, on({2, 3}), ()) == ["cpu.affinity"]


trees = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
roots = st.dictionaries(st.text(max_size=4), trees, max_size=4)


@given(roots, roots)
def test_unlike_is_symmetric_and_empty_for_the_same(one: dict, other: dict) -> None:
    there = machine.unlike(one, other)
    back = machine.unlike(other, one)
    assert {key: (b, a) for key, (a, b) in there.items()} == back
    assert machine.unlike(one, one) == {}


def test_what_was_measured_on_another_kernel_or_by_other_programs_is_not_merged():
    began = {
        "kernel": {"release": "6.1", "same_page_merging": "0"},
        "tare": {"commit": "a"},
        "programs": {"echo/echo-udp": "00"},
    }
    now = {
        "kernel": {"release": "6.2", "same_page_merging": "1"},
        "tare": {"commit": "b"},
        "programs": {"echo/echo-udp": "11"},
    }
    assert machine.changed(began, now, ("echo/*",)) == [
        "kernel.release",
        "programs.echo/echo-udp",
    ]
    assert machine.changed(began, now, ("walks/*",)) == ["kernel.release"]
    assert machine.changed(began, began, ("echo/*",)) == []


@pytest.mark.parametrize(
    "name", ["command_line", "clock_source", "huge_pages", "real_time_runtime_us", "mitigations"]
)
def test_what_was_measured_on_a_kernel_told_otherwise_is_not_merged(name: str):
    began = machine.fingerprint(Path("/nowhere"))
    now = {**began, "kernel": {**began["kernel"], name: "something else"}}
    found = machine.changed(began, now, ())
    assert found
    assert all(key.startswith(f"kernel.{name}") for key in found)


@pytest.mark.parametrize(
    ("words", "other", "changed"),
    [
        ("root=UUID=1 quiet", "root=UUID=2 quiet", []),
        ("BOOTIF=01-aa ip=10.0.0.1::eth0 quiet", "BOOTIF=01-bb ip=10.0.0.2::eth0 quiet", []),
        ("rd.luks.uuid=1 resume=/dev/sda2 quiet", "rd.luks.uuid=2 resume=/dev/sdb2 quiet", []),
        ("rd.lvm.lv=rl_n1/root resume_offset=1", "rd.lvm.lv=rl_n2/root resume_offset=2", []),
        ("root=UUID=1 mitigations=off", "root=UUID=2", ["kernel.command_line"]),
        ("root=UUID=1 isolcpus=1", "root=UUID=1 isolcpus=2", ["kernel.command_line"]),
        ("root=UUID=1", None, ["kernel.command_line"]),
    ],
)
def test_machines_that_each_boot_their_own_disk_are_alike(
    words: str, other: str | None, changed: list[str]
):
    began, now = ({"kernel": {"command_line": line}} for line in (words, other))
    assert machine.changed(began, now, ()) == changed


def test_counters_of_faults_timers_and_exits_are_read_where_a_kernel_has_them(tmp_path: Path):
    proc, kvm = tmp_path / "proc", tmp_path / "kvm"
    proc.mkdir()
    kvm.mkdir()

    def at(faults: int, ticks: int, exits: int) -> meanwhile.State:
        (proc / "stat").write_text(f"cpu  1 2 3 4 5 6 7 8 9 10\nintr {ticks + 1} 3 4\nctxt 5\n")
        (proc / "loadavg").write_text("0.50 0.40 0.30 1/100 1234\n")
        (proc / "vmstat").write_text(f"pgfault {faults}\nthp_fault_alloc 2\n")
        (proc / "interrupts").write_text(
            f"     CPU0  CPU1\n LOC: {ticks} 10   Local timer interrupts\n"
        )
        (proc / "cpuinfo").write_text("cpu MHz\t\t: 2000.0\ncpu MHz\t\t: 3000.0\n")
        (kvm / "exits").write_text(f"{exits}\n")
        (kvm / "halt_exits").write_text("7\n")
        return meanwhile.state(proc, kvm)

    did = meanwhile.difference(at(100, 50, 1000), at(175, 80, 1600))
    assert (did.page_faults, did.huge_page_faults) == (75, 0)
    assert (did.timer_interrupts, did.interrupts) == (30, 30)
    assert did.kvm == {"exits": 600, "halt_exits": 0}
    assert did.frequency_mhz == 2500.0


def test_a_machine_without_kvm_counts_no_exits(tmp_path: Path):
    assert meanwhile.state(kvm=tmp_path / "absent").kvm == {}
