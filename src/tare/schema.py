"""The JSON Schema of experiment files and suites, for editors.

It is made of the rows that validate a file (`Workload.levels`), a branch a workload: factors of
one name mean different things in different workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare import workloads
from tare.experiment import Experiment
from tare.levels import Factor
from tare.suite import Suite
from tare.workloads import AnyWorkload

_LEVELS = "factors"
"""The field that maps a factor to one level or several."""
_FAMILY = "family"
"""The field that does so too, or is the word `none`."""
_RULES = ("exclude", "a_a")
"""Lists of such mappings."""
_ONE_LEVEL = ("baseline", "floor")
"""Fields that map a factor to exactly one level."""


def json_schema() -> dict[str, Any]:
    """Return the schema: of a suite where a file has parts, else of an experiment."""
    experiment = Experiment.model_json_schema()
    definitions = experiment.pop("$defs")
    fields = experiment["properties"]
    kinds = workloads.by_name()
    fields["workload"]["enum"] = list(kinds)
    for name in (_LEVELS, _FAMILY, *_RULES, *_ONE_LEVEL, "session"):
        # The branches say what they hold.
        kind: Any = "array" if name in _RULES else "object"
        kind = ["object", "string"] if name == _FAMILY else kind
        fields[name] = {"type": kind, "description": fields[name].get("description", "")}
    for workload in kinds.values():
        rows = workload.levels.rows.values()
        definitions[f"{workload.name}-levels"] = _mapping(rows, many=True)
        definitions[f"{workload.name}-level"] = _mapping(rows, many=False)
    experiment["allOf"] = [_branch(workload, fields["workload"]) for workload in kinds.values()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        "if": {"required": ["parts"]},
        "then": Suite.model_json_schema(),
        "else": experiment,
    }


def _branch(workload: AnyWorkload, field: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields hold that are a workload's own; the default's branch is also that of none."""
    condition: dict[str, Any] = {"properties": {"workload": {"const": workload.name}}}
    if workload.name != field["default"]:
        condition["required"] = ["workload"]
    levels = {"$ref": f"#/$defs/{workload.name}-levels"}
    properties: dict[str, Any] = {
        _LEVELS: levels,
        _FAMILY: {"anyOf": [{"const": "none"}, levels]},
        **{name: {"items": levels} for name in _RULES},
        **{name: {"$ref": f"#/$defs/{workload.name}-level"} for name in _ONE_LEVEL},
        "session": _mapping(workload.settings.rows.values(), many=False),
        "statistic": {"enum": list(workload.statistics)},
    }
    return {"if": condition, "then": {"properties": properties}}


def _mapping(rows: Iterable[Factor[Any]], *, many: bool) -> dict[str, Any]:
    return {
        "properties": {row.name: _row(row, many=many) for row in rows},
        "additionalProperties": False,
    }


def _row(factor: Factor[Any], *, many: bool) -> dict[str, Any]:
    level: dict[str, Any] = {"type": ["string", "number"]}
    if factor.choices:
        level = {"enum": list(factor.choices)}
    elif factor.examples:
        level["examples"] = list(factor.examples)
    described = {"description": factor.help, "default": factor.default}
    if not many:
        return {**level, **described}
    return {"anyOf": [level, {"type": "array", "items": level, "minItems": 1}], **described}
