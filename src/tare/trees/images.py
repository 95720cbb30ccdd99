"""A root of the user's own: a folder, or an image unpacked once into the cache.

Two forms of images are read: what `docker save` and `podman save` write (an archive with
`manifest.json`), and an OCI layout, `oci:FOLDER[:TAG]`. Both name a configuration, whose SHA-256
identifies the image, and which has the SHA-256 of each layer; a layer that differs is refused.

A layer is bytes of a stranger, unpacked by root. So no name that leads upwards is taken, nothing is
written through a link, links and hard links are resolved as they would be with the image for the
root, and no device, pipe or socket is made. Owners and modes are kept; set-user-ID bits are not
honoured in a tree.

Source: the OCI image specification 1.1, `image-layout.md`, `manifest.md`, `layer.md`; the "Docker
Image Specification v1.2.0".
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import shutil
import tarfile
import zlib
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from tare import rootless
from tare.errors import TrialError, UsageError, remedy_of
from tare.guests.cache import workspace
from tare.tree import Tree
from tare.trees.allowed import allowed
from tare.trees.walk import walked

_OCI = "oci:"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MOST_BYTES_OF_JSON = 16 << 20
_CHUNK = 1 << 20


class _Store(Protocol):
    """Where the parts of an image are."""

    def open(self, name: str) -> IO[bytes]:
        """Open a part for reading."""
        ...


def root_of(tree: Tree, cache: Path) -> Path:
    """Return the folder that is a tree's root, unpacked if it is an image.

    Args:
        tree: whose root may be a folder, an archive, or `oci:FOLDER[:TAG]`; what is not absolute
            begins at `tree.cwd`.
        cache: where images are unpacked; each lies there once.

    Raises:
        UsageError: it is no image, or one that is refused.
        TrialError: its user may not read it, or there is no room for it.
    """
    written = str(tree.root)
    layout, tag = _layout(written.removeprefix(_OCI)) if written.startswith(_OCI) else (None, "")
    path = Path(tree.cwd, layout or tree.root)
    _check_readable(tree, path / "index.json" if layout else path)
    if layout is None and path.is_dir():
        return path
    try:
        with ExitStack() as stack:
            store: _Store
            if layout is not None:
                store = _Folder(path)
                config, layers = _of_layout(store, tag, written)
            else:
                store = _Archive(stack.enter_context(tarfile.open(path)))
                config, layers = _of_archive(store, written)
            return _unpacked(written, config, layers, store, cache / "roots")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        # tarfile tells on further lines what each decompressor said.
        why = str(error).partition(":\n")[0]
        raise UsageError(f"{written} is no image that can be read: {why}", _FORMS) from error
    except _NO_DESCRIPTION as error:
        why = f"{written} is no image: its description is not what one has ({error!r})"
        raise UsageError(why, _FORMS) from error
    except OSError as error:
        what = f"cannot unpack {written} below {cache}: {error}"
        raise TrialError(what, remedy_of(error)) from error


_NO_DESCRIPTION = (
    KeyError, TypeError, ValueError, RecursionError, OverflowError, IndexError, AttributeError,
)  # fmt: skip
_FORMS = "name a folder, an archive of `docker save`, or `oci:FOLDER:TAG`"


def _check_readable(tree: Tree, path: Path) -> None:
    """See that the tree's user may look there: root may anywhere."""
    may_enter = ("-a", "-x", str(path)) if path.is_dir() else ()
    if not path.exists():
        raise UsageError(f"there is no {path}", _FORMS)
    if not allowed(tree.user, "-r", str(path), *may_enter):
        raise TrialError(f"user {tree.user.uid} may not read {path}", "name another")


def _layout(written: str) -> tuple[str, str]:
    """Split FOLDER[:TAG]: a folder may have colons in its name, a tag has no slashes."""
    folder, colon, tag = written.rpartition(":")
    return (folder, tag) if colon and "/" not in tag else (written, "")


class _Folder:
    """The blobs of a layout."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str) -> IO[bytes]:
        return (self._path / name).open("rb")


class _Archive:
    """The members of an archive."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def open(self, name: str) -> IO[bytes]:
        found = self._archive.extractfile(name)
        if found is None:
            raise ValueError(f"{name} is no file")
        return found


def _of_archive(store: _Store, written: str) -> tuple[bytes, list[str]]:
    """Configuration, and names of the layers, the lowest first."""
    images = json.loads(_read(store, "manifest.json"))
    if len(images) != 1:
        raise UsageError(f"{written} holds {len(images)} images", "save one of them alone")
    return _read(store, str(images[0]["Config"])), [str(name) for name in images[0]["Layers"]]


def _of_layout(store: _Store, tag: str, written: str) -> tuple[bytes, list[str]]:
    """The same, of a layout."""
    chosen = json.loads(_read(store, "index.json"))
    while "manifests" in chosen:
        found = [m for m in chosen["manifests"] if _is_wanted(m, tag)]
        if len(found) != 1:
            raise UsageError(
                f"{written} holds {len(found)} images{f' of the tag {tag}' if tag else ''} for"
                f" {platform.machine()}",
                "name one by its tag: `oci:FOLDER:TAG`",
            )
        chosen, tag = json.loads(_read(store, _blob(found[0]))), ""
    return _read(store, _blob(chosen["config"])), [_blob(layer) for layer in chosen["layers"]]


