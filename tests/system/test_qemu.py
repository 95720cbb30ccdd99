"""Real guests: each boot takes seconds, so those that can share one do."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from reach import ask, await_that

import records
from tare import accounting, leftovers, process, runner
from tare.accounting import ThreadTime
from tare.command import Command
from tare.environments import Site
from tare.environments.in_guest import InsideGuest
from tare.environments.qemu import Qemu
from tare.errors import TareError, TrialError
from tare.guests import Hardware, Image, Kernel, Machine, Network, probe
from tare.host import Host

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "build"
CACHE = PROGRAMS / "test-cache"
"""Kept between runs of the tests, so that the kernel is downloaded once."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and taps need root"),
]


@pytest.fixture(scope="module")
def inside(site: Site) -> Iterator[InsideGuest]:
    with Qemu(accel="tcg").enter(site) as entered:
        assert isinstance(entered, InsideGuest)
        yield entered


def machine_of(inside: InsideGuest) -> Machine:
    assert isinstance(inside._guest, Machine)
    return inside._guest


@contextmanager
def booted(site: Site, kind: type[Machine]) -> Iterator[Machine]:
    kernel = Kernel.fetch(CACHE)
    image = Image.build(kernel, PROGRAMS, CACHE)
    with site.hosts.tap() as tap:
        network = Network(f"{tap.address}/24", tap.netns, tap.name, tap.mac)
        with kind(Host(site), Hardware("tcg"), kernel, image, network, name="broken") as guest:
            yield guest


@pytest.fixture
def machine(site: Site) -> Iterator[Machine]:
    """A guest of a test's own, to be broken."""
    with booted(site, Machine) as guest:
        yield guest


class Unplugged(Machine):
    """One whose NIC is plugged in when the guest has said that it waits for that."""

    def _place(self) -> None:
        super()._place()
        self._qmp.ask("set_link", 10, name="net", up=False)

    def explained(self, phase: str) -> AbstractContextManager[None]:
        if phase == "while it booted":
            assert await_that(lambda: "eth0 does not run yet" in self.host.read(self.console), 60)
            self._qmp.ask("set_link", 10, name="net", up=True)
        return super().explained(phase)


def processes(inside: InsideGuest) -> set[str]:
    """Command lines of a guest's processes that are not the kernel's."""
    rows = (line.split(None, 2)[2] for line in inside.run(["ps"], 10).splitlines()[1:])
    return {row for row in rows if not row.startswith("[") and row != "ps"}


def of_role(threads: tuple[ThreadTime, ...], role: str) -> list[ThreadTime]:
    return [thread for thread in threads if thread.role == role]


def test_the_guest_names_what_it_is(inside: InsideGuest) -> None:
    facts = inside.facts
    assert facts["accelerator"] == "tcg"
    assert facts["machine"].startswith("pc-q35-")
    assert facts["vcpus"] == 1
    assert facts["memory_bytes"] == 512 << 20
    assert inside.run(["uname", "-r"], 10).strip() == facts["kernel"]
    assert facts["clocksource"] in ("tsc", "hpet", "acpi_pm", "kvm-clock")


def test_a_server_in_a_guest_answers_over_the_bridge_and_is_accounted_for(
    site: Site, inside: InsideGuest
) -> None:
    idle = processes(inside)
    options = ("--port", "7400")
    with inside.start(["echo/echo-udp", "serve", "--bind", inside.address, *options]) as server:
        assert server.event(30)["event"] == "ready"
        assert any("echo-udp" in line for line in processes(inside))
        before = server.account()
        counters = ask(site, "udp", "--peer", inside.address, *options)
        after = server.account()
        last = server.stop()
    assert counters["received"] == 200
    assert last["event"] == "stopped"
    assert last["replies"] >= 200
    assert processes(inside) == idle

    spent = accounting.difference(before, after)
    for role in ("vmm", "vcpu", "guest"):
        assert sum(thread.cpu_ns for thread in of_role(spent.threads, role)) > 0, role
    assert len(of_role(spent.threads, "vcpu")) == 1
    assert spent.peak_memory_bytes is not None
    # Each way at least the payloads; what the environment sends is what the client receives.
    assert spent.sent_bytes is not None
    assert spent.received_bytes is not None
    assert min(spent.sent_bytes, spent.received_bytes) > 200 * 64


def test_a_guest_is_up_once_its_interface_runs(site: Site) -> None:
    """Fast DDS passes over one that does not."""
    with booted(site, Unplugged) as guest:
        assert guest.agent.read("/sys/class/net/eth0/operstate") == b"up\n"


def test_what_it_costs_to_ask_does_not_show_in_the_account(inside: InsideGuest) -> None:
    pid = machine_of(inside).pid
    with inside.start(["echo/echo-udp", "serve", "--port", "7400"]) as server:
        server.event(30)
        raw = [accounting.snapshot(pid, "vcpu")]
        accounts = [server.account() for _ in range(4)]
        raw.append(accounting.snapshot(pid, "vcpu"))

    def cpu_ns(account: accounting.Account) -> int:
        return sum(thread.cpu_ns for thread in account.threads if thread.role in ("vmm", "vcpu"))

    everything = cpu_ns(accounting.difference(raw[0], raw[1]))
    assert cpu_ns(accounting.difference(accounts[0], accounts[-1])) < everything / 3


