"""The documentation as a site, by Sphinx: `make docs`.

Pages are all Markdown files of the repository, where they lie; a page without a place below fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

project = "Tare"
html_title = "Tare"
html_theme = "furo"  # asks nothing of the network, light and dark
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = html_show_copyright = html_show_sphinx = False
html_show_search_summary = False  # would be fetched, which browsers forbid to file://
extensions = ["myst_parser"]
include_patterns = ["**.md"]
exclude_patterns = [".*", "build", "dist", "results", "target"]
root_doc = "README"
myst_heading_anchors = 6  # as on GitHub
nitpicky = True
highlight_language = "none"  # where an example names none
suppress_warnings = ["misc.highlighting_failure"]  # an example may leave something out

# Page -> title of a group -> the pages of that group, in the order in which readers want them.
NAVIGATION = {
    "README": {
        "Tutorial": [
            "docs/guides/first-result",
            "docs/guides/measure",
        ],
        "How-to": [
            "docs/guides/service",
            "docs/guides/choose-a-middleware",
            "docs/guides/polite",
            "docs/guides/gate",
            "docs/guides/pipeline",
            "docs/guides/history",
            "docs/guides/replay",
            "docs/guides/slurm-experiments",
            "docs/guides/privileges",
            "docs/guides/when-it-goes-wrong",
            "docs/pageshare",
            "docs/nvio",
            "docs/walks",
            "CONTRIBUTING",
        ],
        "Reference": [
            "docs/guides/what-is-measured",
            "docs/exit-codes",
            "docs/migration",
            "docs/mpi-io",
            "docs/formats/README",
            "echo/README",
            "probe/README",
            "nvio/README",
            "testdata/results/README",
            "testdata/foreign/README",
            "testdata/kubevirt/README",
            "SECURITY",
            "CHANGELOG",
        ],
        "Explanation": [
            "docs/guides/how-a-number-becomes-a-claim",
            "docs/method",
            "CLAIMS",
            "src/tare/published/README",
            "ARCHITECTURE",
            "docs/design/README",
            "docs/trials",
        ],
    },
    "docs/pageshare": {
        "": [
            "docs/pageshare/migrate",
            "docs/guides/libvirt",
            "docs/guides/kubevirt",
            *(f"docs/pageshare/{name}" for name in ("sharing", "there-and-back", "worth", "tls")),
            *(f"docs/pageshare/{name}" for name in ("records", "trouble", "testing")),
        ]
    },
    "docs/nvio": {
        "": [
            "docs/nvio/predict",
            "docs/guides/slurm",
            *(f"docs/nvio/{name}" for name in ("cluster", "nodes", "settings", "promises")),
            *(f"docs/nvio/{name}" for name in ("recovery", "limits")),
        ]
    },
    "nvio/README": {"": ["nvio/programs/README"]},
    "docs/formats/README": {
        "": [
            *(f"docs/formats/{name}" for name in ("results", "export", "history", "leftovers")),
            "docs/formats/echo-samples",
            *(f"docs/formats/pageshare-{name}" for name in ("wire", "index", "kept")),
            "docs/formats/qemu-stream",
            *(f"docs/formats/nvio-{name}" for name in ("segment", "redo", "wire", "trace")),
            "docs/formats/walks-matrix",
        ]
    },
    "src/tare/published/README": {
        "": [
            "docs/papers/dds-virtualised",
            "docs/papers/kvm-arm",
            "docs/papers/nvram-cache",
            "docs/papers/page-sharing-migration",
        ]
    },
    "docs/design/README": {
        "": [
            f"docs/design/{name}"
            for name in ("environments", "guests", "trees", "pageshare", "nvio")
        ]
    },
}


def setup(app: Any) -> None:
    """Put the navigation into the pages, which as files are shown by editors and GitHub, too."""
    app.connect("source-read", _navigate)
    app.connect("build-finished", _begin)


def _navigate(_app: Any, page: str, source: list[str]) -> None:
    for title, pages in NAVIGATION.get(page, {}).items():
        lines = ["```{toctree}", ":hidden:", *([f":caption: {title}"] if title else ()), ""]
        source[0] += "\n" + "\n".join([*lines, *(f"/{one}" for one in pages), "```", ""])


def _begin(app: Any, _failure: Exception | None) -> None:
    first = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
    Path(app.outdir, "index.html").write_text(first)
