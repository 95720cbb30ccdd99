"""The guests' kernel: Debian's cloud kernel, unpacked into the cache and never installed.

Installing a kernel package would add it to the host's boot loader and build an initramfs for it;
`apt-get download` and `dpkg-deb --extract` do neither and need no root. Once fetched, a kernel
stays, so that runs of one cache boot the same one.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tare import process
from tare.command import Command
from tare.errors import UnavailableError
from tare.guests.cache import workspace

__all__ = ["METAPACKAGE", "MODULES", "NFS_MODULES", "Kernel"]

METAPACKAGE = "linux-image-cloud-amd64"
MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_blk",
    "virtio_console",
    "loop",
)
"""What a guest loads, each after what it needs: the image has no depmod."""

NFS_MODULES = (
    "sunrpc", "auth_rpcgss", "grace", "lockd", "netfs", "fscache", "dns_resolver", "nfs", "nfsv4",
)  # fmt: skip
"""What a guest loads when it is asked for a device over NFS, in this order."""

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
        """The files of `MODULES`, in that order; those built into the kernel are left out.

        Raises:
            UnavailableError: the package lacks one.
        """
        return self._files(MODULES)

    @property
    def nfs_modules(self) -> tuple[Path, ...]:
        """The files of `NFS_MODULES`, as `modules`."""
        return self._files(NFS_MODULES)

    def _files(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        # Below /usr from trixie on.
        candidates = [self.root / lib / "modules" / self.release for lib in ("lib", "usr/lib")]
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        found = {path.name.split(".ko")[0]: path for path in directory.rglob("*.ko*")}
        builtin = {
            Path(line).name.split(".ko")[0]
            for line in (directory / "modules.builtin").read_text().splitlines()
        }
        missing = [name for name in names if name not in found and name not in builtin]
        if missing:
            raise UnavailableError(f"the kernel in {self.root} has no module {', '.join(missing)}")
        return tuple(found[name] for name in names if name in found)

    @classmethod
    def cached(cls, cache: Path) -> Kernel | None:
        """Return the kernel that is in the cache, or None; a damaged one is removed."""
        for root in sorted(
            _directory(cache).glob("linux-image-*/"), key=lambda path: path.name, reverse=True
        ):
            kernels = list(root.glob("boot/vmlinuz-*"))
            if len(kernels) == 1:
                kernel = cls(root, kernels[0].name.removeprefix("vmlinuz-"))
                if kernel.intact():
                    return kernel
            shutil.rmtree(root, ignore_errors=True)
        return None

    @classmethod
    def fetch(cls, cache: Path) -> Kernel:
        """Return the kernel in the cache, downloaded (27 MB) if it is not there.

        Raises:
            UnavailableError: it cannot be downloaded.
        """
        if (kernel := cls.cached(cache)) is not None:
            return kernel
        directory = _directory(cache)
        with workspace(directory) as scratch:
            package = _download(scratch)
            root = scratch / package.stem
            extract = ("dpkg-deb", "--raw-extract", str(package), str(root))
            process.run(Command(extract), _EXTRACT_TIMEOUT_S)
            # Whoever comes second finds the same kernel in place.
            with suppress(OSError):
                root.rename(directory / root.name)
        kernel = cls.cached(cache)
        if kernel is None:
            raise UnavailableError(
                f"the kernel package that was unpacked in {directory} is damaged", "try again"
            )
        return kernel

    def intact(self) -> bool:
        """Whether kernel and modules are what the package's own md5sums say."""
        try:
            lines = (self.root / "DEBIAN" / "md5sums").read_text().splitlines()
            wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
            for path in (self.vmlinuz, *self.modules, *self.nfs_modules):
                with path.open("rb") as file:
                    # Guards against a damaged disk, as dpkg itself does; not a matter of security.
                    digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
                if wanted.get(str(path.relative_to(self.root))) != digest.hexdigest():
                    return False
        except (OSError, ValueError, UnavailableError):
            return False
        return True


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
        download = Command(("apt-get", "download", images[0]), cwd=directory)
        process.run(download, _DOWNLOAD_TIMEOUT_S)
    except process.ProcessError as error:
        raise UnavailableError(f"cannot download {METAPACKAGE}: {error}", remedy) from error
    return next(directory.glob("*.deb"))
