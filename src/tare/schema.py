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
        for name in workload.fields:
            row = workload.levels.rows.get(name) or workload.settings.rows.get(name)
            if row is not None:
                fields[name] = _line(fields.get(name, {}).get("description", row.help))
        rows = workload.levels.rows.values()
        own = bool(workload.fields)
        definitions[f"{workload.name}-levels"] = _mapping(rows, many=True, own=own)
        definitions[f"{workload.name}-level"] = _mapping(rows, many=False, own=own)
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
        "statistic": {"type": "string"} if workload.fields else {"enum": [*workload.statistics]},
        **{name: False for name in sorted(workloads.own_fields()) if name not in workload.fields},
    }
    return {"if": condition, "then": {"properties": properties}}


def _line(description: str) -> dict[str, Any]:
    """A command line, as a text or its words; or a mapping whose values are such."""
    words = {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}
    line = [{"type": "string"}, words]
    named = {"type": "object", "additionalProperties": {"anyOf": line}, "minProperties": 1}
    return {"anyOf": [*line, named], "description": description}


def _mapping(rows: Iterable[Factor[Any]], *, many: bool, own: bool = False) -> dict[str, Any]:
    """What a mapping of rows holds; `own`: and factors of the user's own."""
    parameter = Factor(str, str, "", "A parameter: what stands in the place of its name in braces.")
    return {
        "properties": {row.name: _row(row, many=many) for row in rows},
        "additionalProperties": _row(parameter, many=many) if own else False,
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
    several = [{"type": "array", "items": level, "minItems": 1}]
    if factor.named:
        line = {"anyOf": [{"type": "string"}, {"type": "array", "items": level}]}
        several.append({"type": "object", "additionalProperties": line, "minProperties": 1})
    return {"anyOf": [level, *several], **described}
