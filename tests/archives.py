"""Images of the user's own, made for tests."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

Entry = tuple[str, str, bytes | str]
"""Name; file, folder, link, hard link, device; content or target."""

KINDS = {
    "file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE, "device": tarfile.BLKTYPE,
}  # fmt: skip


def layer(*entries: Entry) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, held in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode = KINDS[kind], 0o755
            member.uid, member.gid = 12, 34
            content = b"" if isinstance(held, str) else held
            member.linkname = held if isinstance(held, str) else ""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def config_of(layers: tuple[bytes, ...]) -> bytes:
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in layers]
    return json.dumps({"rootfs": {"type": "layers", "diff_ids": digests}}).encode()


def docker_archive(path: Path, *layers: bytes) -> str:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["it:1"], "Layers": names}]
    parts = {"manifest.json": json.dumps(manifest).encode(), "config.json": config_of(layers)}
    parts |= dict(zip(names, layers, strict=True))
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)
