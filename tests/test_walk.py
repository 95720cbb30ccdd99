"""Paths in a stranger's folder: they end in it."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.trees import walk

NAMES = st.sampled_from(["a", "b", "c", ".."])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
TARGETS = st.tuples(st.sampled_from(["", "/"]), PATHS).map("".join)


@given(links=st.dictionaries(st.sampled_from(["a", "b", "c/a", "c/b"]), TARGETS), path=TARGETS)
def test_no_path_ends_outside_or_at_a_link(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], path: str
) -> None:
    root = tmp_path_factory.mktemp("outside") / "root"
    (root / "c").mkdir(parents=True)
    for name, target in links.items():
        (root / name).symlink_to(target)
    before = sorted(root.parent.iterdir())
    try:
        found = walk.walked(root, PurePath(path))
        os.close(walk.opened(root, PurePath(path)))
    except ValueError:  # round in links
        return
    assert found.resolve() == found
    assert found.is_relative_to(root)
    assert found.is_dir()
    assert sorted(root.parent.iterdir()) == before


def test_what_became_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "way", outside):
        folder.mkdir(parents=True)
    found = walk.walked

    def exchanged(*asked: PurePath) -> Path:
        there = found(*asked)  # type: ignore[arg-type]
        if not (root / "way").is_symlink():
            (root / "way").rmdir()
            (root / "way").symlink_to(outside)
        return there

    monkeypatch.setattr(walk, "walked", exchanged)
    with pytest.raises(OSError, match="Not a directory"):
        walk.opened(root, PurePath("/way/new"))
    assert list(outside.iterdir()) == []


def test_what_is_made_may_be_entered_whatever_is_masked(tmp_path: Path) -> None:
    masked = os.umask(0o077)
    try:
        os.close(walk.opened(tmp_path, PurePath("/a/b/file"), file=True))
    finally:
        os.umask(masked)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/file")]
    assert modes == [0o755, 0o755, 0o644]
