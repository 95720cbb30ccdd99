"""A wire between two hosts: what crosses it is counted, its limit stands, nothing is left."""

from __future__ import annotations

import pytest

from needs import needs_root
from tare.command import Command
from tare.leftovers import Registry
from tare.process import run
from tare.wire import Wire

pytestmark = [pytest.mark.system, needs_root]


def test_what_crosses_is_counted_in_both_directions(registry: Registry) -> None:
    with Wire(registry, None) as wire:
        before = wire.traffic()
        rate = wire.measured_rate()
        crossed = wire.traffic().since(before)
    assert rate > 0
    assert crossed.forth > crossed.back > 0


def test_both_ends_are_limited_with_the_burst_that_is_recorded(registry: Registry) -> None:
    with Wire(registry, 10**9) as wire:
        assert wire.burst_bytes == 25_000
        for namespace in (wire.source_ns, wire.destination_ns):
            shown = ("tc", "class", "show", "dev", "wire0")
            said = run(Command(shown, netns=namespace), 20).stdout
            assert "rate 1Gbit" in said
            assert "burst 25000b" in said


def test_without_a_limit_nothing_is_shaped(registry: Registry) -> None:
    with Wire(registry, None) as wire:
        shown = ("tc", "class", "show", "dev", "wire0")
        assert run(Command(shown, netns=wire.source_ns), 20).stdout == ""
        assert wire.burst_bytes is None


def test_a_limit_can_be_changed_and_taken_away(registry: Registry) -> None:
    shown = ("tc", "class", "show", "dev", "wire0")
    with Wire(registry, 10**9) as wire:
        wire.limit(10**10)
        assert "rate 10Gbit" in run(Command(shown, netns=wire.destination_ns), 20).stdout
        wire.limit(None)
        assert run(Command(shown, netns=wire.source_ns), 20).stdout == ""
