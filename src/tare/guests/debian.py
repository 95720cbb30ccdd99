"""An ordinary Debian as a guest: its disk, kernel and initrd, made once and kept in the cache.

Several guests boot from the one disk, each with a layer of its own above it. The image is named
after the recipe: suite, packages and the scripts that make it. A recipe is built once, with the
packages' versions of that day, which stand in `packages` beside it; to have newer ones, remove it
from the cache.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from tare import process
from tare.command import Command, missing_packages
from tare.errors import UnavailableError
from tare.guests.cache import workspace

_SUITE = "bookworm"
PACKAGES = (
    "systemd-sysv", "udev", "kmod", "iproute2", "initramfs-tools", "lz4", "linux-image-cloud-amd64",
    "nginx-light", "memcached", "gcc", "libc6-dev", "make",
)  # fmt: skip
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
_FILES = ("debian-build.sh", "debian-start.sh", "memory.c")
_MAKING = "1"
"""Part of every digest: count it up when the same recipe is made into another image."""
_DISK_BYTES = 1 << 30
_UUID = "7a2e0f5c-0000-4000-8000-000000000001"
_HASH_SEED = "7a2e0f5c-0000-4000-8000-000000000002"
_BUILD_TIMEOUT_S = 1800.0
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
"""What is mounted into the root (proc, sys, dev) goes with who mounted it, even killed."""
_TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "qemu-img": "qemu-utils"}


@dataclass(frozen=True)
class Debian:
    """The image in the cache.

    Attributes:
        directory: holds `disk` (ext4, raw), `vmlinuz`, `initrd`, `packages`.
        digest: SHA-256 of the recipe.
    """

    directory: Path
    digest: str

    @property
    def disk(self) -> Path:
        """The root file system, which nobody writes to."""
        return self.directory / "disk"

    @property
    def kernel(self) -> Path:
        """Debian's cloud kernel, of the image's own package."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initrd that was made in the image."""
        return self.directory / "initrd"

    @cached_property
    def versions(self) -> dict[str, str]:
        """Package -> version, of those that were asked for."""
        lines = (self.directory / "packages").read_text().splitlines()
        found = dict(line.split(" ", 1) for line in lines)
        return {name: found[name] for name in PACKAGES if name in found}

    @classmethod
    def build(cls, cache: Path) -> Debian:
        """Return the image, made if the cache has none; that takes minutes and the network.

        Raises:
            UnavailableError: a tool is missing, or the packages cannot be had.
        """
        if names := missing_packages(_TOOLS):
            raise UnavailableError(f"not installed: {names}", f"apt-get install {names}")
        digest = _digest()
        image = cls(cache / "guests" / "debian" / digest[:32], digest)
        if not image.directory.is_dir():
            with workspace(image.directory.parent) as scratch:
                made = _make(scratch)
                # Whoever comes second finds the same image in place.
                with suppress(OSError):
                    made.rename(image.directory)
        return image

    def layer(self, path: Path) -> Path:
        """Make an empty layer above the disk, for one guest to write to; return its path."""
        create = ("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(self.disk))
        process.run(Command((*create, str(path))), 60)
        return path


def _digest() -> str:
    recipe = hashlib.sha256(f"{_MAKING}\n{_SUITE}\n{_DISK_BYTES}\n".encode())
    recipe.update("\n".join((*PACKAGES, *_LEFT_OUT)).encode())
    for name in _FILES:
        recipe.update(resources.files(__package__).joinpath(name).read_bytes())
    return recipe.hexdigest()


def _make(scratch: Path) -> Path:
    root, made, inputs = scratch / "root", scratch / "made", scratch / "inputs"
    made.mkdir()
    inputs.mkdir()
    for name in _FILES:
        (inputs / name).write_bytes(resources.files(__package__).joinpath(name).read_bytes())
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    hooks = [
        f'--customize-hook=cp -r {inputs} "$1/tare"',
        '--customize-hook=chroot "$1" sh /tare/debian-build.sh',
    ]
    packages = f"--include={','.join(PACKAGES)}"
    _run(
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", packages, *options, *hooks,
        _SUITE, str(root), within=_OWN_MOUNTS,
    )  # fmt: skip
    versions = ("--show", "--showformat=${Package} ${Version}\n")
    listing = _run("dpkg-query", f"--admindir={root}/var/lib/dpkg", *versions)
    (made / "packages").write_text(listing)
    for kind, name in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copyfile(next((root / "boot").glob(name)), made / kind)
    _run(
        "mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", str(root), "-U", _UUID,
        "-E", f"hash_seed={_HASH_SEED}", str(made / "disk"), f"{_DISK_BYTES >> 20}M",
    )  # fmt: skip
    return made


def _run(*argv: str, within: tuple[str, ...] = ()) -> str:
    try:
        return process.run(Command(argv, within=within), _BUILD_TIMEOUT_S).stdout
    except process.ProcessError as error:
        raise UnavailableError(
            f"the guests' Debian cannot be made: {error}",
            "it is made once, as root, with access to Debian's packages; connect this machine",
        ) from error
