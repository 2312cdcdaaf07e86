"""Which hints of a rollout teach. A hint that what a tool returned has planted would be obeyed for ever."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.judging.hindsight import view_of
from afterwit.core.message import Message
from afterwit.core.teaching.hint_flags import unplanted
from afterwit.core.turn import Turn
from afterwit.core.verdict import NextState


def sound_hints(turn: Turn, next_state: NextState, hints: Sequence[str]) -> tuple[str, ...]:
    """The hints that no tool can have planted: see `unplanted`.

    The outcome of a task tells what a solution returned and raised, so its words are a tool's.
    """
    return unplanted(hints, view_of(turn.conversation, turn.message, _by_tools(next_state)))


def _by_tools(next_state: NextState) -> NextState:
    outcome = next_state.feedback
    words = outcome.text if outcome and outcome.text else ""
    return NextState(messages=(*next_state.messages, Message(role="tool", content=words)))
