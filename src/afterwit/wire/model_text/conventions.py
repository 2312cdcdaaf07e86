"""How models write tool calls: one table entry for each convention.

A new family of models is a new entry of CONVENTIONS. `convention_of` chooses by the chat template.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from afterwit.wire.model_text.call_json import WrittenCall, ends_in_a_string, parse_call, parse_calls
from afterwit.wire.model_text.reasoning import END_THINK, THINK


def _read_nothing(text: str) -> list[WrittenCall]:
    return []


def _never(text: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One way of writing tool calls.

    Calls are between `begin` and `end` anywhere in the response, or the whole response is made of calls
    and starts with one of `openings`.
    """

    name: str
    taught_by: Callable[[str], bool]
    """Whether a chat template teaches this convention."""
    begin: str = ""
    """Marks the beginning of a call. Empty: there are no calls within text."""
    end: str = ""
    openings: tuple[str, ...] = ()
    """A response that starts with one of these is held back to its end, then read as calls."""
    read: Callable[[str], list[WrittenCall]] = _read_nothing
    """The calls in the text between the marks, or in the whole response. Empty if it is anything else."""
    quotes_end: Callable[[str], bool] = _never
    """Whether text between the marks stops inside a quoted string, so that the `end` after it is quoted."""
    arguments_key: str = ""
    """The JSON key of a call's arguments, for a forced opening. Empty: calls cannot be forced."""

    def forced_opening(self, name: str | None, *, reasoning: bool) -> str:
        """The text that makes a response call a tool: any, or the one named. Empty if it cannot be forced.

        `reasoning`: the prompt left the reasoning open, which is closed first.
        """
        if not self.arguments_key:
            return ""
        closed = f"\n{END_THINK}\n\n" if reasoning else ""
        begun = f"{self.begin}\n" if self.begin else ""
        opening = f'{closed}{begun}{{"name": "'
        if name is None:
            return opening
        return f'{opening}{json.dumps(name, ensure_ascii=False)[1:]}, "{self.arguments_key}": {{'


PYTHON_TAG = "<|python_tag|>"


def _read_one(text: str) -> list[WrittenCall]:
    call = parse_call(text)
    return [] if call is None else [call]


def _read_llama(text: str) -> list[WrittenCall]:
    return parse_calls(text.strip().removeprefix(PYTHON_TAG))


HERMES = Convention(
    name="hermes",  # and Qwen3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one or more
    taught_by=lambda template: "<tool_call>" in template and "<function=" not in template,
    begin="<tool_call>",
    end="</tool_call>",
    read=_read_one,
    quotes_end=ends_in_a_string,
    arguments_key="arguments",
)
LLAMA = Convention(
    name="llama",  # Llama 3: the whole response is `{"name": ..., "parameters": {...}}`, one or more
    taught_by=lambda template: (
        '"parameters"' in template and ("ipython" in template or PYTHON_TAG in template)
    ),
    openings=("{", PYTHON_TAG),
    read=_read_llama,
    arguments_key="parameters",
)
CONVENTIONS = (HERMES, LLAMA)
"""In the order in which `convention_of` tries them."""

NO_CALLS = Convention(name="none", taught_by=lambda template: True)
"""For a request without tools, and for a template that teaches no convention of the table."""

MARKERS = frozenset({THINK, END_THINK, PYTHON_TAG}).union(
    mark for convention in CONVENTIONS for mark in (convention.begin, convention.end) if mark
)
"""Texts that the response parser must see, even if a tokenizer calls them special."""


def convention_of(template: str) -> Convention:
    """The convention that a chat template teaches, NO_CALLS if it teaches none of the table."""
    return next((entry for entry in CONVENTIONS if entry.taught_by(template)), NO_CALLS)


def holds_unread_call(content: str) -> bool:
    """Whether content holds the beginning of a call that could not be read."""
    return any(entry.begin and entry.begin in content for entry in CONVENTIONS)
