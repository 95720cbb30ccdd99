"""The guests' kernel: Debian's cloud kernel, unpacked into the cache and never installed.

Installing a kernel package would add it to the host's boot loader and build an initramfs for it;
`apt-get download` and `dpkg-deb --extract` do neither and need no root. Once fetched, a kernel
stays, so that runs of one cache boot the same one.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tare import process
from tare.command import Command
from tare.errors import UnavailableError
from tare.guests.cache import workspace

METAPACKAGE = "linux-image-cloud-amd64"
MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "virtio_console", "loop")
"""What a guest loads, besides what these depend on."""

NFS_MODULES = ("auth_rpcgss", "nfsv4")
"""What a guest loads besides when it is asked for a device over NFS."""

TREE_MODULES = ("virtiofs",)
"""What a guest loads besides when it has a user's tree."""

_DOWNLOAD_TIMEOUT_S = 300
_EXTRACT_TIMEOUT_S = 60


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package.

    Attributes:
        root: the directory it is unpacked in, named PACKAGE_VERSION_ARCH.
        release: what `uname -r` says in the guest.
    """

    root: Path
    release: str

    @property
    def version(self) -> str:
        """The package's version, as Debian counts."""
        return self.root.name.split("_")[1].replace("%3a", ":")

    @property
    def vmlinuz(self) -> Path:
        """The kernel proper."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> tuple[Path, ...]:
        """The files of `MODULES`, each after what it depends on: the image has no depmod.

        Those built into the kernel are left out.

        Raises:
            UnavailableError: the package lacks one.
        """
        return self._files(MODULES)

    @property
    def nfs_modules(self) -> tuple[Path, ...]:
        """The files of `NFS_MODULES`, as `modules`."""
        return self._files(NFS_MODULES)

    @property
    def tree_modules(self) -> tuple[Path, ...]:
        """The files of `TREE_MODULES`, as `modules`, without those."""
        return tuple(path for path in self._files(TREE_MODULES) if path not in self.modules)

    def _files(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        # Below /usr from trixie on.
        candidates = [self.root / lib / "modules" / self.release for lib in ("lib", "usr/lib")]
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        found = {_name(path): path for path in directory.rglob("*.ko*")}
        listing = (directory / "modules.builtin").read_text()
        builtin = {_name(Path(line)) for line in listing.splitlines()}
        ordered: dict[str, Path] = {}

        def add(name: str) -> None:
            if name in ordered or name in builtin:
                return
            if name not in found:
                raise UnavailableError(f"the kernel {self.release} has no module {name}")
            for needed in _depends(found[name]):
                add(needed)
            ordered[name] = found[name]

        for name in names:
            add(name)
        return tuple(ordered.values())

    @classmethod
    def cached(cls, cache: Path) -> Kernel | None:
        """Return the kernel that is in the cache, or None; one with a fault is removed."""
        for root in sorted(
            _directory(cache).glob("linux-image-*/"), key=lambda path: path.name, reverse=True
        ):
            with suppress(UnavailableError):
                kernel = cls._unpacked(root)
                if kernel.fault() is None:
                    return kernel
            shutil.rmtree(root, ignore_errors=True)
        return None

    @classmethod
    def fetch(cls, cache: Path) -> Kernel:
        """Return the kernel in the cache, downloaded (27 MB) if it is not there.

        Raises:
            UnavailableError: it cannot be downloaded, or guests cannot boot what was.
        """
        if (kernel := cls.cached(cache)) is not None:
            return kernel
        directory = _directory(cache)
        with workspace(directory) as scratch:
            package = _download(scratch)
            root = scratch / package.stem
            extract = ("dpkg-deb", "--raw-extract", str(package), str(root))
            process.run(Command(extract), _EXTRACT_TIMEOUT_S)
            kernel = cls._unpacked(root)
            if (fault := kernel.fault()) is not None:
                raise UnavailableError(
                    f"guests cannot boot {package.name}, just downloaded: {fault}",
                    "try again; if it says the same, this release's kernel is none that Tare knows",
                )
            kernel = cls(directory / root.name, kernel.release)
            try:
                root.rename(kernel.root)
            except OSError:
                # Whoever comes second finds the same kernel in place.
                if kernel.fault() is not None:
                    raise
        return kernel

    @classmethod
    def _unpacked(cls, root: Path) -> Kernel:
        """Return the kernel of an unpacked package.

        Raises:
            UnavailableError: it holds none, or several.
        """
        kernels = list(root.glob("boot/vmlinuz-*"))
        if len(kernels) != 1:
            raise UnavailableError(f"{root} holds {len(kernels)} kernels in boot/, not one")
        return cls(root, kernels[0].name.removeprefix("vmlinuz-"))

    def fault(self) -> str | None:
        """Say why no guest can boot from it, or return None: a file is not what md5sums say.

        Or a module is missing, or the package's lists cannot be read.
        """
        try:
            lines = (self.root / "DEBIAN" / "md5sums").read_text().splitlines()
            wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
            for path in (self.vmlinuz, *self.modules, *self.nfs_modules, *self.tree_modules):
                with path.open("rb") as file:
                    # Guards against a damaged disk, as dpkg itself does; not a matter of security.
                    digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
                name = str(path.relative_to(self.root))
                if wanted.get(name) != digest.hexdigest():
                    return f"{name} is not what the package's own md5sums say"
        except (OSError, ValueError, lzma.LZMAError, UnavailableError) as error:
            return str(error)
        return None


def module_content(path: Path) -> bytes:
    """Return a module as insmod of busybox reads it: plain."""
    content = path.read_bytes()
    # Debian compresses modules from trixie on.
    return lzma.decompress(content) if path.suffix == ".xz" else content


def _name(path: Path) -> str:
    """Name a module as the kernel does: its file may be called with hyphens."""
    return path.name.split(".ko")[0].replace("-", "_")


def _depends(path: Path) -> list[str]:
    """Read what a module says of itself, in its section .modinfo."""
    found = re.search(rb"\0depends=([\w,-]*)\0", module_content(path))
    names = found[1].decode().replace("-", "_") if found else ""
    return [name for name in names.split(",") if name]


_AS_WE_ARE = ("-o", "APT::Sandbox::User=root")
"""apt would become a user of its own, which root of a user namespace cannot."""


def _directory(cache: Path) -> Path:
    return cache / "guests" / "kernels"


def _download(directory: Path) -> Path:
    """Download the package that the metapackage stands for."""
    remedy = (
        "a guest's kernel is downloaded once: connect this machine and run `apt-get update`, "
        "or leave the qemu environment out"
    )
    depends = ("apt-cache", "depends", "--important", METAPACKAGE)
    try:
        listing = process.run(Command(depends), 30).stdout
        names = [line.split(":", 1)[1].strip() for line in listing.splitlines() if ":" in line]
        images = [name for name in names if name.startswith("linux-image-")]
        if not images:
            raise UnavailableError(f"apt knows no package behind {METAPACKAGE}", remedy)
        download = Command(("apt-get", *_AS_WE_ARE, "download", images[0]), cwd=directory)
        process.run(download, _DOWNLOAD_TIMEOUT_S)
    except process.ProcessError as error:
        raise UnavailableError(f"cannot download {METAPACKAGE}: {error}", remedy) from error
    return next(directory.glob("*.deb"))
