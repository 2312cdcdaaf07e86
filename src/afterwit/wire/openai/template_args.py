"""`chat_template_kwargs`: variables that a client gives the chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.wire.fields import as_object, storable, wrong_value

RESERVED_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})
"""Template variables that the renderer sets itself."""


def parse_template_args(value: Any) -> Mapping[str, Any]:
    """The variables. Raises RequestError 400 for those that the renderer sets."""
    arguments = {} if value is None else as_object(value, "chat_template_kwargs")
    taken = sorted(RESERVED_ARGUMENTS.intersection(arguments))
    if taken:
        raise wrong_value("chat_template_kwargs", f"may not set {taken[0]}")
    storable(arguments, "chat_template_kwargs")
    return arguments
