"""Hints in prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from afterwit.errors import RequestError
from afterwit.lifecycle import Reason
from afterwit.message import Conversation, Message
from afterwit.turn import Turn

HEADING = "[user's hint / instruction]"
"""The line above a hint in the hinted prompt."""


class Placement(StrEnum):
    """The place of a hint in the hinted prompt."""

    LAST_USER = "last_user"
    """At the end of the last user message: the published form."""
    END = "end"
    """In a user message of its own after everything else: shares the longest prefix with the plain prompt."""


def splice(conversation: Conversation, hint: str, placement: Placement = Placement.LAST_USER) -> Conversation:
    """The conversation whose rendering is the hinted prompt; an empty hint gives it back untouched."""
    if not hint.strip():
        return conversation
    if placement is Placement.END:
        added = Message(role="user", content=_with_hint("", hint))
        return replace(conversation, messages=(*conversation.messages, added))
    messages = list(conversation.messages)
    at = _last_user(messages)
    messages[at] = replace(messages[at], content=_with_hint(messages[at].content or "", hint))
    return replace(conversation, messages=tuple(messages))


def _with_hint(content: str, hint: str) -> str:
    return f"{content}\n\n{HEADING}\n{hint}".strip()


def _last_user(messages: list[Message]) -> int:
    """Index of the last user message; without one, of the last message."""
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else len(messages) - 1


class Rendering(Protocol):
    """Conversations to prompt ids; RequestError if the template refuses."""

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]: ...


def hinted_prompts(
    turn: Turn, hints: Sequence[str], rendering: Rendering, placement: Placement, room: int
) -> tuple[list[tuple[str, tuple[int, ...]]], Reason | None]:
    """Each hint with the ids of its prompt, if these are at most `room`; and a reason if no hint is left.

    No hint is left if the turn's messages no longer render to its stored prompt, or if the template refuses
    every hinted one.
    """
    if not hints:
        return [], None
    if _rendered(turn.conversation, rendering) != turn.prompt_ids:
        return [], Reason.RENDER_MISMATCH
    spliced = [(hint, _rendered(splice(turn.conversation, hint, placement), rendering)) for hint in hints]
    rendered = [(hint, ids) for hint, ids in spliced if ids is not None]
    if not rendered:
        return [], Reason.RENDER_MISMATCH
    kept = [(hint, ids) for hint, ids in rendered if len(ids) <= room]
    return kept, None if kept else Reason.TOO_LONG


def _rendered(conversation: Conversation, rendering: Rendering) -> tuple[int, ...] | None:
    try:
        return rendering.prompt_ids(conversation)
    except RequestError:
        return None
