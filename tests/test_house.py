"""Conventions that matter, as tests."""

import ast
import json
import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import claims
from claims import ledger

HOME = Path(__file__).parents[1]


def files(pattern: str) -> list[Path]:
    """Of this checkout; a room that is called otherwise by now is not one that keeps the rule."""
    found = sorted(HOME.glob(pattern))
    assert found, pattern
    return found


LAB = files("src/tare/**/*.py")
SOURCES = [*LAB, *files("claims/**/*.py")]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


SPAWNERS = re.compile(
    r"os\.(system|popen|fork\w*|spawn\w+|posix_spawnp?|exec[lv]\w*)"
    r"|asyncio\.create_subprocess_\w+|subprocess\.\w+|multiprocessing\.Process|pty\.\w+"
)


def calls(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def test_only_process_spawns():
    spawning = {
        path.relative_to(HOME).as_posix()
        for path in SOURCES
        if "subprocess" in imports(path) or any(map(SPAWNERS.fullmatch, calls(path)))
    }
    # claims/crash.py kills tare itself, which process.py would not let it survive.
    assert spawning == {"src/tare/process.py", "claims/crash.py"}


def test_the_lab_knows_no_claims():
    for path in LAB:
        if path != HOME / "src/tare/cli/claim.py":
            assert not any(name.split(".")[0] == "claims" for name in imports(path)), path


def test_rooms_import_each_other_in_one_direction():
    rooms: dict[str, set[str]] = {}
    for path in LAB:
        room = path.relative_to(HOME / "src/tare").parts[0].removesuffix(".py")
        used = {i.split(".")[1] for i in imports(path) if i.startswith("tare.")}
        rooms.setdefault(room, set()).update(used - {room})
    TopologicalSorter(rooms).prepare()  # raises CycleError, which names the circle


def test_rooms_of_nvio_know_only_those_below():
    nvio = HOME / "nvio"
    lines = (nvio / "README.md").read_text().split("```")[-2].split("\n")
    height = {room: -at for at, line in enumerate(lines) for room in line.split(", ") if room}
    for path in (path for room in height for path in (nvio / room).iterdir()):
        for included in re.findall(r'^#include "\.\./(\w+)/', path.read_text(), re.MULTILINE):
            assert height[included] < height[path.parent.name], f"{path} includes from {included}/"
    apart = {"bench", "conformance", "programs", "tests"}
    assert set(height) == {path.parent.name for path in nvio.glob("*/*.cc")} - apart


def test_the_spack_recipe_of_nvio_names_what_its_build_requires():
    built = (HOME / "nvio/CMakeLists.txt").read_text().partition("if(BUILD_TESTING)")[0]
    recipe = (HOME / "nvio/clusters/spack/package.py").read_text()
    for name in re.findall(r"find_package\((?!Threads)(\w+)", built):
        package = name.lower().rstrip("3").replace("_", "-")
        assert re.search(f'depends_on\\("{package}["@]', recipe), name


def test_statistics_know_no_files_and_nothing_else_of_tare():
    for path in files("src/tare/stats/*.py"):
        foreign = {i for i in imports(path) if i.startswith("tare") and "tare.stats" not in i}
        assert not foreign, path
        assert not imports(path) & {"pathlib", "os", "io", "json"}, path


def test_the_report_computes_nothing():
    computing = {"statistics", "numpy", "scipy", "scipy.stats", "pyarrow"}
    for path in files("src/tare/report/**/*.py"):
        assert not imports(path) & computing, path


def test_analysis_draws_nothing():
    for path in files("src/tare/analysis/*.py"):
        assert not imports(path) & {"jinja2", "rich"}, path


def test_no_room_is_called_util():
    names = {part for p in SOURCES for part in p.relative_to(HOME).with_suffix("").parts}
    assert not names & {"util", "utils", "common", "helpers", "misc"}


def test_the_results_in_claims_md_are_the_recorded_ones():
    assert ledger.table(HOME, claims.every()) in (HOME / "CLAIMS.md").read_text(), (
        "run `tare claim table --write`"
    )


def test_every_recorded_result_belongs_to_a_claim():
    known = {claim.id for claim in claims.every()}
    for path in files("claims/*.json"):
        assert json.loads(path.read_text())["id"] in known


def test_every_package_that_is_installed_has_its_reason():
    for path in files("setup/apt/*.txt"):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                assert re.fullmatch(r"[a-z0-9.+-]+( \| [a-z0-9.+-]+)? +# .+", line), (
                    f"{path.name}: {line}"
                )


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/trials.md"])
def test_each_row_names_a_test_that_there_is(page):
    rows = re.findall(r"^\| (?!promised|found).*", (HOME / page).read_text(), re.MULTILINE)
    assert rows
    for line in rows:
        named = re.findall(r"`([\w/.]+)`: ((?:`\w+`(?:, )?)+)", line)
        assert named, line
        for path, tests in named:
            text = (HOME / path).read_text()
            for test in re.findall(r"`(\w+)`", tests):
                assert re.search(rf"(def |fn |, |int ){test}\(|, {test}\)", text), f"{path}: {test}"


def test_the_makefile_explains_each_target():
    said = subprocess.run(["make", "help"], cwd=HOME, capture_output=True, text=True, check=True)
    for target in ("run", "test", "lint", "fmt", "bench", "claims", "help"):
        assert re.search(rf"^{target} +\S", said.stdout, re.MULTILINE), target


def test_no_pipeline_ends_in_what_stops_reading_early():
    """Under `pipefail` whoever still writes then fails, by chance: `make test` once did."""
    scripts = subprocess.run(
        ["setup/scripts"], cwd=HOME, capture_output=True, text=True, check=True
    )
    for name in ["Makefile", *scripts.stdout.split()]:
        text = (HOME / name).read_text()
        if "pipefail" in text:
            found = re.search(r"\| *(head\b|grep -\w*q|sed [0-9]+q).*", text)
            assert not found, f"{name}: {found[0]}"
