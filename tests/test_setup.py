"""What set-up asks Debian for: the real script, beside stand-ins for what would install."""

import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from needs import needs_root
from tare.environments import qemu

SETUP = Path(__file__).parents[1] / "setup"


# Of a service that is not there it can disable nothing, and fails.
SYSTEMCTL = """
case $1 in
  list-unit-files) sed 's/$/ enabled enabled/' {here} ;;
  *) shift 2; for unit; do grep -qx "$unit" {here} && echo "$unit" >>{off} || exit 1; done ;;
esac
"""


def asked_for(
    installed: set[str],
    folder: Path,
    *lists: str,
    rust: str = "1.99.0",
    services: Sequence[str] = (),
    coming: Sequence[str] = (),
    code: int = 0,
    also: str = "",
) -> list[str]:
    """Run setup/packages where some packages are installed; return what apt-get is to satisfy.

    Services that are here, and those that come with what it installs, lie in folder/services; those
    that were switched off in folder/off. What dpkg lists `also` comes in its own words.
    """
    (folder / "services").write_text("".join(f"{name}\n" for name in services))
    listing = "".join(f"ii  {name}, \\n" for name in sorted(installed)) + also
    came = "".join(f"{name}\n" for name in coming)
    stand_ins = {
        "dpkg-query": f"printf '{listing}'",
        "apt-get": f"""
[ "$1 $2" != update ] && printf "%s\\n" "$@" >>{folder}/asked
case "$*" in *satisfy*) printf %s "{came}" >>{folder}/services; exit {code} ;; esac
""",
        "rustc": f"echo rustc {rust}",
        "systemctl": SYSTEMCTL.format(here=folder / "services", off=folder / "off"),
    }
    for name, line in stand_ins.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([SETUP / "packages", *lists], env=environment, check=False, timeout=60)
    assert done.returncode == code
    asked = folder / "asked"
    return asked.read_text().splitlines()[-1].split(", ") if asked.exists() else []


def listed(lists: str = "*") -> set[str]:
    files = (SETUP / "apt").glob(f"{lists}.txt")
    lines = [line for path in files for line in path.read_text().splitlines()]
    return {line.partition("#")[0].strip() for line in lines} - {""}


@needs_root
@pytest.mark.parametrize("has", ["libfastdds-dev", "libfastrtps-dev"])
def test_one_of_two_names_is_enough_and_nothing_installed_is_asked_for(
    has: str, tmp_path: Path
) -> None:
    single = {line for line in listed() if "|" not in line}
    assert asked_for({*single, has}, tmp_path) == []
    assert asked_for(single - {"cpio"} | {has}, tmp_path) == ["cpio"]


@needs_root
def test_where_neither_name_is_installed_apt_is_asked_for_either(tmp_path: Path) -> None:
    single = {line for line in listed() if "|" not in line}
    assert asked_for(single, tmp_path) == ["libfastdds-dev | libfastrtps-dev"]


@needs_root
def test_only_the_lists_that_are_named_are_asked_for(tmp_path: Path) -> None:
    assert set(asked_for(set(), tmp_path, "hosts", "qemu")) == listed("hosts") | listed("qemu")


@needs_root
@pytest.mark.parametrize(("part", "asked"), [("pageshare", True), ("echo", False)])
def test_rust_is_asked_for_by_what_is_written_in_it(part: str, asked: bool, tmp_path: Path) -> None:
    assert ("cargo-web" in asked_for(set(), tmp_path, part, rust="1.63.0")) == asked


@needs_root
def test_a_service_that_was_here_runs_on_and_one_that_came_is_switched_off(tmp_path: Path) -> None:
    # By packages that no list names: their vendors', or of one version.
    here = ["nginx.service", "postgresql.service"]
    came = ["rpcbind.service", "rpcbind.socket"]
    installed = {"nginx", "postgresql-16"}
    assert asked_for(installed, tmp_path, "echo", services=here, coming=came) != []
    assert set((tmp_path / "off").read_text().split()) == set(came)


@needs_root
def test_a_service_that_came_is_switched_off_also_where_apt_ends_half_way(tmp_path: Path) -> None:
    came = ["redis-server.service"]
    assert asked_for(set(), tmp_path, "echo", coming=came, code=100) != []
    assert (tmp_path / "off").read_text().split() == came


@needs_root
def test_what_is_held_or_provided_by_another_package_is_here(tmp_path: Path) -> None:
    """Docker's own containerd.io conflicts with Debian's runc, and is one."""
    wanted = listed("hosts") - {"runc", "iproute2"}
    also = "hi  iproute2, \\nii  containerd.io, containerd (= 1.7), runc\\n"
    assert asked_for(wanted, tmp_path, "hosts", also=also) == []


def test_what_a_mirror_has_not_now_is_looked_for_again(tmp_path: Path) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")  # it knows of no mirror
    (tmp_path / "apt-get").chmod(0o755)
    stamps = tmp_path / "stamps"
    stamps.mkdir()
    for done in ("first", "packages"):
        (stamps / done).touch()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MAKEFLAGS": ""}
    make = ["make", "--directory", SETUP.parent, f"STAMPS={stamps}", stamps / "sshd"]
    subprocess.run(make, env=environment, check=True, timeout=60)
    assert not (stamps / "sshd").exists()


