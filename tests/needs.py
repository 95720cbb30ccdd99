"""What tests on the real machine need, beside their fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "build"

HEARING = ("env", "--default-signal=INT,TERM,HUP")
"""What to put before a program that is to hear signals: under nohup, or in the background of a
shell without jobs, it would inherit that they are ignored."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
