from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.accounting import Account
from tare.errors import TareError, TrialError, UnavailableError
from tare.guests import Image, Kernel
from tare.guests.image import Entry, libraries_in
from tare.guests.kernel import MODULES, NFS_MODULES, TREE_MODULES
from tare.guests.program import account_in

LDD = """\
/build/echo/echo-udp:
\tlinux-vdso.so.1 (0x00007f9e3b5d1000)
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f9e3b200000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f9e3b01e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f9e3b5d3000)
/bin/busybox:
\tnot a dynamic executable
/build/a program/other:
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f9e3b01e000)
\tlibx.so => /opt/with space/libx.so (0x00007f9e3b01e000)
"""


def test_libraries_are_the_files_that_ldd_names_each_once() -> None:
    assert libraries_in(LDD) == [
        Path("/lib/x86_64-linux-gnu/libstdc++.so.6"),
        Path("/lib/x86_64-linux-gnu/libc.so.6"),
        Path("/lib64/ld-linux-x86-64.so.2"),
        Path("/opt/with space/libx.so"),
    ]


def test_a_missing_library_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"libddsc\.so\.0"):
        libraries_in(LDD + "\tlibddsc.so.0 => not found\n")


@given(st.text())
def test_any_listing_gives_absolute_paths_or_an_error(listing: str) -> None:
    try:
        found = libraries_in(listing)
    except UnavailableError:
        return
    assert all(path.is_absolute() for path in found)


def entries(directory: Path, text: str = "one") -> list[Entry]:
    source = directory / "source"
    source.write_text(text)
    return [
        Entry("etc/deep/file", source),
        Entry("init", content=b"#!/bin/sh\n"),
        Entry("bin/sh", link="busybox"),
    ]


def names_in(image: Image) -> list[str]:
    with image.path.open("rb") as file:
        command = ["cpio", "--list", "--quiet"]
        return subprocess.run(
            command, stdin=file, capture_output=True, text=True, check=True
        ).stdout.split()


def test_an_image_holds_what_was_put_in(tmp_path: Path) -> None:
    image = Image.pack(entries(tmp_path), tmp_path / "cache")
    assert {"init", "bin/sh", "etc/deep/file", "proc", "dev"} <= set(names_in(image))
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with image.path.open("rb") as file:
        subprocess.run(
            ["cpio", "--extract", "--quiet", "--no-absolute-filenames"],
            stdin=file,
            cwd=unpacked,
            check=True,
        )
    assert (unpacked / "etc/deep/file").read_text() == "one"
    assert (unpacked / "bin/sh").readlink() == Path("busybox")
    assert os.access(unpacked / "init", os.X_OK)


def test_the_same_files_give_the_same_bytes_at_any_time_and_place(tmp_path: Path) -> None:
    images: list[Image] = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        found = entries(tmp_path / place)
        os.utime(tmp_path / place / "source", (len(images) * 1e9, len(images) * 1e9))
        images.append(Image.pack(reversed(found) if images else found, tmp_path / place / "cache"))
    assert images[0].digest == images[1].digest
    assert images[0].path.read_bytes() == images[1].path.read_bytes()


@pytest.mark.parametrize("other", [{"text": "two"}], ids=["content"])
def test_other_content_is_another_image(tmp_path: Path, other: dict[str, str]) -> None:
    cache = tmp_path / "cache"
    assert (
        Image.pack(entries(tmp_path), cache).path
        != Image.pack(entries(tmp_path, **other), cache).path
    )


def test_an_image_in_the_cache_is_used_again(tmp_path: Path) -> None:
    first = Image.pack(entries(tmp_path), tmp_path / "cache")
    inode = first.path.stat().st_ino
    assert Image.pack(entries(tmp_path), tmp_path / "cache").path.stat().st_ino == inode


@pytest.mark.parametrize("damage", ["torn", "flipped", "no checksum", "no archive"])
def test_a_damaged_image_is_packed_anew(tmp_path: Path, damage: str) -> None:
    image = Image.pack(entries(tmp_path), tmp_path / "cache")
    whole = image.path.read_bytes()
    if damage == "torn":
        image.path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        image.path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif damage == "no checksum":
        image.checksum.unlink()
    else:
        image.path.unlink()
    assert not image.intact()
    assert Image.pack(entries(tmp_path), tmp_path / "cache").path.read_bytes() == whole
    assert image.intact()


