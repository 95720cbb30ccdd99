"""pageshare's board for Grafana is one: Grafana's own schema keeps all of it."""

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

BOARD = Path(__file__).parents[1] / "pageshare/grafana/pageshare.json"


def lost(written: object, read: object, at: str = "") -> list[str]:
    """Where what was written is not what was read; what is read may have more, as defaults."""
    if isinstance(written, dict) and isinstance(read, dict):
        return [x for k, v in written.items() for x in lost(v, read.get(k), f"{at}/{k}")]
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        each = enumerate(zip(written, read, strict=True))
        return [x for i, (a, b) in each for x in lost(a, b, f"{at}/{i}")]
    return [] if written == read else [f"{at}: {written!r}, read as {read!r}"]


def test_grafana_knows_every_field_of_the_board() -> None:
    register_default_plugins()
    written = json.loads(BOARD.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert lost(written, read) == []
    wrong = {**written, "panels": [{**written["panels"][0], "tittle": "?"}]}
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))
    assert lost(wrong, read) == ["/panels/0/tittle: '?', read as None"]


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(BOARD.read_text())["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
