"""What the claim on kill -9 counts as left behind: it must see what is there."""

import json
import os
import subprocess
import sys

from claims.crash import _left, _runs_of
from tare import leftovers


def test_a_process_and_a_list_of_a_killed_run_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "ROOT", tmp_path)
    mark, run = "4194305:1", "no-such-run"  # above the largest pid that Linux gives
    assert _runs_of(mark) == set()
    assert _left({mark}, {run}) == 0
    (tmp_path / run).mkdir()
    (tmp_path / run / "owner").write_text(json.dumps({"boot": "b", "mark": mark}))
    assert _runs_of(mark) == {run}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, "TARE_OWNER": mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as survivor:  # fmt: skip
        assert survivor.stdout is not None
        survivor.stdout.readline()
        assert _left({mark}, {run}) == 2
        survivor.communicate(b"\n", timeout=30)
    assert _left({mark}, {run}) == 1
