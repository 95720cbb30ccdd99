"""A root that a stranger made, and what is left in a tree: root's work on them stays in there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

import platformdirs
import pytest

from archives import docker_archive, layer
from needs import needs_root
from tare import environments, mounts
from tare.environments import Site, for_plot
from tare.errors import Exit
from tare.tree import OWN, Tree, User
from tare.trees import kept, toolbox

pytestmark = [pytest.mark.system, needs_root]

ME = User(4321, 4322, (4322,))
HERE = ["native", "container"]
EVERYWHERE = [name for name in environments.by_name() if name != environments.FAR]
PATIENCE_S = 60.0
SPY = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void tell(void) {
  char line[256];
  int told = open("/told", O_WRONLY | O_APPEND);
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, "CapEff:", 7)) (void)!write(told, line, strlen(line));
}
"""
OTHER_ROOTS_AND_MOUNTS = 1 << 18 | 1 << 21
"""CAP_SYS_CHROOT, CAP_SYS_ADMIN; source: linux/capability.h."""


def outside() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outside-", dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user's, that others may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="trees-") as made:
        os.chown(made, ME.uid, ME.gid)
        Path(made).chmod(0o755)
        yield Path(made)


decoy = pytest.fixture(outside)
beside = pytest.fixture(outside)


@pytest.fixture
def site(tidy_site: Site) -> Iterator[Site]:
    with tidy_site.leftovers.scratch() as scratch:
        cache = platformdirs.user_cache_path("tare")
        yield replace(tidy_site, scratch=scratch, cache=cache)


def state(folder: Path) -> list[object]:
    """All that is seen of a folder, and of what is mounted there."""
    found = [(path, *path.lstat()[:3], path.lstat().st_mtime_ns) for path in folder.rglob("*")]
    points = [mount for mount in mounts.listed() if mount.point.is_relative_to(folder)]
    return [folder.stat().st_mode, sorted(found), points]


def baited(decoy: Path) -> list[object]:
    """Have files and folders there that are made or replaced in a tree."""
    for name in ("bin", "lib", "programs", "null", "pts"):
        (decoy / name).mkdir()
    (decoy / "bin" / "setpriv").touch()
    return state(decoy)


@pytest.mark.parametrize(
    ("environment", "form", "files"),
    [
        (environment, form, files)
        for environment in EVERYWHERE
        for form, files in product(("folder", "archive"), ("shared", "copied"))
        # What an archive holds is a folder before a guest sees it: each of either will do there.
        if environment in HERE or (form == "folder") == (files == "shared")
    ],
)
def test_no_link_of_a_root_leads_out_of_it(
    environment: str,
    form: str,
    files: Literal["shared", "copied"],
    site: Site,
    folder: Path,
    decoy: Path,
    beside: Path,
) -> None:
    if not for_plot({"environment": environment}).availability().available:
        pytest.skip(f"no {environment} here")
    before = baited(decoy)
    links = ("dev", "proc", "sys", "run", "tmp", "home", "root", ".tare")
    image = beside / "image"
    if form == "folder":
        (image / "bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", image / "bin" / "sh")
        for name in links:
            (image / name).symlink_to(decoy)
    else:
        upwards = f"../../../../..{decoy}"
        shell = ("bin/sh", "file", Path("/bin/busybox").read_bytes())
        docker_archive(image, layer(shell, *((name, "link", upwards) for name in links)))
    (folder / "mine").touch()
    os.chown(folder / "mine", ME.uid, ME.gid)
    cache = site.cache if environment in ("gvisor", "qemu") else beside / "cache"
    tree = Tree(
        image, str(folder), ME, files, inputs=(str(folder / "mine"),), keep=(str(folder / "made"),)
    )
    with for_plot({"environment": environment}).enter(replace(site, tree=tree, cache=cache)) as it:
        assert it.run(("/bin/sh", "-c", "ls; echo 1 >made"), PATIENCE_S) == "mine\n"
        assert state(decoy) == before
    assert state(decoy) == before
    assert (folder / "made").read_text() == "1\n"


@pytest.mark.parametrize("toolbox_of", ["image", "image/.tare"])
def test_no_file_of_a_roots_is_written_through(
    toolbox_of: str, site: Site, folder: Path, decoy: Path, beside: Path
) -> None:
    """A toolbox that is there already, or is a folder of links."""
    before = baited(decoy)
    image = beside / "image"
    (image / ".tare" / "programs").mkdir(parents=True)
    for name in ("bin", "lib"):
        where = image / ".tare" / name
        if toolbox_of == "image":
            where.symlink_to(decoy / name)
        else:
            where.mkdir()
            for tool in toolbox.TOOLS:
                (where / tool).symlink_to(decoy / "bin" / "setpriv")
    (image / "bin").mkdir()
    shutil.copy("/bin/busybox", image / "bin" / "sh")
    tree = Tree(image, str(folder), ME)
    with for_plot({"environment": "native"}).enter(replace(site, tree=tree)) as inside:
        assert inside.run(("/bin/sh", "-c", "pwd"), PATIENCE_S).strip() == str(folder)
    assert state(decoy) == before