@pytest.mark.parametrize(("transport", "domain"), [("cyclonedds", "11"), ("fastdds", "12")])
def test_dds_discovers_the_guest_by_multicast(
    site: Site, inside: InsideGuest, transport: str, domain: str
) -> None:
    serve = [f"echo/echo-{transport}", "serve", "--domain", domain, "--interface", inside.interface]
    with inside.start(serve) as server:
        assert server.event(30)["event"] == "ready"
        options = ("--domain", domain, "--interface", site.hosts.client_address)
        assert ask(site, transport, *options)["received"] == 200
        assert server.stop(20)["replies"] >= 200


def test_every_thread_of_qemu_is_in_its_place(site: Site, inside: InsideGuest) -> None:
    guest = machine_of(inside)
    threads = [int(path.name) for path in Path(f"/proc/{guest.pid}/task").iterdir()]
    assert guest.vcpu_threads < set(threads)
    for thread in threads:
        wanted = site.placement.vcpus if thread in guest.vcpu_threads else site.placement.vmm
        assert os.sched_getaffinity(thread) == set(wanted)
        assert os.sched_getscheduler(thread) == os.SCHED_OTHER


def test_a_server_that_dies_leaves_its_last_words(inside: InsideGuest) -> None:
    with (
        inside.start(["echo/echo-udp", "serve", "--port", "no number"]) as server,
        pytest.raises(TrialError, match=r"exit code 2 .*last words:.*--port"),
    ):
        server.event(30)


def test_a_server_that_says_nothing_is_given_up(inside: InsideGuest) -> None:
    with (
        inside.start(["sleep", "1000"]) as server,
        pytest.raises(TrialError, match=r"said nothing within 0\.2 s"),
    ):
        server.event(0.2)
    assert "sleep 1000" not in processes(inside)


def test_a_server_that_will_not_end_is_killed_with_all_its_children(inside: InsideGuest) -> None:
    stubborn = 'trap "" TERM; sleep 1001 & echo "{}"; while :; do sleep 1002; done'
    with inside.start(["sh", "-c", stubborn]) as server:
        server.event(10)
        with pytest.raises(TrialError, match=r"did not end within 0\.3 s and was killed"):
            server.stop(0.3)
    assert not [line for line in processes(inside) if "sleep" in line]


def test_a_program_that_a_guest_lacks_is_named(inside: InsideGuest) -> None:
    with (
        inside.start(["echo/echo-semaphore"]) as server,
        pytest.raises(TrialError, match="echo-semaphore"),
    ):
        server.event(10)
    with pytest.raises(TrialError, match="no-such-tool"):
        inside.run(["no-such-tool"], 10)


def test_a_program_that_fails_or_hangs_is_an_error(inside: InsideGuest) -> None:
    with pytest.raises(
        TrialError, match=r"^sh ended with code 3 in the guest; its last words: it broke$"
    ):
        inside.run(["sh", "-c", "echo it broke >&2; exit 3"], 10)
    with pytest.raises(TrialError, match=r"did not end within 0\.2 s"):
        inside.run(["sleep", "1000"], 0.2)


def test_a_kernels_complaint_is_told_beside_a_programs_failure(inside: InsideGuest) -> None:
    complain = 'echo "<1>Out of memory: Killed process 7" >/dev/kmsg; exit 1'
    with pytest.raises(TrialError, match=r"code 1 .*console says: .*Out of memory"):
        inside.run(["sh", "-c", complain], 10)


def test_tools_of_the_system_run_in_a_guest_too(inside: InsideGuest) -> None:
    assert "stress-ng, version" in inside.run(["stress-ng", "--version"], 30)
    assert "iperf 3" in inside.run(["iperf3", "--version"], 30)
    read = [
        "fio", "--name=null", "--filename=/dev/vda", "--rw=randread", "--bs=4k", "--io_size=40k",
        "--size=1m",
    ]  # fmt: skip
    assert "issued rwts: total=10," in inside.run(read, 60)


def test_a_guest_that_hangs_is_an_error_in_bounded_time_and_leaves_nothing(
    site: Site, machine: Machine
) -> None:
    machine.agent.timeout_s = 0.5
    pid = machine.pid
    os.kill(pid, signal.SIGSTOP)
    with (
        pytest.raises(TrialError, match=r"did not answer guest-exec within 0\.5 s .*tare: ready"),
        machine.explained("while it was asked"),
    ):
        machine.agent.run(["uname"], 5)
    machine.__exit__(None, None, None)
    assert not Path(f"/proc/{pid}").exists()


def test_a_kernel_panic_is_told_in_the_kernels_words(machine: Machine) -> None:
    crash = "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger"
    with (
        pytest.raises(TrialError, match=r"hung up: .*QEMU has ended.*Kernel panic"),
        machine.explained("while it crashed"),
    ):
        machine.agent.run(["/bin/sh", "-c", crash], 20)


