"""The ways to migrate that are compared: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal["peer", "image"]
"""What the destination may take pages from: the memory of its own guest, the base image."""


@dataclass(frozen=True)
class Arm:
    """One way to migrate.

    Attributes:
        help: what is special about it.
        capabilities: of QEMU at both ends, beside `return-path` and `events`.
        parameters: of QEMU at both ends.
        send, receive: options of the proxies; None where there are none.
        sources: what the receiver indexes.
        ksm: whether KSM merges pages on the hosts first, and the sender is told.
        returning: whether the guest has been at the destination before and left a copy there.
        differing: whether its home kept a copy too as it came back, for differences to that.
    """

    name: str
    help: str
    capabilities: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    send: tuple[str, ...] | None = None
    receive: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ("peer",)
    ksm: bool = False
    returning: bool = False
    differing: bool = False

    @property
    def proxied(self) -> bool:
        """Whether pageshare is in between."""
        return self.send is not None


_TWO_CHANNELS = {"multifd-channels": 2}
_ZSTD = {**_TWO_CHANNELS, "multifd-compression": "zstd", "multifd-zstd-level": 1}

ARMS = (
    Arm("plain", "QEMU's pre-copy, one connection"),
    Arm(
        "xbzrle",
        "pre-copy that sends only what changed of a page that was sent before",
        capabilities=("xbzrle",),
        parameters={"xbzrle-cache-size": 256 << 20},
    ),
    Arm("multifd", "two channels", capabilities=("multifd",), parameters=_TWO_CHANNELS),
    Arm(
        "multifd+zstd", "two channels, compressed", capabilities=("multifd",), parameters=_ZSTD
    ),
    Arm(
        "references",
        "pageshare that sends references and does not compress",
        send=("--ask", "always", "--compress", "never"),
    ),
    Arm(
        "zstd",
        "pageshare that compresses and asks for nothing",
        send=("--ask", "never", "--compress", "always"),
    ),
    Arm("pageshare", "pageshare as it comes: asks and compresses while it pays", send=()),
    Arm(
        "all",
        "pageshare that asks for every page",
        send=("--ask", "always", "--compress", "always"),
    ),
    Arm(
        "ksm",
        "pageshare that asks for the pages that KSM has merged, as the paper does",
        send=("--ask", "always", "--compress", "always", "--candidates", "ksm"),
        ksm=True,
    ),
    Arm(
        "all beside ksm",
        "pageshare that asks for every page while KSM runs, and counts what its verdict is worth",
        send=("--ask", "always", "--compress", "always", "--candidates", "all"),
        ksm=True,
    ),
    Arm(
        "ksm at once",
        "the same, referring to those pages without waiting for the answer",
        send=("--ask", "always", "--compress", "always", "--candidates", "ksm", "--at-once"),
        ksm=True,
    ),
    Arm(
        "base image",
        "pageshare whose receiver has the base image indexed too",
        send=(),
        sources=("peer", "image"),
    ),
    Arm(
        "return trip",
        "pageshare back to a host that the guest has left, where it left a copy",
        send=(),
        returning=True,
    ),
    Arm(
        "return by difference",
        "the same, where what has changed since goes as the difference from a copy at home",
        send=(),
        returning=True,
        differing=True,
    ),
    Arm(
        "no delta",
        "pageshare that sends pages which have changed since they were sent whole again",
        send=("--delta-cache", "0"),
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Arm] = {arm.name: arm for arm in ARMS}
