"""A user's tree, laid out on this machine: the host's files with a private layer over them.

    PASSED/tree-XXXX/root    an overlay of the tree's root; in it one of every further mount, OWN,
                             and where the programs are this kernel's own, /proc, /sys and /dev
    SCRATCH/tree-XXXX/       root's alone
      layers/N/{upper,work}  what is written, a folder for each overlay

An overlay does not cross mounts, so each gets its own. All of them lie in the one at `root`, which
is private: it is undone by one lazy unmount, and nothing that is mounted in it shows elsewhere.
OWN is a mount of its own, which no program can rename or write to: root starts programs from there.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare import mounts, process, rootless
from tare.command import PATH, Command, given
from tare.errors import TrialError, remedy_of
from tare.mounts import (
    BIND,
    NO_DEVICES,
    NO_PROGRAMS,
    NO_SETUID,
    PRIVATE,
    READ_ONLY,
    RECURSIVE,
    REMOUNT,
)
from tare.site import Site
from tare.tree import OWN, Tree
from tare.trees import copied, images, kept, toolbox, walk
from tare.trees.allowed import allowed
from tare.trees.entering import entering

_LOG = logging.getLogger(__name__)

_KERNELS = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""What tells of the kernel, and is made anew wherever one runs."""
_READ_ONLY = ("bus", "irq", "sys", "sysrq-trigger")
"""What of /proc nobody writes to. The last is a file, and not of every kernel."""
_SHARED = Path("/tmp")  # noqa: S108 - of the tree
_NO_FILES = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
})  # fmt: skip
"""Kinds of file systems that hold nobody's files."""
_TIMEOUT_S = 600.0
_FOLDER = f"{OWN}/folder"
"""A link to the folder that programs start in: its name may hold what no JSON can."""
_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
"""Name -> minor number, of major number 1. Source: Linux, devices.txt."""
_TERMINAL = os.makedev(5, 0)