def test_qemu_that_does_not_start_says_why(site: Site) -> None:
    with (
        pytest.raises(TrialError, match=r"while it was started: .*unsupported machine type"),
        Qemu(accel="tcg", machine="no-such-machine").enter(site),
    ):
        pass


def test_taps_and_processes_are_gone_when_the_environment_is_left(site: Site) -> None:
    def links() -> set[str]:
        show = Command(("ip", "-brief", "link"), netns=site.hosts.wire_ns)
        return {line.split()[0] for line in process.run(show, 10).stdout.splitlines()}

    before = links()
    with ExitStack() as stack:
        entered = stack.enter_context(Qemu(accel="tcg").enter(site))
        assert isinstance(entered, InsideGuest)
        pid = machine_of(entered).pid
        assert links() > before
        stack.callback(os.kill, pid, signal.SIGSTOP)  # even one that can no longer quit
    assert not Path(f"/proc/{pid}").exists()
    assert links() == before


def test_nothing_survives_a_killed_owner(tmp_path: Path) -> None:
    script = f"""
        import time
        from pathlib import Path
        from tare.environments import Site
        from tare.environments.qemu import Qemu
        from tare.hosts import Hosts
        from tare.leftovers import Registry
        root = Path({str(tmp_path)!r})
        with Registry(root / "leftovers") as registry, Hosts(registry) as hosts:
            site = Site(hosts, Path({str(PROGRAMS)!r}), root, Path({str(CACHE)!r}), registry)
            with Qemu(accel="tcg").enter(site) as inside:
                print(inside._guest.pid, hosts.wire_ns, flush=True)
                time.sleep(600)
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, namespace = owner.stdout.readline().split()
        pidfd = os.pidfd_open(int(pid))
        owner.kill()
    try:
        assert select.select([pidfd], [], [], 30)[0], "QEMU outlived its owner"
    finally:
        os.close(pidfd)
    assert Path("/run/netns", namespace).exists()
    assert f"netns {namespace}" in leftovers.clean(tmp_path / "leftovers")
    assert not Path("/run/netns", namespace).exists()


def test_the_boot_probe_tells_a_boot_from_a_hang(site: Site) -> None:
    kernel = Kernel.fetch(CACHE)
    image = Image.build(kernel, PROGRAMS, CACHE)
    assert probe.boots(Host(site), Hardware("tcg"), kernel, image, timeout_s=60) is None
    problem = probe.boots(Host(site), Hardware("tcg"), kernel, image, timeout_s=0.05)
    assert problem is not None
    assert "within 0.05 s" in problem


def test_a_verdict_on_kvm_is_kept(site: Site, tmp_path: Path) -> None:
    kernel = Kernel.fetch(CACHE)
    image = Image.build(kernel, PROGRAMS, CACHE)
    verdict = probe.accelerator(Host(site), kernel, image, tmp_path)
    assert verdict.accelerator in ("kvm", "tcg")
    # An image that is not there could not be booted again.
    nowhere = replace(image, path=tmp_path / "nowhere")
    assert probe.accelerator(Host(site), kernel, nowhere, tmp_path) == verdict


def test_an_experiment_can_go_on_where_no_guest_can_be_made(site: Site, tmp_path: Path) -> None:
    nothing_built = replace(site, programs=tmp_path)
    with (
        pytest.raises(TrialError, match="no guest can be made: no programs"),
        Qemu(accel="tcg").enter(nothing_built),
    ):
        pass


def test_kvm_that_is_asked_for_and_does_not_boot_is_refused(site: Site) -> None:
    kernel = Kernel.fetch(CACHE)
    verdict = probe.accelerator(Host(site), kernel, Image.build(kernel, PROGRAMS, CACHE), CACHE)
    if verdict.accelerator == "kvm":
        pytest.skip("KVM works here")
    with pytest.raises(TrialError, match="KVM is asked for"), Qemu(accel="kvm").enter(site):
        pass


def test_a_run_whose_guests_lost_kvm_stops_and_mixes_nothing(tmp_path: Path) -> None:
    text = (
        "title: t\nfactors: {environment: [qemu], transport: [udp], accelerator: [tcg]}\n"
        "baseline: {environment: qemu}\nblocks: {min: 2, max: 2}\n"
    )
    # KVM cannot be had everywhere: that it was there once is written, that it is not now is real.
    recipe = records.Recipe(blocks=1, requests=50, accelerator=lambda _block, _cell: "kvm")
    made = records.make(tmp_path / "r", recipe, text)
    before = made.trials()
    with pytest.raises(TareError, match=r"runs under TCG now .*ran under KVM: the two are not"):
        runner.run(made, PROGRAMS, CACHE)
    assert made.trials() == before


def test_availability_says_what_a_guest_will_run_on() -> None:
    found = Qemu().availability()
    assert found.available
    assert found.detail.startswith("QEMU ")
