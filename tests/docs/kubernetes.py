"""Kubernetes' own schemas of the kinds in `deploy/kubernetes`: `kubernetes-1.30.json`, one definition a line.

`python -m tests.docs.kubernetes FILE` writes them, for another release or another kind. FILE is the
`_definitions.json` of a release in its strict form, as the package `kubernetes-validate` brings it for every
release (108 MB).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMAS = Path(__file__).with_name("kubernetes-1.30.json")
KINDS = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
    ("apps/v1", "StatefulSet"): "io.k8s.api.apps.v1.StatefulSet",
}
"""The definition of each kind, by its API and its name."""


def faults(document: dict[str, Any]) -> list[str]:
    """Faults for which Kubernetes would refuse a manifest, unknown fields too. KeyError outside `KINDS`."""
    validator = _validator(KINDS[document["apiVersion"], document["kind"]])
    return [error.message for error in validator.iter_errors(document)]


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    definitions = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    return jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": definitions})


def _named(schema: Any) -> Iterator[str]:
    """The definitions that a schema refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for inner in schema.values():
            yield from _named(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _named(inner)


def _rules(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without its descriptions."""
    kept = {key: value for key, value in schema.items() if key != "description" and not key.startswith("x-")}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _rules(kept[key])
    if "properties" in kept:
        kept["properties"] = {name: _rules(inner) for name, inner in kept["properties"].items()}
    return kept


def main(file: Path) -> None:
    definitions = json.loads(file.read_text(encoding="utf-8"))["$defs"]
    wanted, found = list(KINDS.values()), dict[str, Any]()
    while wanted:
        if (name := wanted.pop()) not in found:
            found[name] = _rules(definitions[name])
            wanted += _named(found[name])
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    SCHEMAS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
