"""Draw docs/architecture.svg: the lab's rooms in layers, by imports, and the programs beside it.

An arrow says that what it leaves imports what it enters; one that follows from others is left out.
A room without a layer, or an import that points up, is an error.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

HOME = Path(__file__).parents[2]
LAB = HOME / "src/tare"

# From top to bottom: layer, what it is for, its rooms.
LAYERS = {
    "Command line": ("parse, call, print", "cli __main__"),
    "Before a run, and the run": (
        "one trial after another",
        "draft check schema doctor preflight rehearsal runner lanes operations slurm unmixed",
    ),
    "After a run": (
        "pages, tables, files, verdicts",
        "report export compare compared sides foreign history catalogue outcome identity replay"
        " predict",
    ),
    "Analysis": ("from a record to what may be said of it", "analysis"),
    "Record": ("append-only results", "record suite variables progress"),
    "Plan": (
        "what is asked: cells, order, seeds",
        "experiment canonical plan rounds answerable cuts repetition pairing",
    ),
    "Workloads": ("what a trial is", "workloads filesystems clocks interference testing"),
    "Environments": (
        "where it runs",
        "environments guests far trees host hosts site wire relay",
    ),
    "Machine": (
        "processes, namespaces, what is owed",
        "bounds capabilities process command failures events leftovers interrupts undo machine"
        " meanwhile packages stress_ng accounting uprobes netns mounts placement homes rootless"
        " tree",
    ),
    "Values": (
        "numbers, words, rows",
        "stats published levels cell units document lines told errors stopwatch stepwise pauses"
        " discovery transports tools destination __init__",
    ),
}
BESIDE = {("Before a run, and the run", "After a run")}  # in one row, since neither needs the other

WIDTH, MARGIN, GAP, LINE, PAD = 600, 16, 26, 18, 12
LETTER = 7.9  # width of one of the monospaced names, at their size
STYLE = """
  .page { fill: #ffffff; } .box { fill: #f3f6fa; stroke: #8a99ab; } .native { fill: #fdf4e7; }
  text { font: 13px ui-monospace, monospace; fill: #1c2733; }
  .title { font: bold 14px system-ui, sans-serif; }
  .aim { font: 13px system-ui, sans-serif; fill: #4b5a69; }
  .arrow { stroke: #4b5a69; stroke-width: 1.5; fill: none; } .tip { fill: #4b5a69; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14181d; } .box { fill: #1f2731; stroke: #61707f; } .native { fill: #2e2619; }
    text { fill: #e2e8ee; } .aim { fill: #a9b5c1; }
    .arrow { stroke: #a9b5c1; } .tip { fill: #a9b5c1; }
  }
"""


def imported(path: Path) -> set[str]:
    """The rooms of the lab that a file imports from."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("tare.")}


def arrows() -> set[tuple[str, str]]:
    """Layer -> layer that it needs, without what follows from others."""
    of = {room: layer for layer, (_, rooms) in LAYERS.items() for room in rooms.split()}
    needs: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    present = set()
    for path in sorted(LAB.rglob("*.py")):
        room = path.relative_to(LAB).parts[0].removesuffix(".py")
        if room not in of:
            raise SystemExit(f"architecture: {room} has no layer: give it one in {__file__}")
        present.add(room)
        needs[of[room]] |= {of[one] for one in imported(path) if one in of} - {of[room]}
    if gone := set(of) - present:
        raise SystemExit(f"architecture: there is no {', '.join(sorted(gone))} any more")
    order = list(LAYERS)
    for layer, below in needs.items():
        for one in below:
            if (
                order.index(one) < order.index(layer)
                or (one, layer) in BESIDE
                or (layer, one) in BESIDE
            ):
                raise SystemExit(f"architecture: {layer} imports from {one}, which is not below it")
    return {
        (layer, one)
        for layer, below in needs.items()
        for one in below
        if not any(one in _reached(other, needs) for other in below - {one})
    }


def _reached(layer: str, needs: dict[str, set[str]]) -> set[str]:
    return needs[layer].union(*(_reached(one, needs) for one in needs[layer]))


def programs() -> dict[str, tuple[str, str]]:
    """The native parts: name -> what for, rooms."""
    proxy = (HOME / "pageshare/proxy/Cargo.toml").read_text(encoding="utf-8")
    crates = " ".join(sorted(set(re.findall(r"^pageshare-(\w+)", proxy, re.MULTILINE))))
    apart = {"tests", "bench", "programs", "conformance", "clusters"}
    built = {path.parent.name for path in (HOME / "nvio").glob("*/*.cc")} - apart
    sources = (path.stem for path in (HOME / "echo/transports").glob("*.cc"))
    transports = " ".join(sorted(name for name in sources if not name.endswith("_test")))
    return {
        "echo (C++)": ("a client and a server a transport", transports),
        "probe (C++)": ("unit costs; runs and times a command", ""),
        "pageshare (Rust)": ("live migration by content", f"proxy → {crates}"),
        "nvio (C++)": ("a cache under MPI-IO", " ".join(sorted(built))),
        "walks (C++)": ("powers of matrices out of MPI-IO files", ""),
    }


class Drawing:
    """Boxes with text, from top to bottom; places of those that arrows lead to."""

    def __init__(self) -> None:
        self.boxes: list[str] = []
        self.places: dict[str, tuple[float, ...]] = {}  # width, middle, top, bottom
        self.at = float(MARGIN)

    def row(self, entries: list[tuple[str, str, str]], *, kind: str = "") -> None:
        """Draw boxes (title, aim, rooms) beside each other, as high as the highest."""
        width = (WIDTH - 2 * MARGIN - (len(entries) - 1) * MARGIN) / len(entries)
        texts = []
        for title, aim, rooms in entries:
            room = int((width - 2 * PAD) / LETTER)
            together = len(title) * 8.5 + len(aim) * 6.6 < width - 3 * PAD
            head = [("title", title), ("aim", aim)]
            named = " ".join(one for one in rooms.split() if not one.startswith("__"))
            texts.append((together, head, textwrap.wrap(named, room)))
        lines = max((1 if together else 2) + len(names) for together, _, names in texts)
        height = lines * LINE + 1.5 * PAD
        for at, (together, head, names) in enumerate(texts):
            left = MARGIN + at * (width + MARGIN)
            self.boxes.append(
                f'<rect class="box {kind}" x="{left:g}" y="{self.at:g}" width="{width:g}"'
                f' height="{height:g}" rx="6"/>'
            )
            y = self.at + PAD + LINE / 2
            self._text(left + PAD, y, *head[0])
            if together:
                self._text(left + width - PAD, y, *head[1], end=True)
            else:
                y += LINE
                self._text(left + PAD, y, *head[1])
            for name in names:
                y += LINE
                self._text(left + PAD, y, "", name)
            self.places[head[0][1]] = (width, left + width / 2, self.at, self.at + height)
        self.at += height + GAP

    def _text(self, x: float, y: float, kind: str, said: str, *, end: bool = False) -> None:
        anchor = ' text-anchor="end"' if end else ""
        self.boxes.append(f'<text class="{kind}" x="{x:g}" y="{y:g}"{anchor}>{said}</text>')


def picture() -> str:
    """Return the whole drawing as SVG."""
    drawing = Drawing()
    second = {below for _, below in BESIDE}
    for layer in LAYERS:
        if layer not in second:
            row = [layer, *(other for first, other in BESIDE if first == layer)]
            drawing.row([(name, *LAYERS[name]) for name in row])
    lines = [_arrow(drawing.places[one], drawing.places[other]) for one, other in sorted(arrows())]
    drawing.boxes.append(
        f'<text class="aim" x="{MARGIN}" y="{drawing.at:g}">The lab starts programs,'
        " reads what they print and write, and links none of them:</text>"
    )
    drawing.at += LINE
    parts = [(name, *said) for name, said in programs().items()]
    for pair in (parts[:2], parts[2:4], parts[4:]):
        drawing.row(pair, kind="native")
        drawing.at -= GAP - MARGIN
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img"'
        f' viewBox="0 0 {WIDTH} {drawing.at:g}">\n'
        "<title>The layers of the lab, by imports, and the programs that it starts</title>\n"
        f'<style>{STYLE}</style>\n<rect class="page" width="100%" height="100%" rx="8"/>\n'
        + "\n".join([*lines, *drawing.boxes])
        + "\n</svg>\n"
    )


def _arrow(above: tuple[float, ...], below: tuple[float, ...]) -> str:
    x = min(above, below)[1]  # the middle of the narrower
    start, end = above[3], below[2]
    return (
        f'<path class="arrow" d="M{x:g} {start:g}V{end - 6:g}"/>'
        f'<path class="tip" d="M{x - 5:g} {end - 8:g}h10l-5 8z"/>'
    )


if __name__ == "__main__":
    (HOME / "docs/architecture.svg").write_text(picture(), encoding="utf-8")