def _is_wanted(manifest: Any, tag: str) -> bool:
    named = manifest.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
    made_for = manifest.get("platform", {}).get("architecture")
    return (not tag or named == tag) and made_for in (None, _MACHINES.get(platform.machine()))


def _blob(described: Any) -> str:
    algorithm, _, digest = str(described["digest"]).partition(":")
    if algorithm != "sha256" or not digest.isalnum():
        raise ValueError(f"{described['digest']!r} is no digest")
    return f"blobs/sha256/{digest}"


def _read(store: _Store, name: str) -> bytes:
    with store.open(name) as file:
        found = file.read(_MOST_BYTES_OF_JSON)
    if name.startswith("blobs/sha256/") and hashlib.sha256(found).hexdigest() != name[13:]:
        raise ValueError(f"{name} is not what its name says")
    return found


def _unpacked(written: str, config: bytes, layers: list[str], store: _Store, cache: Path) -> Path:
    """Unpack the layers into a folder that is named after the image, unless it is there."""
    target = cache / hashlib.sha256(config).hexdigest()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)  # what one user's image has is not others'
    if target.is_dir():
        return target
    digests = json.loads(config)["rootfs"]["diff_ids"]
    with workspace(cache) as scratch:
        root = scratch / "root"
        root.mkdir(mode=0o755)
        for layer, wanted in zip(layers, digests, strict=True):
            with store.open(layer) as compressed:
                stream = _Hashed(_plain(compressed))
                _apply(stream, root, written)
                if stream.digest() != wanted:
                    raise ValueError(f"the layer {layer} is not what the image says")
        try:
            root.rename(target)
        except OSError:
            if not target.is_dir():  # who comes second finds the same
                raise
    return target


def _plain(file: IO[bytes]) -> IO[bytes]:
    begins = file.read(len(_ZSTD))
    file.seek(0)
    if begins == _ZSTD:
        raise UsageError(
            "layers compressed by zstd are not read", "have them as gzip: `skopeo copy` does it"
        )
    return gzip.GzipFile(fileobj=file) if begins.startswith(_GZIP) else file  # type: ignore[return-value]


class _Hashed:
    """A stream, and the SHA-256 of all of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        self._hash.update(found)
        return found

    def digest(self) -> str:
        """Read the rest, and return it as an image has it."""
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


def _apply(stream: _Hashed, root: Path, written: str) -> None:
    """Unpack one layer over those below it."""
    made: set[Path] = set()
    with tarfile.open(fileobj=stream, mode="r|") as layer:  # type: ignore[call-overload]
        for member in layer:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise UsageError(f"{written} would write to {member.name!r}, outside of itself")
            if not name.parts:
                _own(root, member)
                continue
            folder = _within(root, name.parent)
            if name.name == _OPAQUE:
                _empty(folder, made)
            elif name.name.startswith(_WHITEOUT):
                hidden = name.name.removeprefix(_WHITEOUT)
                if hidden in ("", ".", ".."):
                    raise ValueError(f"{member.name} hides nothing that can be hidden")
                _remove(folder / hidden)
            else:
                path = folder / name.name
                _unpack(layer, member, path, root)
                made.add(path)


def _unpack(layer: tarfile.TarFile, member: tarfile.TarInfo, path: Path, root: Path) -> None:
    if member.isdir():
        if path.is_symlink() or not path.is_dir():
            _remove(path)
            path.mkdir()
    elif member.isreg():
        _remove(path)
        content = layer.extractfile(member)
        assert content is not None
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _CHUNK)
    elif member.issym():
        _remove(path)
        path.symlink_to(member.linkname)
    elif member.islnk():
        name = PurePosixPath(member.linkname.lstrip("/"))
        if ".." in name.parts or not name.parts:
            raise ValueError(f"{member.name} is a link to {member.linkname}")
        target = _within(root, name.parent) / name.name
        if target.is_symlink() or not target.is_file():
            raise ValueError(f"{member.name} is a link to {member.linkname}, which is no file")
        if target != path:
            _remove(path)
            path.hardlink_to(target)
        return
    else:  # a device, a pipe, a socket: none is made
        return
    _own(path, member)


def _own(path: Path, member: tarfile.TarInfo) -> None:
    if not rootless.is_on():  # which knows one user alone
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not path.is_symlink():
        path.chmod(member.mode & 0o7777)
    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _within(root: Path, folder: PurePosixPath) -> Path:
    """Find a folder of an image, its links as they are with the image for the root; make it."""

    def see(here: Path) -> None:
        if not here.is_symlink() and not here.is_dir():
            _remove(here)
            here.mkdir()

    return walked(root, folder, see)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _empty(folder: Path, made: set[Path]) -> None:
    """Hide what lower layers have there, and not what this one has put there already."""
    for path in folder.iterdir():
        if path not in made and not any(kept.is_relative_to(path) for kept in made):
            _remove(path)
