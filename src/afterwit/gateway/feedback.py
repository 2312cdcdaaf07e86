"""`POST /v1/feedback`: explicit feedback on a turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from afterwit.errors import RequestError, StoreError, StoreUnavailable, TurnNotFound
from afterwit.gateway.auth import Caller, Permission, owner_of
from afterwit.gateway.context import CALLER, Gateway
from afterwit.gateway.endpoint import read_bytes, read_json
from afterwit.gateway.limits import send_json
from afterwit.ids import choice_turn, turn_of_response
from afterwit.lifecycle import State
from afterwit.store import FeedbackOutcome, Store
from afterwit.verdict import Feedback

MOST_BYTES = 2**20
"""Bytes of one request with feedback."""

UNKNOWN = "There is no such response, or its content was removed to keep the store within its limits."
"""Also for a response of another key, so that no one learns of it."""

UNRECORDED = "Turns are served but not recorded at the moment; /readyz says why."

LOST = "was not recorded, because the store cannot take it; /readyz and the log say why."
"""Paths and database errors are for the operator, not for every key."""

log = logging.getLogger(__name__)

REWARDS = {"thumb": {"up": 1, "down": -1}, "verdict": {"success": 1, "failure": -1}}

MAX_CHOICE = 127

MAX_TEXT = 20_000
"""Characters."""

_TRAINED = "Recorded only: the turn has trained already."

_ENDED = "Recorded only: the turn does not train."


class FeedbackEndpoint:
    """Needs the scope `teach`, and the key of the turn or an admin's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, caller = self._gateway, scope[CALLER]
        caller.require(Permission.TEACH)
        with gateway.in_flight.body() as hold:
            data = await read_bytes(gateway, scope, receive, hold, most=MOST_BYTES)
            request = await read_json(gateway, data, parse_feedback)
        outcome = await self._record(request, caller)
        if outcome.trains:
            gateway.wake_judge()
        await send_json(send, 200, feedback_body(outcome.turn, outcome.state, trains=outcome.trains))

    async def _record(self, request: FeedbackRequest, caller: Caller) -> FeedbackOutcome:
        """Raises 404 for an unknown turn, 503 while the store cannot take it, 500 if it refuses."""
        gateway, now = self._gateway, self._gateway.now()
        try:
            return await gateway.store.call(lambda store: record_feedback(store, request, caller, now=now))
        except TurnNotFound as error:
            if "store" in gateway.faults:  # the turn may have been served, and not recorded
                raise RequestError(503, "store_unavailable", f"{UNKNOWN} {UNRECORDED}") from error
            raise RequestError(404, "turn_not_found", UNKNOWN, param="response_id") from error
        except StoreUnavailable as error:
            log.warning("feedback was not recorded: %s", error)
            raise RequestError(503, "store_unavailable", f"The feedback {LOST}") from error
        except StoreError as error:
            log.error("feedback was not recorded: %s", error)
            raise RequestError(500, "store_failed", f"The feedback {LOST}") from error


def record_feedback(store: Store, request: FeedbackRequest, caller: Caller, *, now: float) -> FeedbackOutcome:
    """Record it. Raises TurnNotFound, also for another key's turn."""
    (scope,) = store.scopes([request.turn]).values() or (None,)
    if scope is None or not (owner_of(scope) == caller.name or caller.may(Permission.ADMIN)):
        raise TurnNotFound(f"{caller.name!r} has no turn {request.turn}")
    return store.feedback(request.turn, request.feedback, now=now)


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
    """The response's body: the effect of the feedback, for programs and for people."""
    recorded_only = _TRAINED if state is State.TRAINED else _ENDED
    words = "Recorded; the turn will be judged with it." if trains else recorded_only
    return {"object": "feedback", "turn": turn, "state": state, "trains": trains, "message": words}
