"""Explicit feedback on a turn, as `POST /v1/feedback` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.ids import choice_turn, turn_of_response
from afterwit.core.lifecycle import State
from afterwit.core.verdict import Feedback

REWARDS = {"thumb": {"up": 1, "down": -1}, "verdict": {"success": 1, "failure": -1}}
MAX_CHOICE = 127
MAX_TEXT = 20_000
"""Characters."""

_TRAINED = "Recorded only: the turn has trained already."
_ENDED = "Recorded only: the turn does not train."


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRequest:
    """The turn, and the feedback on it."""

    turn: str
    feedback: Feedback


def parse_feedback(body: Mapping[str, Any]) -> FeedbackRequest:
    """`{response_id, choice?}` or `{turn}`, with `thumb`, `verdict` or `text`. Raises RequestError(400)."""
    reward, text = _reward(body), _text(body)
    if reward is None and text is None:
        raise _wrong("thumb", "Send thumb (up, down), verdict (success, failure) or text.")
    return FeedbackRequest(turn=_turn(body), feedback=Feedback(reward=reward, text=text))


def _turn(body: Mapping[str, Any]) -> str:
    name = "response_id" if body.get("response_id") is not None else "turn"
    value, choice = body.get(name), body.get("choice")
    if not isinstance(value, str) or not value:
        raise _wrong("response_id", "Name the response: response_id is the id of a response.")
    if choice is None:
        choice = 0
    if not isinstance(choice, int) or isinstance(choice, bool) or not 0 <= choice <= MAX_CHOICE:
        raise _wrong("choice", f"choice must be a whole number from 0 to {MAX_CHOICE}.")
    try:
        return choice_turn(turn_of_response(value), choice)
    except ValueError as error:
        raise RequestError(
            404, "turn_not_found", "No response of this server has this id.", param=name
        ) from error


def _reward(body: Mapping[str, Any]) -> int | None:
    said = {name: body[name] for name in REWARDS if body.get(name) is not None}
    rewards = set()
    for name, word in said.items():
        if not isinstance(word, str) or word not in REWARDS[name]:
            raise _wrong(name, f"{name} must be one of {', '.join(REWARDS[name])}.")
        rewards.add(REWARDS[name][word])
    if len(rewards) > 1:
        raise _wrong("verdict", "thumb and verdict contradict each other.")
    return rewards.pop() if rewards else None


def _text(body: Mapping[str, Any]) -> str | None:
    text = body.get("text")
    if text is None:
        return None
    if not isinstance(text, str) or not text.strip():
        raise _wrong("text", "text must hold more than white space.")
    if len(text) > MAX_TEXT:
        raise _wrong("text", f"text is limited to {MAX_TEXT} characters, not {len(text)}.")
    return text


def _wrong(param: str, message: str) -> RequestError:
    return RequestError(400, "invalid_feedback", message, param=param)


def feedback_body(turn: str, state: State, *, trains: bool) -> dict[str, Any]:
    """The response's body: what the feedback does, for programs and for people."""
    recorded_only = _TRAINED if state is State.TRAINED else _ENDED
    words = "Recorded; the turn will be judged with it." if trains else recorded_only
    return {"object": "feedback", "turn": turn, "state": state, "trains": trains, "message": words}
