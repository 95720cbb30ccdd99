"""What `make packages` makes. That it installs, works and goes is `make try-packages`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from needs import HOME, read_by_man

PACKAGES = ("nvio", "pageshare", "tare", "walks")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The packages of this build, made twice: in other places, by others, at other times of day."""
    made = []
    for zone, umask in (("UTC", 0o022), ("Asia/Tokyo", 0o077)):
        folder = tmp_path_factory.mktemp("packed")
        subprocess.run(
            [HOME / "packaging/pack", folder / "dist", folder / "work"],
            env={**os.environ, "TZ": zone, "COMPRESSED": "-Znone"}, umask=umask, check=True,
            timeout=580,
        )  # fmt: skip
        made.append(folder)
    return made[0], made[1]


@pytest.fixture(scope="module")
def installed(packed: tuple[Path, Path]) -> Path:
    """A root with nothing but what the native programs' packages hold."""
    root = packed[0] / "root"
    for package in PACKAGES:
        if package != "tare":
            (file,) = (packed[0] / "dist").glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "--extract", file, root], check=True, timeout=60)
    return root


@pytest.mark.timeout(1200)
def test_two_builds_are_equal_byte_for_byte(packed: tuple[Path, Path]) -> None:
    first, second = (
        {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in (folder / "dist").iterdir()
        }
        for folder in packed
    )
    assert first == second
    assert sorted(name.split("_")[0] for name in first) == sorted(("tare", *PACKAGES))


def test_a_daemon_outlives_an_upgrade_and_no_removal(
    packed: tuple[Path, Path], tmp_path: Path
) -> None:
    """As debhelper writes it for what was enabled by hand: stopped before, it stayed so."""
    (file,) = (packed[0] / "dist").glob("pageshare_*.deb")
    subprocess.run(["dpkg-deb", "--control", file, tmp_path], check=True, timeout=60)
    scripts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "stop" not in scripts.get("preinst", "")
    assert "try-restart" in scripts["postinst"]
    assert "deb-systemd-invoke stop pageshare-index.service" in scripts["prerm"]


def test_an_sbom_names_what_was_compiled_in(installed: Path) -> None:
    boms = {
        package: json.loads(
            (installed / f"usr/share/doc/{package}/sbom.cdx.json").read_text(encoding="utf-8")
        )
        for package in ("pageshare", "nvio")
    }
    named = {package: {c["name"] for c in bom["components"]} for package, bom in boms.items()}
    assert {"rustls", "zstd", "blake3"} <= named["pageshare"]
    assert not {"criterion", "clap_derive", "pageshare-wire"} & named["pageshare"]
    assert named["nvio"] == {"libcli11-dev", "nlohmann-json3-dev"}


def test_transports_of_the_wheel_find_their_libraries_wherever_they_are_put(
    packed: tuple[Path, Path], tmp_path: Path
) -> None:
    (wheel,) = (packed[0] / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    echo = (tmp_path / "tare/shipped/build/echo").rename(tmp_path / "guest")
    said = subprocess.run(
        ["ldd", echo / "echo-fastdds", echo / "echo-cyclonedds", echo / "echo-zeromq"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "not found" not in said
    assert {"echo-libzmq.so.5", "echo-libssl.so.3"} <= {
        Path(line.split()[2]).name for line in said.splitlines() if f"=> {echo}" in line
    }


BASH = 'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _$2; echo "${COMPREPLY[@]}"'
ZSH = """
_arguments() { print -r -- "$*" }
_describe() { print -r -- ${(P)2} }
file=$1; shift; words=("$@"); CURRENT=$#; source $file
"""
FISH = "source $argv[1]; complete --do-complete (string join ' ' -- $argv[2..])"
SCRIPTS = {
    "bash": (["bash", "-c", BASH, "-"], "bash-completion/completions/{}"),
    "zsh": (["zsh", "-c", ZSH, "-"], "zsh/vendor-completions/_{}"),
    "fish": (["fish", "--no-config", "-c", FISH], "fish/vendor_completions.d/{}.fish"),
}
COMPLETED = [
    (("nvio", "calib"), "calibrate"),
    (("nvio", "run", "--sto"), "--store"),
    (("pageshare", "receive", "--sco"), "--scope"),
    (("walks", "power", "--mem"), "--memory"),
]


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_a_shell_completes_a_native_program(
    installed: Path, shell: str, words: tuple[str, ...], expected: str
) -> None:
    argv, place = SCRIPTS[shell]
    script = installed / "usr/share" / place.format(words[0])
    said = subprocess.run(
        [*argv, str(script), *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert not said.stderr, said.stderr
    assert expected in said.stdout


def test_every_page_is_one_that_man_reads_without_a_complaint(installed: Path) -> None:
    pages = {page.name: page for page in (installed / "usr/share/man/man1").iterdir()}
    assert {"nvio-run.1.gz", "pageshare-migrate.1.gz", "walks-power.1.gz"} <= set(pages)
    for page in pages.values():
        read_by_man(page)


@pytest.mark.parametrize("unit", ["pageshare-index.service", "pageshare-receive@.service"])
def test_a_unit_starts_the_program_where_the_package_has_it(installed: Path, unit: str) -> None:
    (file,) = installed.rglob(unit)
    (started,) = (
        line.partition("=")[2].split()[0]
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("ExecStart=")
    )
    assert os.access(installed / started.lstrip("/"), os.X_OK)