@pytest.mark.parametrize("environment", HERE)
def test_no_program_exchanges_what_root_starts_and_mounts_on(
    environment: str, site: Site, folder: Path, decoy: Path, beside: Path
) -> None:
    before = baited(decoy)
    image = beside / "image"
    (image / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", image / "bin" / "sh")
    os.chown(image, ME.uid, ME.gid)  # so it may rename what is there
    made = folder / "made"
    tree = Tree(image, str(folder), ME, keep=(str(made),))
    script = f"echo 1 >made; for it in mv rm\\ -rf; do $it {OWN} /x; done; ln -sn {decoy} {OWN}; id"
    with for_plot({"environment": environment}).enter(replace(site, tree=tree)) as inside:
        said = inside.run(("/bin/sh", "-c", f"mv /bin /kin && mv /kin /bin; {script}"), PATIENCE_S)
        assert f"uid={ME.uid}" in said
    assert made.read_text() == "1\n"
    assert state(decoy) == before


@pytest.mark.parametrize("user", [ME, User(0, 0)], ids=["a user", "root"])
def test_no_code_of_a_root_has_rights_that_its_user_has_not(
    user: User, site: Site, folder: Path, beside: Path
) -> None:
    image = beside / "image"
    for name in ("bin", "etc"):
        (image / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", image / "bin" / "sh")
    (beside / "spy.c").write_text(SPY)
    compiling = ("cc", "-shared", "-fPIC", "-o", image / "spy.so", beside / "spy.c")
    subprocess.run(compiling, check=True)
    (image / "etc" / "ld.so.preload").write_text("/spy.so\n")
    (image / "told").touch()
    (image / "told").chmod(0o666)
    tree = Tree(image, str(folder), user)
    with for_plot({"environment": "native"}).enter(replace(site, tree=tree)) as inside:
        told = inside.run(("/bin/sh", "-c", "cat /told"), PATIENCE_S).split()[1::2]
    assert told, "it was loaded"
    forbidden = OTHER_ROOTS_AND_MOUNTS if user.uid == 0 else -1
    assert [caps for caps in told if int(caps, 16) & forbidden] == []


def test_what_a_guest_gives_back_is_not_unpacked_through_a_link(
    folder: Path, decoy: Path, beside: Path
) -> None:
    os.chown(decoy, ME.uid, ME.gid)
    before = baited(decoy)
    root = beside / "root"
    root.mkdir()
    (root / "way").symlink_to(decoy)
    (root / OWN[1:]).mkdir()
    toolbox.pack(root / OWN[1:], Path("/no/programs"), ours=False)
    archive = beside / "archive"
    with tarfile.open(archive, "w") as made:
        made.addfile(tarfile.TarInfo("way/file"))

    def tool(name: str) -> tuple[str, ...]:
        return toolbox.started(root / OWN[1:], f"bin/{name}")

    with pytest.raises(Exception, match="cannot bring"):
        kept.unpack(Tree(root, str(folder), ME), root, tool, archive)
    assert state(decoy) == before


@pytest.mark.parametrize(
    ("masked", "words"),
    [
        (0o077, ("--in", "native,container")),
        (0o022, ("--in", "uml")),
        (0o077, ("--in", "uml", "--files", "copied")),
        (0o022, ("--in", "qemu", "--files", "copied")),
    ],
    ids=["masked", "uml", "uml, copied, masked", "qemu, copied"],
)
def test_who_types_sudo_has_it_measured_everywhere(
    masked: int, words: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    for name in words[1].split(","):
        if not for_plot({"environment": name}).availability().available:
            pytest.skip(f"no {name} here")
    (folder / "mytool").write_text("#!/usr/bin/env sh\nread line <secret\n")
    (folder / "mytool").chmod(0o755)
    (folder / "secret").write_text("mine\n")
    (folder / "secret").chmod(0o600)
    os.chown(folder / "secret", ME.uid, ME.gid)
    inputs = ("--input", "secret") if "copied" in words else ()
    path = f"{folder}:{os.environ['PATH']}"
    sudo = {"SUDO_UID": str(ME.uid), "SUDO_GID": str(ME.gid), "PATH": path}
    argv = (
        "measure", *words, *inputs, "--blocks", "6" if "," in words[1] else "2",
        "-r", "1", "-w", "0", "--takes", "20 ms",
        "--out", str(tmp_path / "result"), "--", "mytool",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tare", *argv], cwd=folder, env={**os.environ, **sudo},
        umask=masked, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == Exit.OK, done.stdout + done.stderr
