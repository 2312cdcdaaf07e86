"""Puts hints into prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from afterwit.errors import RequestError
from afterwit.lifecycle import Reason
from afterwit.turn import Conversation, Message, Turn

HEADING = "[user's hint / instruction]"
LESSONS = "What this person asked for before:"


def recites(response: Message) -> bool:
    """Whether a response repeats a heading that its teacher reads and the policy does not. Only a model that
    reads neither disapproves of that."""
    said = (response.content, response.reasoning, *(call.arguments for call in response.tool_calls))
    return any(heading in text for heading in (HEADING, LESSONS) for text in said if text)


class Placement(StrEnum):
    """The place of a hint in the hinted prompt."""

    LAST_USER = "last_user"
    """At the end of the last user message: the published form."""
    END = "end"
    """In a user message of its own after everything else: shares the longest prefix with the plain prompt."""


def splice(conversation: Conversation, hint: str, placement: Placement = Placement.LAST_USER) -> Conversation:
    """The conversation whose rendering is the hinted prompt; an empty hint gives it back untouched.

    Without a user message, the hint goes into the last message.
    """
    if not hint.strip():
        return conversation
    added = f"{HEADING}\n{hint}".strip()
    messages = list(conversation.messages)
    if placement is Placement.END:
        messages.append(Message(role="user", content=added))
    else:
        users = [at for at, message in enumerate(messages) if message.role == "user"]
        at = users[-1] if users else len(messages) - 1
        content = f"{messages[at].content or ''}\n\n{added}".strip()
        messages[at] = replace(messages[at], content=content)
    return replace(conversation, messages=tuple(messages))


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

    def rendered(conversation: Conversation) -> tuple[int, ...] | None:
        try:
            return rendering.prompt_ids(conversation)
        except RequestError:
            return None

    if not hints:
        return [], None
    if rendered(turn.conversation) != turn.prompt_ids:
        return [], Reason.RENDER_MISMATCH
    spliced = [(hint, rendered(splice(turn.conversation, hint, placement))) for hint in hints]
    prompts = [(hint, ids) for hint, ids in spliced if ids is not None]
    kept = [(hint, ids) for hint, ids in prompts if len(ids) <= room]
    if kept:
        return kept, None
    return [], Reason.TOO_LONG if prompts else Reason.RENDER_MISMATCH
