"""Every link between the repository's pages leads somewhere, and every page can be found."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
_GIT = ("git", "-c", "safe.directory=*", "ls-files")
_NOT_IGNORED = ("--cached", "--others", "--exclude-standard")
PAGES = sorted(
    subprocess.run(
        [*_GIT, *_NOT_IGNORED, "*.md"], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.split()
)
_FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)")


def prose(page: Path) -> str:
    """A page without its examples, in which neither headings nor links are meant."""
    return re.sub(_FENCED, "", page.read_text(encoding="utf-8"))


def anchors(text: str) -> list[str]:
    """What GitHub, and the site, call the headings of a page."""
    headings = re.findall(r"^#+ +(.+?) *#*$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one) for one in headings)
    return [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in plain]


def dead(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere, or to one of several headings."""
    found = []
    for link in _LINK.findall(re.sub(r"`[^`\n]+`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_file() or (anchor and anchors(prose(target)).count(anchor) != 1):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    assert not dead(HOME / page)


def test_every_page_has_one_place_in_the_navigation() -> None:
    conf = runpy.run_path(str(HOME / "docs/site/conf.py"))
    groups = [pages for under in conf["NAVIGATION"].values() for pages in under.values()]
    placed = [f"{page}.md" for pages in groups for page in pages]
    assert sorted([f"{conf['root_doc']}.md", *placed]) == PAGES


_VERSIONS = {
    "echo-samples": ("echo/samples.cc", r"uint32_t version = (\d+)"),
    "history": ("src/tare/history/index.py", r"FORMAT = (\d+)"),
    "pageshare-wire": ("pageshare/wire/src/versions.rs", r"OURS: .* newest: (\d+)"),
    "pageshare-index": ("pageshare/index/src/snapshot.rs", r"VERSION: u16 = (\d+)"),
    "pageshare-kept": ("pageshare/proxy/src/kept/file.rs", r"VERSION: u16 = (\d+)"),
    "nvio-segment": ("nvio/store/segment.h", r"kSegmentVersion = (\d+)"),
    "nvio-redo": ("nvio/log/format.h", r"kLogVersion = (\d+)"),
    "nvio-wire": ("nvio/nodes/wire.h", r"kWireVersion = (\d+)"),
    "nvio-trace": ("nvio/record/trace_format.h", r"kTraceVersion = (\d+)"),
    "walks-matrix": ("walks/header.cc", r"kVersion = (\d+)"),
}
"""Format -> the file that has its version, and where."""


def test_what_is_said_of_an_upgrade_is_of_the_versions_that_are_written() -> None:
    said = re.findall(
        r"^\| \[([\w-]+)\]\(\1\.md\) \| (\d+) \|",
        (HOME / "docs/formats/README.md").read_text(),
        re.MULTILINE,
    )
    written = {}
    for name, (file, where) in _VERSIONS.items():
        (written[name],) = re.findall(where, (HOME / file).read_text())
    assert dict(said) == written


def test_the_picture_of_the_architecture_is_that_of_the_imports() -> None:
    drawn = runpy.run_path(str(HOME / "docs/site/architecture.py"))["picture"]()
    assert (HOME / "docs/architecture.svg").read_text() == drawn, "run `make architecture`"


def test_a_room_without_a_layer_or_an_import_that_points_up_is_no_picture() -> None:
    script = runpy.run_path(str(HOME / "docs/site/architecture.py"))
    layers = script["arrows"].__globals__["LAYERS"]
    layers.update(dict(reversed([(name, layers.pop(name)) for name in list(layers)])))
    with pytest.raises(SystemExit, match=r"imports from .*, which is not below it"):
        script["arrows"]()
    layers.pop("Analysis")
    with pytest.raises(SystemExit, match="analysis has no layer"):
        script["arrows"]()


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    there = "# One `name`, two\n```\n# no heading\n```\n## Twice\n## Twice\n"
    (tmp_path / "there.md").write_text(there)
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md#one-name-two) [b](https://example.org/x) `[c](code.md)`\n"
        "[d](gone.md) [e](there.md#no-heading) [f](there.md#twice) [g](#here)\n"
        "```\n[h](example.md)\n```\n"
    )
    assert dead(page) == ["gone.md", "there.md#no-heading", "there.md#twice", "#here"]
