"""How models write tool calls and reasoning: one file for each family, and the table that chooses."""

from afterwit.wire.model_text.conventions.convention import THINK, CallMarks, Convention, Thought
from afterwit.wire.model_text.conventions.table import (
    AUTO,
    CONVENTIONS,
    NO_CALLS,
    check_name,
    convention_of,
    holds_unread_call,
    names,
    unknown_template,
)

__all__ = [
    "AUTO",
    "CONVENTIONS",
    "NO_CALLS",
    "THINK",
    "CallMarks",
    "Convention",
    "Thought",
    "check_name",
    "convention_of",
    "holds_unread_call",
    "names",
    "unknown_template",
]
