"""A run that would mix two machines, or two accelerators, in one cell stops."""

from __future__ import annotations

import pytest

from tare.environments import Facts
from tare.errors import TareError
from tare.unmixed import Unmixed

FAR = {"environment": "ssh me@rack"}
FIRST = {
    "kernel": "6.1",
    "processor": "N100",
    "host_processors": "0-3",
    "host_memory": "16303428 kB",
}


def facts(**told: str) -> Facts:
    return Facts.model_validate({**FIRST, **told})


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"host_id": "b"}, "identity .* b and not a"),
        ({"kernel": "6.12"}, "kernel 6.12 and not 6.1"),
        ({"processor": "N305"}, "processor N305 and not N100"),
        ({"host_processors": "0-7"}, "processors 0-7 and not 0-3"),
        ({"host_memory": "8151714 kB"}, "memory 8151714 kB and not 16303428 kB"),
    ],
)
def test_a_name_that_leads_to_another_machine_than_before_is_refused(
    other: dict[str, str], said: str
) -> None:
    found = Unmixed()
    found.keep(FAR, facts(host_id="a"))
    found.keep(FAR, facts(host_id="b"))  # the first is what counts
    found.refuse_other("ssh", FAR, facts(host_id="a", host_clock_source="hpet"))
    found.refuse_other("ssh", FAR, facts(host_id="a", host_memory="16040000 kB"))  # ballooned
    found.refuse_other("ssh", {"environment": "ssh me@other"}, facts(host_id="b"))
    with pytest.raises(TareError, match=f"ssh me@rack is another machine .*{said}"):
        found.refuse_other("ssh", FAR, facts(**{"host_id": "a", **other}))


def test_what_an_earlier_version_did_not_tell_of_a_machine_is_not_compared() -> None:
    found = Unmixed()
    found.keep(FAR, facts())
    found.refuse_other("ssh", FAR, facts(host_id="a"))


def test_a_guest_under_another_accelerator_is_refused() -> None:
    found, guest = Unmixed(), {"environment": "qemu", "accelerator": "auto"}
    found.keep(guest, facts(accelerator="kvm"))
    found.refuse_other("qemu", {**guest, "accelerator": "tcg"}, facts(accelerator="tcg"))
    with pytest.raises(TareError, match="runs under TCG now, and its trials on record"):
        found.refuse_other("qemu", guest, facts(accelerator="tcg"))
