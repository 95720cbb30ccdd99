"""Another machine by ssh: an sshd in a namespace, and what can happen on the way to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import reach

from needs import PROGRAMS, needs_root
from tare import accounting, environments, experiment, machine, plan, runner
from tare.command import Command, start_time
from tare.destination import Destination
from tare.environments import Site
from tare.environments.ssh import Ssh
from tare.errors import Exit, TareError, TrialError
from tare.far import Connection, Folder
from tare.far.host import _FINGERPRINT
from tare.hosts import Hosts
from tare.leftovers import Registry, clean
from tare.placement import Placement
from tare.record import Record
from tare.runner import Progress
from tare.testing import traces
from tare.testing.far_machine import PORT, FarMachine, far_machine
from tare.testing.site import levels_of
from tare.workloads.request_reply import WORKLOAD

pytestmark = [pytest.mark.system, needs_root]

SERVE = ("echo/echo-udp", "serve", "--port", "7400", "--bind")


def test_a_server_there_answers_is_accounted_for_and_leaves_nothing(
    site: Site, far: FarMachine
) -> None:
    fifo = replace(site, placement=replace(site.placement, fifo=50))
    with Ssh(far.destination).enter(fifo) as inside:
        assert inside.address == site.hosts.server_address
        assert inside.interface == "eth0"
        assert inside.facts["machine"] == str(far.destination)
        online = Path("/sys/devices/system/cpu/online").read_text().strip()
        assert inside.facts["host_processors"] == online
        assert inside.facts["host_memory"].endswith(" kB")
        if (name := Path("/etc/machine-id")).exists() and (identity := name.read_text().strip()):
            assert identity not in str(inside.facts.whole)
            assert len(inside.facts["host_id"]) == 16
        with inside.start([*SERVE, inside.address]) as server:
            assert server.event(30)["event"] == "ready"
            assert far.left() != []
            before = server.account()
            assert reach.ask(site, "udp", "--peer", inside.address, *reach.PORT)["received"] == 200
            used = accounting.difference(before, server.account())
            tid = next(t.tid for t in used.threads if t.cpu_ns > 0)
            assert os.sched_getscheduler(tid) == os.SCHED_FIFO
            assert os.sched_getaffinity(tid) == set(site.placement.server)
            assert server.stop(30)["replies"] >= 200
    assert {t.role for t in used.threads} == {"server"}
    assert used.sent_bytes is not None
    assert used.sent_bytes >= 200 * 64
    assert used.peak_memory_bytes is not None


def test_it_is_placed_by_the_processors_that_are_there(
    site: Site, far: FarMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = os.sched_getaffinity(0)
    with monkeypatch.context() as near:
        near.setattr(os, "sched_getaffinity", lambda _: {7000, 7001})
        placement = WORKLOAD.placement(levels_of(WORKLOAD, environment=f"ssh {far.destination}"))
    assert placement.client == (7001,)
    with Ssh(far.destination).enter(replace(site, placement=placement)) as inside:
        said = inside.run(["grep", "Cpus_allowed_list", "/proc/self/status"], 30)
        assert said.split()[1] == str(max(there))
        host = inside.host  # type: ignore[attr-defined]
        with host.start(Command(("sleep", "1000"))) as sleeper:
            with pytest.raises(TrialError, match="taskset"):
                host.bind(sleeper.pid, [7001])
            host.bind(sleeper.pid, [min(there)])
            assert os.sched_getaffinity(sleeper.pid) == {min(there)}
        host.bind(sleeper.pid, [min(there)])  # has ended
    placement = replace(placement, text="server=7001")
    with (
        pytest.raises(TrialError, match=f"{far.destination} offers"),
        Ssh(far.destination).enter(replace(site, placement=placement)),
    ):
        pass


def test_what_a_library_is_missing_for_is_started_with_those_that_were_pushed(
    site: Site, far: FarMachine, tmp_path: Path
) -> None:
    # As if the far machine had none: its ldd finds nothing.
    liar = tmp_path / "ldd"
    liar.write_text("#!/bin/sh\necho 'libstdc++.so.6 => not found'\n")
    liar.chmod(0o755)
    with Ssh(far.destination).enter(site) as inside:
        programs = inside.host._programs  # type: ignore[attr-defined]
        asked = programs._connection.run
        programs._connection.run = lambda argv, *rest, **named: asked(
            [str(liar) if argv[0] == "ldd" else argv[0], *argv[1:]], *rest, **named
        )
        with inside.start([*SERVE, inside.address]) as server:
            server.event(30)
            mapped = Path(f"/proc/{server.pid}/maps").read_text()  # type: ignore[attr-defined]
            files = {line.split()[-1] for line in mapped.splitlines() if ".so" in line}
            assert files
            assert all(name.startswith(str(far.temporary)) for name in files), files
            assert reach.ask(site, "udp", "--peer", inside.address, *reach.PORT)["received"] == 200
            server.stop(30)


def test_a_failing_program_says_why(site: Site, far: FarMachine) -> None:
    with Ssh(far.destination).enter(site) as inside:
        with pytest.raises(TrialError, match="No such file"):
            inside.run(["cat", "/no/such/file"], 20)
        with pytest.raises(TrialError, match="is not there"):
            inside.start(["echo/no-such-echo"])
        elsewhere = [*SERVE, "192.0.2.1"]
        with pytest.raises(TrialError, match=r"192\.0\.2\.1"), inside.start(elsewhere) as server:
            server.event(20)
        with pytest.raises(TrialError, match=r"running sleep on .* does not answer"):
            inside.run(["sleep", "60"], 0.2)
        assert inside.run(["echo", "well"], 20) == "well\n"


def test_a_host_whose_key_is_unknown_or_another_is_not_talked_to(
    site: Site, far: FarMachine
) -> None:
    known = far.home / ".ssh" / "known_hosts"
    other = (far.home / ".ssh" / "id_ed25519.pub").read_text()
    for content in ("", f"[{far.destination.host}]:{PORT} {other}"):
        known.write_text(content)
        with pytest.raises(TrialError, match="host key") as error, Ssh(far.destination).enter(site):
            pass
        assert f"ssh -p {PORT} root@{far.destination.host}" in str(error.value.remedy)


def test_a_key_that_is_refused_says_so(site: Site, far: FarMachine) -> None:
    (far.temporary.parent / "authorized").write_text("")
    with (
        pytest.raises(TrialError, match="lets none of our keys in"),
        Ssh(far.destination).enter(site),
    ):
        pass


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("echo Welcome; eval $SSH_ORIGINAL_COMMAND", "prints words of its own: 'Welcome'"),
        ("echo No account. >&2; exit 1", "does not run a command as sh would: 'No account.'"),
    ],
)
def test_a_login_shell_that_is_of_no_use_is_found_out_before(
    far: FarMachine, shell: str, why: str
) -> None:
    authorized = far.temporary.parent / "authorized"
    said = shell.replace("$SSH_ORIGINAL_COMMAND", '\\"$SSH_ORIGINAL_COMMAND\\"')
    authorized.write_text(f'command="{said}" {authorized.read_text()}')
    assert why in str(Ssh(far.destination).unreachable())
    assert far.left() == []


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
def test_every_shell_that_is_of_use_passes_words_on_as_they_are(
    far: FarMachine, shell: str
) -> None:
    authorized = far.temporary.parent / "authorized"
    run = f'exec {shell} -c \\"$SSH_ORIGINAL_COMMAND\\"'
    authorized.write_text(f'command="{run}" {authorized.read_text()}')
    words = ["\\\\", "\\", "\\'", "it's", "two\nlines", "$HOME", "~", "*", "{a,b}", "!", ""]
    with Connection(far.destination) as connection:
        for word in words:
            assert connection.run(["printf", "%s", word], 20).stdout == word.encode()


def test_what_takes_too_long_there_is_ended_and_makes_room_for_others(far: FarMachine) -> None:
    with Connection(far.destination) as connection:
        for _ in range(9):
            with pytest.raises(TrialError, match=r"took over 0\.2 s"):
                connection.run(["sleep", "1000"], 0.2)
        assert reach.await_that(lambda: far.left() == [])
        assert connection.run(["echo", "here"], 20).stdout == b"here\n"


def test_a_terminal_that_the_configuration_asks_for_is_not_had(far: FarMachine) -> None:
    (far.home / ".ssh" / "config").write_text("RequestTTY force\n")
    assert Ssh(far.destination).unreachable() is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ServerAliveInterval often", "line 1: Invalid ServerAliveInterval integer value: often"),
        ("IdentityFile ~/.ssh/other", ".ssh/other"),
    ],
)
def test_what_of_the_configuration_is_in_the_way_is_named(
    far: FarMachine, line: str, why: str
) -> None:
    (far.home / ".ssh" / "config").write_text(f"{line}\n")
    said = str(Ssh(replace(far.destination, netns=None)).unreachable())
    assert why in said
    assert "lost" not in said


def test_a_machine_that_starts_no_program_of_ours_is_found_out_before(far: FarMachine) -> None:
    assert Ssh(far.destination).unreachable() is None
    with mounted(far.temporary, "64k,noexec"):
        why = str(Ssh(far.destination).unreachable())
    assert f"starts no program below {far.temporary}" in why
    assert "noexec" in why
    assert far.left() == []


def test_a_machine_behind_another_is_refused_before(far: FarMachine) -> None:
    to = far.destination
    (far.home / ".ssh" / "config").write_text(
        f"Host through\n HostName {to.host}\n Port {PORT}\n User root\n"
        f" ProxyCommand ip netns exec {to.netns} nc.openbsd %h %p\n"
    )
    assert "ProxyJump or ProxyCommand" in str(Ssh(Destination("through")).unreachable())


def test_a_machine_that_is_not_there_says_so(site: Site, far: FarMachine) -> None:
    closed = replace(far.destination, port=PORT + 1)
    with pytest.raises(TrialError, match="refused"), Ssh(closed).enter(site):
        pass
    nobody = Destination("10.77.0.99", "root", PORT, far.destination.netns)
    with pytest.raises(TrialError, match="No route to host"), Ssh(nobody).enter(site):
        pass


def test_a_disk_that_is_full_there_says_so(site: Site, far: FarMachine) -> None:
    with Ssh(far.destination).enter(site) as inside:
        folder = Path(inside.host.folder)  # type: ignore[attr-defined]
        with (
            mounted(folder, "64k"),
            pytest.raises(TrialError, match=r"cannot put echo-udp on .*No space left"),
        ):
            inside.start([*SERVE, inside.address])


class mounted:  # noqa: N801 - reads as a verb
    """A tmpfs of a size at a folder."""

    def __init__(self, point: Path, size: str) -> None:
        self._mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tare-test", str(point)]
        self._umount = ["umount", "--lazy", str(point)]

    def __enter__(self) -> None:
        subprocess.run(self._mount, check=True)

    def __exit__(self, *_: object) -> None:
        subprocess.run(self._umount, check=True)


def test_a_connection_that_is_lost_in_mid_trial_is_an_error_and_the_far_side_cleans_itself(
    site: Site, far: FarMachine
) -> None:
    usual = site.hosts.client_ns
    entered = Ssh(far.destination).enter(site)
    with entered as inside, inside.start([*SERVE, inside.address]) as server:
        server.event(30)
        for pid in far.sessions():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TrialError, match="lost"):
            server.event(30)
        with pytest.raises(TrialError, match="lost"):
            server.account()
    assert site.hosts.client_ns == usual
    assert reach.await_that(lambda: far.left() == [])


def test_a_near_side_that_falls_silent_is_taken_for_dead(far: FarMachine) -> None:
    # Signs of life come each ten seconds: five of patience are over before, but not at the start.
    with Connection(far.destination) as connection, Folder(connection, silence_s=5) as folder:
        started = connection.start(["env", folder.mark, "sleep", "1000"])
        assert reach.await_that(lambda: far.left() == [])
        assert started.finished(30).code != 0


def test_a_machine_may_go_while_another_that_came_later_stays(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = (PROGRAMS, site.hosts.server_ns, site.hosts.server_ns)
    with ExitStack() as goes:
        for name in ("goes", "stays"):
            (tmp_path / name).mkdir()
        goes.enter_context(far_machine(tmp_path / "goes", *there, "127.0.0.1"))
        with far_machine(tmp_path / "stays", *there, "127.0.0.2") as stays:
            goes.close()
            monkeypatch.setenv("HOME", str(stays.home))
            monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
            with Connection(stays.destination) as connection:
                assert connection.start(["true"]).finished(30).code == 0


def test_a_limited_link_is_refused_since_it_is_not_ours(far: FarMachine, tmp_path: Path) -> None:
    with Registry(tmp_path / "leftovers") as registry, Hosts(registry, rate_bits_s=10**8) as hosts:
        site = Site(hosts, PROGRAMS, tmp_path, tmp_path, registry, Placement())
        with pytest.raises(TrialError, match="cannot be limited"), Ssh(far.destination).enter(site):
            pass


LIFE = """
import sys
from pathlib import Path
from tare.environments import Site
from tare.environments.ssh import Ssh
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement

