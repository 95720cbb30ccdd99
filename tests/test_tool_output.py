"""What tools print: read as it is, or refused in one sentence, whatever they print."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import TrialError
from tare.workloads import disk, network, overhead
from tare.workloads.cpu import CPU
from tare.workloads.meeting import Run
from tare.workloads.memory import MEMORY

STRESS_NG = """metrics:
    - stressor: cpu
      bogo-ops: 897
      bogo-ops-per-second-usr-sys-time: 3118.947694
      bogo-ops-per-second-real-time: 886.333703
"""
SYSBENCH = "CPU speed:\n    events per second:  1017.05\n"
SYSBENCH_MEMORY = "2011.39 MiB transferred (1999.91 MiB/sec)\n"
HDPARM = """
/dev/loop0:
 Timing buffered disk reads: 256 MB in  0.50 seconds = 512.00 MB/sec
"""
FIO = {"job_runtime": 2000, "read": {"io_bytes": 8192, "total_ios": 2}, "write": {"io_bytes": 0}}
INTERVALS = [
    {"sum": {"start": i / 10, "end": (i + 1) / 10, "seconds": 0.1, "bytes": 1000 * (i + 1)}}
    for i in range(20)
]
IPERF3 = {
    "server_output_json": {"intervals": INTERVALS},
    "end": {
        "sum_sent": {"bytes": 210_000, "seconds": 2.0, "retransmits": 3},
        "cpu_utilization_percent": {"remote_total": 50.0},
    },
}


@pytest.mark.parametrize("seconds", [1, 3, 120, 86_400])
def test_iperf3_is_asked_for_no_more_intervals_than_can_be_told(seconds: int) -> None:
    each = float(network.told(seconds)[1])
    assert 0.1 <= each <= 60.0  # what it takes
    assert seconds / each <= 1440
    assert seconds > 24_000 or seconds / each <= 400.1


def rate_of(workload: object, kind: str, method: str, said: str) -> float:
    return float(workload.classes[kind].methods[method].rate(said))  # type: ignore[attr-defined]


def a_run(output: str, began: float = 100.0, ended: float = 102.0) -> Run:
    return Run(began, ended, 1_000_000_000, output)


def test_rates_are_read_from_what_stress_ng_and_sysbench_print() -> None:
    assert rate_of(CPU, "integer", "int64", STRESS_NG) == 886.333703
    assert rate_of(CPU, "integer", "primes", SYSBENCH) == 1017.05
    found = rate_of(MEMORY, "stream", "sequential-read", SYSBENCH_MEMORY)
    assert found == 1999.91 * (1 << 20)


def test_hdparms_rate_is_of_what_it_read_in_the_time_it_took() -> None:
    assert disk._hdparm_rate(HDPARM) == 512 * (1 << 20)


def test_fios_rates_are_over_its_run_time() -> None:
    said = "fio: a warning\n" + json.dumps({"jobs": [FIO]})
    assert disk._fio_rates(said) == {"rate": 4096.0, "operations": 1.0}


def test_of_iperf3_only_the_intervals_within_the_overlap_count() -> None:
    sent = network._read_iperf3(a_run(json.dumps(IPERF3)), (100.5, 101.5), 0, "iperf3")
    # 0.7 s to 1.3 s of its time: 0.2 s off each end of the overlap.
    counted = [one["sum"]["bytes"] for one in INTERVALS[7:13]]
    assert math.isclose(sent.rate, sum(counted) / 0.6)
    assert sent.retransmits == 3
    assert sent.cpu_ns == 2_000_000_000  # the sender's own and half of two seconds
    assert sent.overlap == 0.5


def test_dds_rate_is_its_last_report_and_needs_an_overlap() -> None:
    said = "5 bytes (5 B) copied, 1 s, 5 B/s\n400 bytes (400 B) copied, 2.0 s, 200 B/s\n"
    assert network._read_dd(a_run(said), (100.0, 102.0), 0, "dd").rate == 200
    with pytest.raises(TrialError, match="50% only"):
        network._read_dd(a_run(said), (100.5, 101.5), 0, "dd")


def test_a_cost_comes_with_the_share_that_is_the_probes_clock() -> None:
    said = {"batches": [90.0, 100.0, 110.0], "clock_overhead_ns": 20.0, "operations_per_batch": 10}
    assert overhead._cost("x", json.dumps(said)) == (100.0, 0.02)


@given(st.text() | st.sampled_from([STRESS_NG, SYSBENCH, HDPARM, json.dumps(IPERF3)]))
def test_whatever_is_printed_is_a_rate_or_a_failed_trial(said: str) -> None:
    readers = (
        lambda: rate_of(CPU, "integer", "int64", said),
        lambda: rate_of(CPU, "integer", "primes", said),
        lambda: disk._hdparm_rate(said),
        lambda: disk._fio_rates(said)["rate"],
        lambda: network._read_iperf3(a_run(said), (100.0, 102.0), 0, "").rate,
        lambda: network._read_dd(a_run(said), (100.0, 102.0), 0, "").rate,
        lambda: overhead._cost("x", said)[0],
    )
    for read in readers:
        try:
            found = read()
        except TrialError:
            continue
        assert found >= 0


KEYS = (
    "jobs", "read", "write", "server_output_json", "intervals", "end", "sum", "sum_sent",
    "batches", "io_bytes", "total_ios", "job_runtime", "bytes", "seconds",
)  # fmt: skip
NESTED = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(NESTED)
def test_any_json_is_a_rate_or_a_failed_trial(value: object) -> None:
    said = json.dumps(value)
    for read in (
        lambda: disk._fio_rates(said),
        lambda: network._read_iperf3(a_run(said), (100.0, 102.0), 0, ""),
        lambda: overhead._cost("x", said),
    ):
        try:
            read()
        except TrialError:
            continue
