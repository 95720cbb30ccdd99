"""Images of the user's own: what they hold is unpacked, and nothing gets out of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archives import Entry, config_of, docker_archive, layer
from needs import needs_root
from tare.errors import TareError, TrialError, UsageError
from tare.tree import Tree, User
from tare.trees.images import root_of

pytestmark = needs_root


def oci_layout(folder: Path, *layers: bytes) -> str:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}"}

    stored = [put(gzip.compress(content)) for content in layers]
    manifest = put(json.dumps({"config": put(config_of(layers)), "layers": stored}).encode())
    tagged = {**manifest, "annotations": {"org.opencontainers.image.ref.name": "1"}}
    other = {**manifest, "platform": {"architecture": "s390x"}}
    (folder / "index.json").write_text(json.dumps({"manifests": [tagged, other]}))
    return f"oci:{folder}:1"


FORMS = [docker_archive, oci_layout]


def unpacked(written: str, cache: Path, uid: int = 0) -> Path:
    return root_of(Tree(Path(written), "/", User(uid, uid)), cache)


@pytest.mark.parametrize("form", FORMS)
def test_layers_lie_over_each_other_and_hide_what_they_say(
    form: Callable[..., str], tmp_path: Path
) -> None:
    written = form(
        tmp_path / "image",
        layer(
            ("usr", "folder", b""), ("lib", "link", "/usr/lib"), ("usr/lib", "folder", b""),
            ("usr/lib/a", "file", b"first"), ("gone", "file", b""), ("full/old", "file", b""),
            ("becomes a folder", "file", b""), ("dev/disk", "device", b""),
        ),
        layer(
            ("lib/b", "file", b"through the link"), ("usr/lib/a", "file", b"second"),
            ("same", "hard link", "usr/lib/a"), (".wh.gone", "file", b""),
            ("full/new", "file", b""), ("full/.wh..wh..opq", "file", b""),
            ("becomes a folder/x", "file", b""), ("/".join(["up", "out"]), "link", "../../.."),
        ),
    )  # fmt: skip
    root = unpacked(written, tmp_path / "cache")
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert found == [
        "becomes a folder", "becomes a folder/x", "dev", "full", "full/new", "lib", "same", "up",
        "up/out", "usr", "usr/lib", "usr/lib/a", "usr/lib/b",
    ]  # fmt: skip
    assert (root / "usr/lib/b").read_bytes() == b"through the link"
    assert (root / "usr/lib/a").read_bytes() == b"second"
    assert (root / "same").stat().st_ino == (root / "usr/lib/a").stat().st_ino
    assert ((root / "usr/lib/a").stat().st_uid, (root / "usr/lib/a").stat().st_gid) == (12, 34)
    assert unpacked(written, tmp_path / "cache") == root


HOSTILE: list[tuple[str, list[Entry]]] = [
    ("would write to '../out'", [("../out", "file", b"x")]),
    ("would write to 'a/../../out'", [("a/../../out", "file", b"x")]),
    ("would write to '/etc/out'", [("/etc/out", "file", b"x")]),
    ("a/.wh... hides nothing that can be", [("a/.wh...", "file", b"")]),
    ("x is a link to ../../../../etc/", [("x", "hard link", "../../../../etc/passwd")]),
    ("/no/such, which is no file", [("x", "hard link", "/no/such")]),
    ("goes round", [("a", "link", "b"), ("b", "link", "a"), ("a/x", "file", b"")]),
]


@pytest.mark.parametrize(("says", "entries"), HOSTILE)
def test_a_layer_that_would_reach_outside_is_refused(
    says: str, entries: list[Entry], tmp_path: Path
) -> None:
    written = docker_archive(tmp_path / "image", layer(*entries))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=re.escape(says)):
        unpacked(written, tmp_path / "cache")
    assert sorted(tmp_path.iterdir()) == [*sorted([*before, tmp_path / "cache"])]
    assert list((tmp_path / "cache").rglob("*")) == [tmp_path / "cache" / "roots"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"as it was")
    written = docker_archive(
        tmp_path / "image",
        layer(("way", "link", str(outside)), ("to", "link", str(outside / "file"))),
        layer(("way/new", "file", b"x"), ("to", "file", b"x"), ("way/.wh.file", "file", b"")),
    )
    root = unpacked(written, tmp_path / "cache")
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"as it was"
    assert (root / str(outside)[1:] / "new").read_bytes() == b"x"


def test_a_layer_that_is_not_what_the_image_says_is_refused(tmp_path: Path) -> None:
    written = oci_layout(tmp_path / "image", layer(("a", "file", b"x")))
    for blob in (tmp_path / "image/blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(gzip.compress(layer(("a", "file", b"y"))))
    with pytest.raises(UsageError, match="not what the image says"):
        unpacked(written, tmp_path / "cache")


def test_what_the_user_may_not_read_is_not_unpacked(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder, cache = Path(made), tmp_path / "cache"
        folder.chmod(0o755)  # unlike pytest's own
        written = Path(docker_archive(folder / "image", layer(("a", "file", b"x"))))
        (folder / "below").mkdir()
        for path, kept, open_to_all in ((written, 0o600, 0o644), (folder / "below", 0o700, 0o755)):
            path.chmod(kept)
            with pytest.raises(TrialError, match="may not read"):
                unpacked(str(path), cache, uid=4321)
            path.chmod(open_to_all)
            assert unpacked(str(path), cache, uid=4321).is_dir()


def test_what_is_no_image_is_said_to_be_none(tmp_path: Path) -> None:
    for written in (str(tmp_path / "gone"), f"oci:{tmp_path}/gone:1", "/etc/passwd"):
        with pytest.raises(UsageError, match=r"no /|no image") as refused:
            unpacked(written, tmp_path / "cache")
        assert "\n" not in str(refused.value)
    image = Path(docker_archive(tmp_path / "whole", layer(("a", "file", b"x"))))
    (tmp_path / "file").touch()
    with pytest.raises(TrialError, match="cannot unpack") as failed:
        unpacked(str(image), tmp_path / "file")
    assert failed.value.remedy != "make room"
    image = oci_layout(tmp_path / "image", layer(("a", "file", b"x")))
    with pytest.raises(UsageError, match="0 images of the tag 2"):
        unpacked(image.removesuffix("1") + "2", tmp_path / "cache")


@given(st.data())
def test_no_bytes_do_worse_than_an_error_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("image")
    path = folder / "image"
    docker_archive(path, layer(("a", "file", b"x"), ("b", "link", "a")))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        root = unpacked(str(path), folder / "cache")
    except TareError:
        return
    assert root.is_dir()
    assert sorted(path.name for path in folder.iterdir()) == ["cache", "image"]