def test_builders_of_one_image_do_not_disturb_each_other(tmp_path: Path) -> None:
    found = entries(tmp_path)
    with ThreadPoolExecutor(4) as executor:
        images = list(executor.map(lambda _: Image.pack(found, tmp_path / "cache"), range(8)))
    assert len({image.path for image in images}) == 1
    assert images[0].intact()
    left = {path.suffix for path in images[0].path.parent.iterdir()}
    assert left == {".cpio", ".sha256"}


def test_what_a_killed_builder_left_is_removed_in_time(tmp_path: Path) -> None:
    directory = tmp_path / "cache" / "guests" / "images"
    old, fresh = directory / ".new-old", directory / ".new-fresh"
    for path in (old, fresh):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    Image.pack(entries(tmp_path), tmp_path / "cache")
    assert not old.exists()
    assert fresh.exists()  # perhaps of a builder that is at work


def test_images_that_nobody_uses_are_forgotten(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    unused = Image.pack(entries(tmp_path), cache)
    month_ago = time.time() - 30 * 24 * 3600
    os.utime(unused.checksum, (month_ago, month_ago))
    used = Image.pack(entries(tmp_path, "two"), cache)
    assert used.intact()
    assert not unused.path.exists()
    assert not unused.checksum.exists()


DEPENDS = {
    "virtio_pci": "virtio_ring,virtio",
    "virtio_net": "virtio,net-failover",
    "net-failover": "failover",
    "virtio_ring": "virtio",
    "nfsv4": "sunrpc",
    "auth_rpcgss": "sunrpc",
    "virtiofs": "fuse,virtio_ring",
}
"""What some modules of the kernel below say that they need."""

LOADED = [
    "virtio", "virtio_ring", "virtio_pci", "failover", "net-failover", "virtio_net", "virtio_blk",
    "virtio_console", "loop",
]  # fmt: skip
"""The modules of its guests, each after what it needs."""


def a_kernel(cache: Path, suffix: str = ".ko", leave_out: str = "", lib: str = "lib") -> Path:
    """Lay out a kernel package as Debian does, with small files for the large ones."""
    root = cache / "guests" / "kernels" / "linux-image-6.1.0-1-cloud-amd64_6.1.9-1_amd64"
    modules = root / lib / "modules/6.1.0-1-cloud-amd64"
    files = {root / "boot/vmlinuz-6.1.0-1-cloud-amd64": b"kernel"}
    for name in {*LOADED, *MODULES, *NFS_MODULES, *TREE_MODULES, "sunrpc", "fuse"} - {leave_out}:
        content = f"ELF\0name={name}\0depends={DEPENDS.get(name, '')}\0".encode()
        content = lzma.compress(content) if suffix.endswith(".xz") else content
        files[modules / f"kernel/drivers/{name}{suffix}"] = content
    files[modules / "modules.builtin"] = b"kernel/lib/something.ko\n"
    sums = []
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        sums.append(f"{digest}  {path.relative_to(root)}\n")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/md5sums").write_text("".join(sums))
    return root


@pytest.mark.parametrize(("suffix", "lib"), [(".ko", "lib"), (".ko.xz", "usr/lib")])
def test_a_cached_kernel_knows_its_release_and_modules_after_what_they_need(
    tmp_path: Path, suffix: str, lib: str
) -> None:
    a_kernel(tmp_path, suffix, lib=lib)
    kernel = Kernel.fetch(tmp_path)
    assert kernel.release == "6.1.0-1-cloud-amd64"
    assert kernel.version == "6.1.9-1"
    assert [path.name.split(".")[0] for path in kernel.modules] == LOADED
    nfs = [path.name.split(".")[0] for path in kernel.nfs_modules]
    assert nfs == ["sunrpc", "auth_rpcgss", "nfsv4"]
    # Without what is loaded in any case: nothing can be loaded twice.
    assert [path.name.split(".")[0] for path in kernel.tree_modules] == ["fuse", "virtiofs"]


def test_a_module_that_another_needs_may_be_built_into_the_kernel(tmp_path: Path) -> None:
    root = a_kernel(tmp_path, leave_out="net-failover")
    listing = root / "lib/modules/6.1.0-1-cloud-amd64/modules.builtin"
    listing.write_text("kernel/net/net-failover.ko\n")
    names = [path.name.split(".")[0] for path in Kernel.fetch(tmp_path).modules]
    assert names == [name for name in LOADED if name not in ("failover", "net-failover")]


def test_a_damaged_kernel_is_removed_from_the_cache(tmp_path: Path) -> None:
    root = a_kernel(tmp_path)
    (root / "boot/vmlinuz-6.1.0-1-cloud-amd64").write_bytes(b"kernal")
    assert Kernel.cached(tmp_path) is None
    assert not root.exists()


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("lib/modules/6.1.0-1-cloud-amd64/kernel/drivers/failover.ko", "has no module failover"),
        ("boot/vmlinuz-6.1.0-1-cloud-amd64", "holds 0 kernels"),
        ("DEBIAN/md5sums", "md5sums"),
    ],
)
def test_a_kernel_that_guests_cannot_boot_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, reason: str
) -> None:
    root = a_kernel(tmp_path / "made")
    (root / lost).unlink()
    control = "Package: linux-image\nVersion: 6.1.9-1\nArchitecture: amd64\nMaintainer: T <t@t>\n"
    (root / "DEBIAN/control").write_text(f"{control}Description: a kernel\n")

    def download(directory: Path) -> Path:
        package = directory / f"{root.name}.deb"
        subprocess.run(["dpkg-deb", "--build", root, package], check=True, capture_output=True)
        return package

    monkeypatch.setattr("tare.guests.kernel._download", download)
    with pytest.raises(UnavailableError, match=reason):
        Kernel.fetch(tmp_path)
    assert not list((tmp_path / "guests/kernels").iterdir())


