"""The guests' RAM file system: the host's own programs with their libraries, and /init.

A guest must run the very binaries that the other environments run, so nothing is built for it: the
image is a copy of files of this machine. It is named after the content of all that goes into it
and packed without times, owners or inode numbers, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path, PurePosixPath

from tare import process
from tare.command import PATH, Command
from tare.errors import UnavailableError
from tare.guests.cache import workspace
from tare.guests.kernel import Kernel, module_content

PROGRAMS = PurePosixPath("/programs")
"""Where a guest finds what the host has in the build directory."""

NFS = "modules-nfs"
"""Where it finds the modules that only a device over NFS needs."""

VIRTIOFS = "modules-tree"
"""Where it finds those that only a user's tree needs."""


def loading(folder: str) -> str:
    """Shell line that loads what lies in such a folder: nothing, where the kernel has all of it."""
    return f'for module in /{folder}/*.ko; do [ ! -e "$module" ] || insmod "$module"; done'


_PATTERNS = ("echo/echo-*", "probe/probe", "probe/execute")
"""What of the build directory a guest is given."""

_APPLETS = (
    "arp", "cat", "chmod", "chroot", "cpio", "echo", "grep", "insmod", "ip", "kill", "ln",
    "losetup", "ls", "mkdir", "mknod", "mount", "poweroff", "ps", "rm", "setsid", "sh", "sleep",
    "sync", "tail", "tar", "uname",
)  # fmt: skip
_PACKING = "1"
"""Part of every digest: count it up when the same inputs are packed into other bytes."""

_KEPT_UNUSED_S = 14 * 24 * 3600
_DIRECTORIES = ("bin", "dev", "modules", "proc", "programs", "run", "sys", "tmp")
LATE_LIBRARY = "libgcc_s.so.1"
"""glibc opens it only when a thread is cancelled or exits, so ldd does not show it."""
_LIBRARIES = Path("/lib/x86_64-linux-gnu")
_BUSYBOX = Path("/bin/busybox")
_AGENT = Path("/usr/sbin/qemu-ga")


@dataclass(frozen=True)
class Entry:
    """One file of the image: where it goes, and what it is (exactly one of the three)."""

    path: str
    source: Path | None = None
    content: bytes | None = None
    link: str | None = None

    def digest(self) -> str:
        """Return the SHA-256 of what it is."""
        if self.source is not None:
            return _sha256(self.source)
        if self.content is not None:
            return hashlib.sha256(self.content).hexdigest()
        assert self.link is not None
        return hashlib.sha256(self.link.encode()).hexdigest()

    def stage(self, root: Path) -> None:
        """Put it below a directory."""
        target = root / self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.link is not None:
            target.symlink_to(self.link)
        elif self.source is not None:
            shutil.copyfile(self.source, target)
            target.chmod(0o755)
        elif self.content is not None:
            target.write_bytes(self.content)
            target.chmod(0o755)


@dataclass(frozen=True)
class Image:
    """A packed RAM file system in the cache.

    Attributes:
        path: the archive (cpio, newc, not compressed: under emulation unpacking costs more).
        digest: SHA-256 over all that went into it.
    """

    path: Path
    digest: str

    @classmethod
    def build(cls, kernel: Kernel, programs: Path, cache: Path) -> Image:
        """Return the image that a guest boots from, from the cache if it is there and whole.

        Args:
            kernel: whose modules go in.
            programs: the build directory.
            cache: where images are kept.

        Raises:
            UnavailableError: something that belongs in it is not on this machine.
        """
        return cls.pack(_contents(kernel, programs), cache)

    @classmethod
    def of_tools(cls, names: Sequence[str], cache: Path) -> Image | None:
        """Return an archive of those programs of the system that are installed; None of none.

        Args:
            names: such as "stress-ng".
            cache: where images are kept.
        """
        found = [shutil.which(name, path=PATH) for name in names]
        programs = [Path(path) for path in found if path is not None]
        return cls.pack(_with_libraries(programs), cache) if programs else None

    @classmethod
    def pack(cls, entries: Iterable[Entry], cache: Path) -> Image:
        """Pack files into an archive named after their content, unless the cache has it."""
        ordered = sorted(entries, key=lambda entry: entry.path)
        digest = hashlib.sha256(f"packing {_PACKING}\n".encode())
        for entry in ordered:
            kind = "link" if entry.link is not None else "file"
            digest.update(f"{kind} {entry.digest()} {entry.path}\n".encode())
        directory = cache / "guests" / "images"
        image = cls(directory / f"{digest.hexdigest()[:32]}.cpio", digest.hexdigest())
        if not image.intact():
            with workspace(directory) as scratch:
                image.write(ordered, scratch)
        image.checksum.touch()
        _forget_unused(directory)
        return image

    @property
    def checksum(self) -> Path:
        """The file that holds the SHA-256 of the archive."""
        return self.path.with_suffix(".sha256")

    def intact(self) -> bool:
        """Whether the archive is there, and holds what its builder wrote."""
        try:
            return self.checksum.read_text() == _sha256(self.path)
        except (FileNotFoundError, UnicodeDecodeError):
            return False

    def write(self, entries: Sequence[Entry], scratch: Path) -> None:
        """Write archive and checksum. Builders of the same image do not disturb each other."""
        root = scratch / "root"
        _stage(entries, root)
        names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
        archive = scratch / "archive"
        cpio = ("cpio", "--create", "--format=newc", "--reproducible", "--owner=+0:+0", "--quiet")
        process.run(Command((*cpio, f"--file={archive}"), cwd=root), 120, stdin="\n".join(names))
        checksum = scratch / "checksum"
        checksum.write_text(_sha256(archive))
        # The checksum goes last: an archive without one counts as absent.
        archive.replace(self.path)
        checksum.replace(self.checksum)


