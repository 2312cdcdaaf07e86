"""JSON that somebody else may have written, as one of our types: each value has to be of its kind."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def parsed(kind: type[T], text: str | bytes) -> T:
    """The value in the text. Unknown fields are left out. ValueError, which says in a line what is wrong."""
    key: Any = kind
    try:
        found: T = _adapter(key).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