def test_an_image_names_what_is_not_built(tmp_path: Path) -> None:
    a_kernel(tmp_path)
    kernel = Kernel.fetch(tmp_path)
    with pytest.raises(UnavailableError, match=r"echo/echo-\*") as caught:
        Image.build(kernel, tmp_path / "no-such-build", tmp_path)
    assert "make build" in str(caught.value.remedy)


def test_an_image_has_programs_libraries_modules_and_agent(tmp_path: Path) -> None:
    a_kernel(tmp_path, ".ko.xz")
    program = tmp_path / "build" / "echo" / "echo-true"
    program.parent.mkdir(parents=True)
    true = shutil.which("true")
    assert true is not None
    shutil.copy(true, program)
    (program.parent / "echo_test").write_text("not for a guest")
    image = Image.build(Kernel.fetch(tmp_path), tmp_path / "build", tmp_path)
    names = names_in(image)
    assert "programs/echo/echo-true" in names
    assert not any("echo_test" in name for name in names)
    assert [name for name in names if name.startswith("modules/")] == [
        f"modules/{number:02}-{name}.ko" for number, name in enumerate(LOADED)
    ]
    for wanted in ("init", "bin/busybox", "usr/sbin/qemu-ga", "lib64/ld-linux-x86-64.so.2"):
        assert wanted in names


LISTING = """\
97/status:Name:\techo-udp
97/status:VmHWM:\t    2512 kB
97/task/97/stat:97 (echo udp) S 95 97 95 0 -1 0 0 0 0 0 3 4 0 0 20 0 2 0 1 0 0
97/task/99/stat:99 (recv) S 95 97 95 0 -1 0 0 0 0 0 5 16 0 0 20 0 2 0 1 0 0
97/task/97/status:voluntary_ctxt_switches:\t6
97/task/97/status:nonvoluntary_ctxt_switches:\t1
97/task/99/status:voluntary_ctxt_switches:\t1412
97/task/97/schedstat:413642 244309 7
97/task/99/schedstat:154195209 11472365 1412
"""


def test_a_guests_own_account_is_read_from_its_proc() -> None:
    found = account_in(LISTING, 97)
    rows = [(t.role, t.name, t.tid, t.cpu_ns, t.wait_ns, t.switches) for t in found.threads]
    assert rows == [
        ("guest", "echo udp", 97, 413642, 244309, 7),
        ("guest", "recv", 99, 154195209, 11472365, 1412),
    ]
    assert found.peak_memory_bytes == 2512 * 1024


def test_the_account_of_a_process_that_ended_is_an_error() -> None:
    with pytest.raises(TrialError, match="97"):
        account_in("", 97)


_PARTS = st.sampled_from(
    ["97/status", "97/task/97/stat", "97/task/97/schedstat", "97/task/1/status"]
)


@given(st.lists(st.tuples(_PARTS | st.text(), st.text())))
def test_any_listing_gives_an_account_or_an_error(lines: list[tuple[str, str]]) -> None:
    listing = "\n".join(f"{path}:{content}" for path, content in lines)
    with suppress(TareError):
        assert isinstance(account_in(listing, 97), Account)