def libraries_in(listing: str) -> list[Path]:
    """Return the files that an `ldd` listing names.

    Raises:
        UnavailableError: a library is not found.
    """
    if missing := re.findall(r"^\s*(\S+) => not found", listing, re.MULTILINE):
        raise UnavailableError(
            f"a guest's programs need {', '.join(sorted(set(missing)))}, which is not installed",
            "build them anew, or install the package that holds it",
        )
    # "name => /path (0x...)", or for the loader "/path (0x...)".
    found = re.findall(r"^\s+(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", listing, re.MULTILINE)
    return [Path(path) for path in dict.fromkeys(found)]


def _contents(kernel: Kernel, programs: Path) -> list[Entry]:
    ours = [path for pattern in _PATTERNS for path in sorted(programs.glob(pattern))]
    ours = [path for path in ours if path.is_file() and os.access(path, os.X_OK)]
    if not ours:
        raise UnavailableError(
            f"no programs for a guest in {programs} (looked for {', '.join(_PATTERNS)})",
            "build them: make build",
        )
    for path, package in ((_BUSYBOX, "busybox-static"), (_AGENT, "qemu-guest-agent")):
        if not path.exists():
            raise UnavailableError(f"{path} is missing", f"install the Debian package {package}")
    scripts = resources.files(__package__)
    entries = [
        Entry("init", content=scripts.joinpath("init.sh").read_bytes()),
        Entry("program.sh", content=scripts.joinpath("program.sh").read_bytes()),
    ]
    entries.append(Entry("bin/busybox", _BUSYBOX))
    entries += [Entry(f"bin/{applet}", link="busybox") for applet in _APPLETS]
    for folder, modules in (
        ("modules", kernel.modules),
        (NFS, kernel.nfs_modules),
        (VIRTIOFS, kernel.tree_modules),
    ):
        for number, module in enumerate(modules):
            name = module.name.removesuffix(".xz")
            entries.append(Entry(f"{folder}/{number:02}-{name}", content=module_content(module)))
    entries += [Entry(f"programs/{path.relative_to(programs)}", path) for path in ours]
    libraries = {*libraries_in(_ldd([*ours, _AGENT])), _LIBRARIES / LATE_LIBRARY}
    return entries + [_in_place(path) for path in (_AGENT, *libraries)]


def _with_libraries(programs: Sequence[Path]) -> list[Entry]:
    return [_in_place(path) for path in (*programs, *libraries_in(_ldd(programs)))]


def _in_place(path: Path) -> Entry:
    """Put a file of this machine where it is here."""
    return Entry(str(path).lstrip("/"), path)


def _ldd(programs: Sequence[Path]) -> str:
    # Exit code 1: one of them is static, which is fine.
    command = Command(("ldd", *map(str, programs)))
    return process.run(command, 30, accept=(0, 1)).stdout


def _stage(entries: Sequence[Entry], root: Path) -> None:
    """Lay the files out as they will be in the guest, with modes and times that say nothing."""
    root.mkdir()
    for name in _DIRECTORIES:
        (root / name).mkdir()
    for entry in entries:
        entry.stage(root)
    # Debugging information is nine tenths of a program of ours, and is never loaded; what is stays
    # as it is.
    ours = [str(root / entry.path) for entry in entries if entry.path.startswith("programs/")]
    if ours:
        process.run(Command(("strip", "--strip-debug", *ours)), 60)
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    for path in root.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)


def _forget_unused(directory: Path) -> None:
    """Remove images that no run has used for long: every build of the programs leaves one."""
    for checksum in directory.glob("*.sha256"):
        with suppress(FileNotFoundError):
            if time.time() - checksum.stat().st_mtime > _KEPT_UNUSED_S:
                checksum.unlink()
                checksum.with_suffix(".cpio").unlink()


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_of_version(path, found.st_ino, found.st_size, found.st_ctime_ns)


@lru_cache(maxsize=4096)
def _sha256_of_version(path: Path, *_version: int) -> str:
    """Hash a file once as long as it does not change: a run boots many guests."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
