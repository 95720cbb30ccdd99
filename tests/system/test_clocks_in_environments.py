"""The instrument calibrated for real."""

from __future__ import annotations

import pytest

from needs import needs_root
from tare import clocks
from tare.environments import Environment, Site
from tare.environments.container import Container
from tare.environments.native import Native

pytestmark = [pytest.mark.system, needs_root]


@pytest.mark.parametrize("environment", [Native(), Container()], ids=["native", "container"])
def test_both_sides_are_measured_and_the_floor_is_the_coarsest(
    tidy_site: Site, environment: Environment
) -> None:
    with environment.enter(tidy_site) as inside:
        found = clocks.calibrate(tidy_site, inside)
    for side in (found.client, found.inside):
        assert side.read_ns > 0
        assert side.resolution_ns > 0
        assert side.timer_late_ns > side.read_ns
    # From the end of one reading of the clock to that of another, with a response of nothing.
    assert found.client.null_response_ns > found.client.read_ns
    assert found.floor_ns >= max(found.client.null_response_ns, found.inside.read_ns)
