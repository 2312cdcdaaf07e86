"""How a hint is put into a prompt."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from afterwit.core.message import Conversation, Message

HEADING = "[user's hint / instruction]"
"""The line above a hint in the hinted prompt."""


class Placement(StrEnum):
    """Where a hint is put in the hinted prompt."""

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
