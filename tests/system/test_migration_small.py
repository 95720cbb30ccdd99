"""Real migrations between two hosts of this machine, with guests that boot in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import PROGRAMS, needs_root
from tare.environments import Site
from tare.errors import TrialError
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.workloads import Measurement
from tare.workloads.migration.proxies import program
from tare.workloads.migration.rows import MigrationLevels, MigrationSettings
from tare.workloads.migration.testbed import InsideTestbed, Testbed
from tare.workloads.migration.workload import MigrationBench

CACHE = PROGRAMS / "test-cache"
LEVELS = MigrationLevels.defaults().but(testbed="tiny", guest="idle", memory="128 MiB")
SESSION = MigrationSettings({"warmup": "1 ms", "settle": "1 ms"})

pytestmark = [pytest.mark.system, needs_root]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("migration")
    scratch = root / ("scratch" * 16)  # no socket could be named by its whole path
    scratch.mkdir()
    with Registry(root / "leftovers") as registry_, Hosts(registry_) as hosts:
        yield Site(
            hosts=hosts,
            programs=PROGRAMS,
            scratch=scratch,
            cache=CACHE,
            leftovers=registry_,
        )


@pytest.fixture(scope="module")
def inside(site: Site) -> Iterator[InsideTestbed]:
    with Testbed(LEVELS).enter(site) as entered:
        yield entered


def migrate(site: Site, inside: InsideTestbed, arm: str, **levels: str) -> Measurement:
    return MigrationBench(site, inside, SESSION).measure(LEVELS.but(arm=arm, **levels))


def test_what_the_destination_has_does_not_cross_the_wire(
    site: Site, inside: InsideTestbed
) -> None:
    plain = migrate(site, inside, "plain")
    shared = migrate(site, inside, "all")
    # 16 of 32 MiB of data are alike, and so is the kernel.
    assert shared.values["wire"] < 0.75 * plain.values["wire"]
    assert plain.values["wire"] > 32 << 20
    sent = shared.settings["proxies"]["send"]
    received = shared.settings["proxies"]["receive"]
    assert sent["pages_referenced"] > (16 << 20) // 4096
    assert sent["stream_bytes"] == received["stream_bytes"]
    # Ethernet, IP and TCP lie around what the proxies sent, and nothing else travels there.
    assert sent["wire_sent"] < shared.values["wire"] < 1.05 * sent["wire_sent"] + 65536
    for measured in (plain, shared):
        parts = ("setup", "first_pass", "further_passes", "rest")
        spent = sum(measured.values.get(part, 0) for part in parts)
        assert spent == measured.values["time"]
        assert measured.values["cpu"] > 0
    assert plain.settings["wire"]["bits_s"] == 10**9
    assert plain.settings["wire"]["burst_bytes"] == 25_000
    assert plain.settings["wire"]["measured_bits_s"] > 0
    assert plain.settings["cpu_ns"].keys() == {"source", "destination"}


def test_compression_of_qemus_own_is_seen_on_the_wire_and_does_not_last(
    site: Site, inside: InsideTestbed
) -> None:
    zstd = migrate(site, inside, "multifd+zstd")
    plain = migrate(site, inside, "plain")
    assert zstd.values["wire"] < plain.values["wire"]


@pytest.mark.parametrize("arm", ["plain", "multifd+zstd", "pageshare"])
def test_a_guest_migrates_at_a_distance_and_with_losses_as_it_does_next_door(
    site: Site, inside: InsideTestbed, arm: str
) -> None:
    far = migrate(site, inside, arm, round_trip="20 ms", loss="0.1 %")
    near = migrate(site, inside, arm)
    # A connection, the order and the last pass take a round trip each at least.
    assert far.values["time"] > 3 * 20e6
    wire = far.settings["wire"]
    assert (wire["round_trip_ns"], wire["loss"]) == (20_000_000, 0.001)
    assert wire["measured_round_trip_ns"] >= 20_000_000
    assert wire["measured_bits_s"] > 0
    assert wire["relay_ns_per_byte"] > 0
    assert wire["forth"]["overflowed_frames"] == wire["forth"]["refused_frames"] == 0
    # The counter of the source's end is read a moment before the relay is asked.
    assert far.values["wire"] <= wire["forth"]["bytes"] < 1.01 * far.values["wire"] + 65536
    # No more went than next door, but for what was lost and sent again. What pageshare spares
    # follows what a processor has time for, of which a busy one has not the same twice.
    most = 2 if arm == "pageshare" else 1.2
    assert far.values["wire"] < most * near.values["wire"]
    assert "forth" not in near.settings["wire"]


def test_a_migration_that_fails_is_no_measurement_and_the_guest_runs_on(
    site: Site, inside: InsideTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tare.workloads.migration.workload.travel",
        lambda *_: (_ for _ in ()).throw(TrialError("cut")),
    )
    with pytest.raises(TrialError, match="cut"):
        migrate(site, inside, "all")
    monkeypatch.undo()
    assert inside.bed.home.ask("query-status")["status"] == "running"
    assert migrate(site, inside, "plain").values["time"] > 0


def test_the_record_names_the_guests(inside: InsideTestbed) -> None:
    assert inside.facts["accelerator"] in ("kvm", "tcg")
    assert inside.bed.blueprint.hypervisor.sound_under(inside.facts["accelerator"])
    for guest in (inside.bed.home, inside.bed.peer):
        found = guest.ask("query-version")["qemu"]
        assert inside.facts["qemu"] == "{major}.{minor}.{micro}".format_map(found)
    assert program(PROGRAMS).exists()


def test_a_setting_of_ksm_is_set_back(site: Site) -> None:
    setting = Path("/sys/kernel/mm/ksm/pages_to_scan")
    if not setting.exists():
        pytest.skip("this kernel has no KSM")
    before = setting.read_text()
    with site.leftovers.owing("ksm", setting.name, before.strip()):
        setting.write_text("77")
    assert setting.read_text() == before
