"""A call as the model wrote it, and what the request says of its tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_SURROGATE = re.compile("[\ud800-\udfff]")

Schemas = Mapping[str, Any]
"""The JSON schema of each tool's parameters, by the tool's name."""


class WrittenCall(NamedTuple):
    """A call as the model wrote it; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def written(name: str, arguments: str | None) -> list[WrittenCall]:
    """The call, alone. Empty without a name or arguments, or if half a surrogate pair could not be sent."""
    if not name or arguments is None or _SURROGATE.search(name + arguments):
        return []
    return [WrittenCall(name, arguments)]


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas of a request's tools; the schema is None if a tool declares none."""
    functions = [tool.get("function") for tool in tools]
    found = [function if isinstance(function, Mapping) else {} for function in functions]
    return {str(function.get("name")): function.get("parameters") for function in found}
