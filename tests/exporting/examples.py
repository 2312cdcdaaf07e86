"""Examples to export."""

from __future__ import annotations

from typing import Any

from afterwit.exporting.examples import Example
from afterwit.judging.hinted_prompts import splice
from afterwit.turn import Conversation, Message, RecordedTurn, Sampled
from afterwit.verdict import NextState, Source, Verdict
from tests.fakes.turns import a_turn

HINT = "Open the file that was named."
PEOPLE = NextState(messages=(Message(role="user", content="No, the other file."),))
TOOL = NextState(messages=(Message(role="tool", content="not found", tool_call_id="c"),))


def asked(text: str) -> Conversation:
    return Conversation(messages=(Message(role="user", content=text),))


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def an_example(
    id: str,
    reward: int | None,
    *,
    hint: str | None = None,
    next_state: NextState | None = PEOPLE,
    turn: RecordedTurn | None = None,
    changes: dict[str, Any] | None = None,
    **turn_changes: Any,
) -> Example:
    """A judged turn; without a reward, one that waits for the judge."""
    turn = turn or a_turn(id, **{"message": said(f"response of {id}")} | turn_changes)
    hints = () if hint is None else (hint,)
    verdict = None if reward is None else Verdict(reward=reward, source=Source.VOTES, hints=hints)
    fields: dict[str, Any] = {
        "turn": turn,
        "reason": None,
        "verdict": verdict,
        "next_state": next_state,
        "rl": bool(reward),
        "opd": hint is not None,
        "advantage": float(reward or 0),
        "hinted": () if hint is None else splice(turn.conversation, hint).messages,
    }
    return Example(**fields | (changes or {}))


def partly_forced() -> Sampled:
    return Sampled(
        ids=(4, 5, 6), logprobs=(-0.5, -0.25, -1.5), versions=(0, 1, 1), forced=(False, True, False)
    )
