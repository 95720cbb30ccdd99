"""What of root's rights each thing needs; docs/guides/privileges.md is the table.

Source: capabilities(7), linux/capability.h.
"""

from __future__ import annotations

import re
from pathlib import Path

_NUMBERS = {
    "dac_override": 1, "setgid": 6, "setuid": 7, "setpcap": 8, "net_admin": 12,
    "net_raw": 13, "sys_chroot": 18, "sys_ptrace": 19, "sys_admin": 21, "sys_nice": 23, "mknod": 27,
}  # fmt: skip

RUN = ("net_admin", "sys_admin")
REAL_TIME = ("sys_nice",)
CONTAINER = ("dac_override", "setgid", "sys_chroot", "sys_nice", "sys_ptrace")
COMMAND = ("dac_override", "mknod", "setgid", "setpcap", "sys_chroot")
"""Beside, `ANOTHER`, where the command is not root's."""
ANOTHER = ("setuid",)
REMEDY = "give it those too (docs/guides/privileges.md), or start it as root without a limit"


def lacking(*names: str) -> str | None:
    """Say in words which of some capabilities this process has not; None where it has all.

    Args:
        names: as setpriv has them.
    """
    held = re.search(
        r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE
    )
    mask = int(held[1], 16) if held else 0
    absent = [f"CAP_{name.upper()}" for name in names if not mask >> _NUMBERS[name] & 1]
    return f"this process lacks {', '.join(absent)}" if absent else None
