"""What tests on the real machine need, beside their fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "build"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
