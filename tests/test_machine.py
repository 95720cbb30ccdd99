import json
import platform
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tare import machine


def test_counters_only_grow() -> None:
    before = machine.state()
    did = machine.difference(before, machine.state())
    assert did["seconds"] > 0
    assert did["context_switches"] >= 0
    assert did["steal_ns"] >= 0
    assert all(value is None or value >= 0 for value in did["pressure_us"].values())


def test_what_a_kernel_does_not_count_is_absent_not_zero(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\nctxt 5\n")
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/100 1234\n")
    found = machine.state(tmp_path)
    assert found.pressure_us == {"cpu": None, "memory": None, "io": None}
    assert (found.load_1min, found.context_switches) == (0.5, 5)
    assert machine.difference(found, found)["pressure_us"]["io"] is None


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
    assert machine.changed(began, now) == ["kernel.release", "programs.echo/echo-udp"]
    assert machine.changed(began, began) == []


def test_counters_of_faults_timers_and_exits_are_read_where_a_kernel_has_them(tmp_path: Path):
    proc, kvm = tmp_path / "proc", tmp_path / "kvm"
    proc.mkdir()
    kvm.mkdir()

    def at(faults: int, ticks: int, exits: int) -> machine.State:
        (proc / "stat").write_text(f"cpu  1 2 3 4 5 6 7 8 9 10\nintr {ticks + 1} 3 4\nctxt 5\n")
        (proc / "loadavg").write_text("0.50 0.40 0.30 1/100 1234\n")
        (proc / "vmstat").write_text(f"pgfault {faults}\nthp_fault_alloc 2\n")
        (proc / "interrupts").write_text(
            f"     CPU0  CPU1\n LOC: {ticks} 10   Local timer interrupts\n"
        )
        (proc / "cpuinfo").write_text("cpu MHz\t\t: 2000.0\ncpu MHz\t\t: 3000.0\n")
        (kvm / "exits").write_text(f"{exits}\n")
        (kvm / "halt_exits").write_text("7\n")
        return machine.state(proc, kvm)

    did = machine.difference(at(100, 50, 1000), at(175, 80, 1600))
    assert (did["page_faults"], did["huge_page_faults"]) == (75, 0)
    assert (did["timer_interrupts"], did["interrupts"]) == (30, 30)
    assert did["kvm"] == {"exits": 600, "halt_exits": 0}
    assert did["frequency_mhz"] == 2500.0


def test_a_machine_without_kvm_counts_no_exits(tmp_path: Path):
    assert machine.state(kvm=tmp_path / "absent").kvm == {}