@needs_root
def test_a_kept_machine_that_cannot_be_entered_ends_no_process_of_others(tmp_path: Path) -> None:
    # The kernel gives the number of mounts that are gone to those that are made next.
    (tmp_path / "root/root/tare").mkdir(parents=True)
    (tmp_path / "git").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    fresh = [SETUP / "fresh", "--keep", tmp_path, "trixie", "true"]
    other = ["unshare", "--mount", "sh", "-c", "echo; exec sleep 1000"]
    with subprocess.Popen(other, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"\n"
        mounts = Path(f"/proc/{stranger.pid}/ns/mnt").readlink()
        (tmp_path / "mounts").write_text(f"{mounts}\n")
        assert subprocess.run(fresh, env=environment, check=False, timeout=60).returncode == 1
        stranger.terminate()
    assert stranger.returncode == -signal.SIGTERM


def repository(folder: Path, origin: str, suite: str) -> str:
    """Make one with a package in name only; return the line of a sources.list that names it."""
    release = folder / "dists" / suite
    packages = release / "main/binary-amd64/Packages"
    packages.parent.mkdir(parents=True)
    listing = b"Package: hello\nVersion: 1\nArchitecture: amd64\nFilename: hello.deb\nSize: 1\n"
    packages.write_bytes(listing)
    (release / "Release").write_text(
        f"Origin: {origin}\nCodename: {suite}\nSuite: {suite}\nArchitectures: amd64\n"
        "Date: Sat, 01 Jan 2022 00:00:00 UTC\n"
        "Components: main\nSHA256:\n"
        f" {sha256(listing).hexdigest()} {len(listing)} main/binary-amd64/Packages\n"
    )
    return f"deb [trusted=yes arch=amd64] file:{folder} {suite} main\n"


def test_what_is_unpacked_comes_from_debian_whoever_else_has_a_suite_of_that_name(
    tmp_path: Path,
) -> None:
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    origins = {"first": "Other", "debian": "Debian", "last": "Other"}
    lines = [repository(tmp_path / name, of, codename) for name, of in origins.items()]
    (tmp_path / "sources.list").write_text("".join(lines))
    (tmp_path / "lists/partial").mkdir(parents=True)
    settings = {
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": tmp_path / "lists",
        "Dir::Cache": tmp_path / "cache",
        "APT::Sandbox::User": "root",
    }
    (tmp_path / "cache/archives/partial").mkdir(parents=True)
    text = "".join(f'{name} "{value}";\n' for name, value in settings.items())
    (tmp_path / "apt.conf").write_text(text)
    environment = {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf"), "LC_ALL": "C"}
    subprocess.run(["apt-get", "update"], env=environment, check=True, timeout=60)
    unpack = [SETUP / "unpack", "another-suite", tmp_path / "unpacked", "hello"]
    done = subprocess.run(
        unpack, env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert f"setup: file:{tmp_path}/debian/ has no another-suite" in done.stderr


def test_a_set_up_that_finds_no_go_goes_on_and_looks_again(tmp_path: Path) -> None:
    (tmp_path / "unpack").write_text("#!/bin/sh\nexit 100\n")
    (tmp_path / "unpack").chmod(0o755)
    lines = (SETUP / "go").read_text().replace("PATH=$PATH:/usr/local/go/bin", "go() { false; }")
    (tmp_path / "go").write_text(lines)
    done = subprocess.run(
        ["bash", tmp_path / "go", tmp_path / "unpacked"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4
    assert "there will be no gVisor" in done.stderr


def test_no_list_names_a_compiler_of_one_release() -> None:
    numbered = [line for line in listed() if re.search(r"-\d+(-|$)|\d\.\d", line)]
    assert numbered == []


def test_the_package_recommends_what_a_guest_needs():
    control = (SETUP.parent / "packaging/debian/control").read_text()
    tare = control.partition("Package: tare\n")[2].partition("\n\n")[0]
    named = {
        word.split()[0]
        for field in re.findall(r"^(?:Depends|Recommends): (.+)$", tare, re.MULTILINE)
        for word in re.split(r"[,|] *", field)
    }
    assert {*qemu._PACKAGES.values(), "virtiofsd"} <= named
    assert "virtiofsd | qemu-system-x86 (<< 1:8)" in tare  # Debian 12 has it in QEMU's


@pytest.mark.parametrize("there", [True, False])
def test_an_environment_that_was_removed_is_made_anew(there: bool, tmp_path: Path) -> None:
    shutil.copy(SETUP.parent / "Makefile", tmp_path)
    stamps = ("build/.setup/venv", "build/.setup/venv-dev")
    for name in (*stamps, *((".venv/bin/tare",) if there else ())):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    asked = ["make", "-n", "--old-file=build/.setup/first", f"--directory={tmp_path}", *stamps]
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    assert ("python3 -m venv" not in told) == there, told
