"""Puts into the wheel what a checkout has beside `src/`: native programs and experiments."""

from __future__ import annotations

import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Shipped(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook; `packaging/pack` says where they are staged."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is staged, and say of which machine it is; a checkout needs neither."""
        if version == "editable":
            return
        staged = os.environ.get("TARE_STAGED")
        if staged is None:
            message = "a wheel needs the native programs beside it: `make packages` makes both"
            raise ValueError(message)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][f"{staged}/shipped"] = "tare/shipped"
        build_data["sbom_files"].append(f"{staged}/tare-lab.cdx.json")