@dataclass(frozen=True)
class Merged:
    """A tree that is laid out.

    Attributes:
        tree: what it is.
        root: the folder on this machine that shows it.
        layer: where what is written lies, in words.
        scratch: a folder of root's alone that goes with it.
    """

    tree: Tree
    root: Path
    layer: str
    scratch: Path

    @property
    def boxed(self) -> bool:
        """Whether it has a toolbox, since what starts programs may not be there."""
        return self.tree.files == "copied" or self.tree.root != Path("/")

    def archive(self) -> Path:
        """Have all of it in one file, which its user may read, for a guest to unpack.

        Raises:
            TrialError: there is no room for it.
        """
        archive = self.scratch / "files.tar"
        words = ("tar", "--create", "--numeric-owner", f"--directory={self.root}")
        process.run(Command((*words, f"--file={archive}", ".")), _TIMEOUT_S)
        os.chown(archive, self.tree.user.uid, -1)
        return archive

    def tool(self, name: str) -> tuple[str, ...]:
        """Words that start a program of the system in the tree."""
        if self.boxed:
            return toolbox.started(self.root / OWN[1:], f"bin/{name}")
        # By its path: busybox takes a bare name for one of its own.
        return (shutil.which(name, path=PATH) or name,)

    @property
    def by(self) -> str:
        """What has the files here, in words."""
        return "an overlay" if self.tree.files == "shared" else "the host's memory"

    def facts(self, by: str = "") -> dict[str, Any]:
        """What a report must name.

        Args:
            by: through what files come to the programs, in words, where it is not `self.by`.
        """
        return {
            "files": f"{self.tree.files}: {by or self.by}",
            "tree": "the host's files" if self.tree.root == Path("/") else str(self.tree.root),
            "layer": self.layer,
            "user": self.tree.user.uid,
        }

    def rooted(self, command: Command, argv: Sequence[str]) -> Command:
        """Have a process of this machine start in the tree, with the user's rights.

        Args:
            command: how it would be started beside it.
            argv: as `found` takes it.
        """
        words = entering(self.tree.user, self.root, self.tool)
        return replace(self.placed(command, argv), entering=words, within=self._becoming())

    def placed(self, command: Command, argv: Sequence[str]) -> Command:
        """Have a process start with the user's rights, where the tree is the root already."""
        env = {**self.tree.user.environment(), **given(command.env)}
        return replace(command, argv=self.found(argv), env=env, within=self.within())

    def within(self) -> tuple[str, ...]:
        """What starts a program, once `root` is the root folder: its rights, then its folder.

        Then the names of its variables, which come as `given`.
        """
        setpriv, *options = self.tree.user.takes_on()
        return (*self.tool(setpriv), *options, *self._becoming())

    def _becoming(self) -> tuple[str, ...]:
        return self.found(("probe/execute", "--become", "--cwd", _FOLDER, "--"))

    def found(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Find argv[0] in the tree: a path below the build directory, else as it is written."""
        program = argv[0]
        if "/" not in program or program.startswith("/"):
            return tuple(argv)
        path = f"programs/{program}"
        if self.boxed:
            return (*toolbox.started(self.root / OWN[1:], path), *argv[1:])
        return (f"{OWN}/{path}", *argv[1:])


@contextmanager
def laid_out(site: Site, *, own_kernel: bool = False) -> Iterator[Merged | None]:
    """Lay a site's tree out, if it has one; leaving removes it, and all that was written to it.

    Left without an error, what is to be kept is brought back first.

    Args:
        site: whose tree it is, and in whose scratch folder it lies.
        own_kernel: whether this machine's kernel runs the programs with nothing between, so that
            they are to find its /proc, its /sys and the harmless ones of its devices.

    Raises:
        TrialError: there is no such folder, no room, or the kernel refuses to mount it.
    """
    tree = site.tree
    if tree is None:
        yield None
        return
    if not allowed(tree.user, "-x", f"{tree.cwd}/."):
        what = f"{tree.cwd}, where the program would start, is no folder that its user may enter"
        raise TrialError(what, "name another, if it is not gone")
    tree = replace(tree, root=images.root_of(tree, site.cache))
    name = f"tree-{secrets.token_hex(4)}"
    work, root = site.scratch / name, site.passed / name / "root"
    with ExitStack() as stack:
        owing = site.leftovers.owing
        for folder, mounted in ((work, work / "layers"), (root.parent, root)):
            stack.enter_context(owing("directory", str(folder)))
            stack.enter_context(owing("mount", str(mounted)))
        try:
            with ExitStack() as opened:
                merged = _Building(site, tree, work, root, opened).build(own_kernel=own_kernel)
        except (OSError, ValueError) as error:
            what = f"cannot lay out the file tree of {tree.root} in {site.passed}: {error}"
            raise TrialError(what, remedy_of(error)) from error
        yield merged
        kept.bring_back(merged.tree, merged.root, merged.tool)


class _Building:
    """The making of one tree, in which stack what it opens is closed."""

    def __init__(self, site: Site, tree: Tree, work: Path, root: Path, opened: ExitStack) -> None:
        self._site = site
        self._tree = tree
        self._root = root
        self._work = work
        self._layers = work / "layers"
        self._opened = opened
        self._count = 0

    def build(self, *, own_kernel: bool) -> Merged:
        for path in (self._work, self._root.parent, self._root, self._layers):
            path.mkdir(mode=0o700)
        merged = Merged(self._tree, self._root, self._lay(), self._work)
        own = self._folder(OWN[1:])
        mounts.mount("tare", own, "tmpfs", NO_SETUID | NO_DEVICES, "mode=755")
        own = self._root / OWN[1:]
        (own / "folder").symlink_to(self._tree.cwd)
        kept.prepare(self._tree, own)
        if merged.boxed:
            toolbox.pack(own, self._site.programs, ours=self._tree.files == "copied")
        if self._tree.files == "copied":
            (own / OWN[1:]).symlink_to(".")
            (own / "tree").mkdir()
        else:
            (own / "programs").mkdir(exist_ok=True)
            self._show(self._site.programs.resolve(), Path(OWN, "programs"))
        mounts.mount("none", own, flags=REMOUNT | BIND | READ_ONLY | NO_SETUID | NO_DEVICES)
        if self._tree.files == "copied":
            copied.copy(self._tree, self._root, own, merged.tool, self._work)
        if own_kernel:
            self._show_kernel()
        return merged

    def _lay(self) -> str:
        """Have the root there; return where what is written goes."""
        if self._tree.files == "shared":
            return self._share()
        mounts.mount("tmpfs", self._root, "tmpfs", NO_SETUID | NO_DEVICES, "mode=755")
        mounts.mount("none", self._root, flags=PRIVATE)
        if self._tree.root != Path("/"):
            copied.copy_root(self._tree.root, self._root)
        self._usual()
        return "in memory"

    def _share(self) -> str:
        """Show the files of the root, with layers; return where these lie."""
        layer = f"on the disk of {self._site.passed.parent}"
        in_parts = rootless.is_on() and self._tree.root == Path("/")
        try:
            if in_parts:
                self._cover_each()
            else:
                self._cover(self._tree.root, self._root)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The layer of an overlay may not lie on an overlay, such as a container's root.
            mounts.mount("tmpfs", self._layers, "tmpfs", NO_SETUID | NO_DEVICES, "mode=755")
            layer = "in memory"
            self._cover(self._tree.root, self._root)
        mounts.mount("none", self._root, flags=PRIVATE)
        if self._tree.root == Path("/"):
            if not in_parts:  # else they are shown, and there is a /tmp of its own
                self._cover_further()
                self._blind(self._site.passed.resolve())
        else:
            self._usual()
            if self._tree.cwd != "/":
                self._cover(Path(self._tree.cwd), self._at(self._tree.cwd))
        return layer

    def _usual(self) -> None:
        """See that folders are there that any root has."""
        for kernels in _KERNELS:
            self._folder(kernels.name)
        for path, mode in ((Path("/run"), 0o755), (_SHARED, 0o1777)):
            if not os.path.lexists(self._root / path.name):
                self._folder(path.name).chmod(mode)

    def _cover(self, lower: Path, point: Path, flags: int = 0) -> None:
        """Mount a folder of the host, with a layer of its own over it."""
        folder = self._layers / str(self._count)
        self._count += 1
        upper, work = folder / "upper", folder / "work"
        for path in (folder, upper, work):
            path.mkdir()
        with ExitStack() as stack:
            opened = []
            for path in (lower, upper, work):
                opened.append(os.open(path, os.O_PATH | os.O_DIRECTORY))
                stack.callback(os.close, opened[-1])
            found = os.fstat(opened[0])
            shutil.copystat(f"/proc/self/fd/{opened[0]}", upper)
            if not rootless.is_on():  # which knows one user alone
                os.chown(upper, found.st_uid, found.st_gid)
            # By descriptors: a name may hold what the kernel would take for an option's end.
            names = [f"/proc/self/fd/{number}" for number in opened]
            how = "userxattr" if rootless.is_on() else "redirect_dir=on"
            options = "lowerdir={},upperdir={},workdir={},{}".format(*names, how)
            mounts.mount("tare", point, "overlay", flags | NO_SETUID | NO_DEVICES, options)

    def _cover_each(self) -> None:
        """Cover the root by folders: rootless, none may be shown without what is mounted in it."""
        mounts.mount("tmpfs", self._root, "tmpfs", NO_SETUID | NO_DEVICES, "mode=755")
        for path in Path("/").iterdir():
            if path.is_symlink():
                (self._root / path.name).symlink_to(path.readlink())
            elif path.is_dir() and path not in _KERNELS:
                self._cover_one(path, 0)
        # Nothing can be made in a folder of a user who is not known in the namespace.
        mounts.mount("tmpfs", self._at(_SHARED), "tmpfs", NO_SETUID | NO_DEVICES, "mode=1777")
        self._cover(Path(self._tree.cwd), self._at(self._tree.cwd))

    def _cover_further(self) -> None:
        """Show what is mounted below the root: written to a layer where that can be had."""
        every = mounts.listed()
        # Other runs' mounts are busy for as long as ours show them.
        hidden = [*_KERNELS, *Path(tempfile.gettempdir()).glob("tare-*")]
        for mounted in every:
            point = mounted.point
            if point == Path("/") or any(point.is_relative_to(path) for path in hidden):
                continue
            if mounted.kind == "overlay":  # other containers' roots
                hidden.append(point)
            elif mounted.kind not in _NO_FILES:
                flags = 0 if mounted.executable else NO_PROGRAMS
                try:
                    self._cover_one(point, flags)
                except OSError as error:
                    # Such as a user's FUSE, which not even root may look into.
                    _LOG.warning("%s is not shown: %s", point, error)

    def _cover_one(self, point: Path, flags: int) -> None:
        if not point.is_dir():
            self._show(point, point, file=True)
            return
        try:
            self._cover(point, self._at(point), flags)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._show(point, point)  # of a kind that cannot lie below a layer, such as vfat

    def _show(self, source: Path, path: Path, *, file: bool = False) -> None:
        """Show a file or folder of the host, read-only."""
        flags = BIND | (RECURSIVE if rootless.is_on() else 0)
        mounts.mount(source, self._at(path, file=file), flags=flags)
        flags = REMOUNT | BIND | READ_ONLY | NO_SETUID | NO_DEVICES
        mounts.mount("none", self._at(path, file=file), flags=flags)  # what is there now

    def _blind(self, path: Path) -> None:
        """Show an empty folder instead: what a run works in is nobody's input."""
        options = "mode=755,size=4k"
        mounts.mount("tmpfs", self._at(path), "tmpfs", READ_ONLY, options)

    def _at(self, path: str | Path, *, file: bool = False) -> Path:
        """See that a folder is there, or a file, and return where."""
        descriptor = walk.opened(self._root, Path(path), file=file)
        self._opened.callback(os.close, descriptor)
        return Path(f"/proc/self/fd/{descriptor}")

    def _folder(self, name: str) -> Path:
        """The same of a folder in the root, in place of what is none: not where a link leads."""
        path = self._root / name
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        return self._at(f"/{name}")

    def _show_kernel(self) -> None:
        points = [self._folder(kernels.name) for kernels in _KERNELS]
        if rootless.is_on():
            for kernels, point in zip(_KERNELS, points, strict=True):
                mounts.mount(kernels, point, flags=BIND | RECURSIVE)
            return
        usual = NO_SETUID | NO_DEVICES | NO_PROGRAMS
        mounts.mount("proc", points[0], "proc", usual)
        mounts.mount("sysfs", points[1], "sysfs", usual | READ_ONLY)
        mounts.mount("tmpfs", points[2], "tmpfs", NO_SETUID, "mode=755,size=64k")
        # By what they are from now on: mounts of ours, which nothing takes the place of.
        proc, _, dev = (self._root / kernels.name for kernels in _KERNELS)
        for name in _READ_ONLY:
            if (proc / name).exists():
                self._show(proc / name, Path("/proc", name), file=(proc / name).is_file())
        for name, minor in _DEVICES.items():
            _make_device(dev / name, os.makedev(1, minor))
        _make_device(dev / "tty", _TERMINAL)
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            (dev / name).symlink_to(f"/proc/self/fd{target}")
        (dev / "ptmx").symlink_to("pts/ptmx")
        for name in ("pts", "shm"):
            (dev / name).mkdir()
        options = "newinstance,ptmxmode=0666,mode=620"
        mounts.mount("devpts", dev / "pts", "devpts", NO_SETUID | NO_PROGRAMS, options)
        mounts.mount("tmpfs", dev / "shm", "tmpfs", NO_SETUID | NO_DEVICES, "mode=1777")


def _make_device(path: Path, number: int) -> None:
    os.mknod(path, 0o020666, number)
    path.chmod(0o666)  # whatever is masked
