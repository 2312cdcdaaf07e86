"""The prompts of a turn's teachers: its own prompt with each hint. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from afterwit.core.errors import RequestError
from afterwit.core.judging.hints import Placement, splice
from afterwit.core.lifecycle import Reason
from afterwit.core.message import Conversation
from afterwit.core.turn import Turn


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