root, programs, scratch = map(Path, sys.argv[1:4])
with Registry(root) as registry, Hosts(registry) as hosts:
    site = Site(hosts, programs, scratch, scratch, registry, Placement())
    with Ssh.parse(sys.argv[4]).enter(site) as inside:
        serve = ["echo/echo-udp", "serve", "--port", "7400", "--bind", inside.address]
        with inside.start(serve) as server:
            server.event(30)
            print("alive", flush=True)
            sys.stdin.read()
"""


def test_nothing_is_left_on_either_side_after_a_kill(far: FarMachine, tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    scratch.mkdir()
    argv = [
        sys.executable,
        "-c",
        LIFE,
        str(root),
        str(PROGRAMS),
        str(scratch),
        str(far.destination),
    ]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        assert life.stdout.readline() == b"alive\n"
        mark = f"{life.pid}:{start_time(life.pid)}"
        assert far.left() != []
        life.send_signal(signal.SIGKILL)
    runs = [path.name for path in root.glob("*") if path.is_dir()]
    clean(root)
    for run_id in runs:
        assert traces.of_run(run_id, mark) == []
    assert reach.await_that(lambda: far.left() == [])


FAR = "@10.77.0.2"
EXPERIMENT = """\
title: Here and there
factors: {{environment: [native, {far}], transport: [udp]}}
baseline: {{environment: native}}
family: none # so three blocks may do
blocks: {{min: 3, max: 3}}
session: {{requests: 300, warmup: 30, timeout: 1 s}}
"""


def test_a_machine_that_goes_away_in_mid_run_costs_its_own_cells_alone(
    far: FarMachine, tmp_path: Path
) -> None:
    level = environments.level(f"ssh {far.destination}")
    (tmp_path / "file.yaml").write_text(EXPERIMENT.format(far=level))
    argv = [sys.executable, "-m", "tare", "run", "file.yaml", "--json"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:

        def measured_there() -> bool:
            lines = [path.read_text() for path in tmp_path.glob("results/*/trials.ndjson")]
            return run.poll() is not None or any(FAR in text for text in lines)

        assert reach.await_that(measured_there, 60)
        for pid in (*far.sessions(), far.sshd.pid):
            os.kill(pid, signal.SIGKILL)
        said, _ = run.communicate(timeout=120)
    assert run.returncode == Exit.TRIALS_FAILED
    record = Record(tmp_path / json.loads(said)["result"])
    assert len(record.trials()) == 3 * len(record.plan.cells)
    here = [t for t in record.trials() if FAR not in t.cell]
    there = [t for t in record.trials() if FAR in t.cell]
    assert all(t.status == "ok" for t in here)
    assert there[0].status == "ok"
    assert there[0].facts["machine"] == str(far.destination)
    assert there[-1].status == "failed"
    assert there[-1].error is not None
    assert str(far.destination) in there[-1].error
    page = (tmp_path / json.loads(said)["report"]).read_text()
    assert level in page
    assert reach.await_that(lambda: far.left() == [])


def test_a_run_stops_where_a_name_leads_to_another_machine(
    far: FarMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = tmp_path / "machine-id"
    identity.write_text("one\n")
    monkeypatch.setitem(_FINGERPRINT, "host_id", str(identity))
    text = EXPERIMENT.format(far=environments.level(f"ssh {far.destination}"))
    made = plan.make(experiment.parse(text, "x"), seed=1)
    record = Record.create(tmp_path / "r", text, made, machine.fingerprint(PROGRAMS))

    def another(progress: Progress) -> None:
        if progress.block == 1:
            identity.write_text("two\n")

    with pytest.raises(TareError, match="is another machine than its trials on record"):
        runner.run(record, PROGRAMS, tmp_path, another)
    assert {t.block for t in record.trials() if FAR in t.cell} == {0}
    identity.write_text("one\n")
    assert runner.run(record, PROGRAMS, tmp_path).failed == 0
