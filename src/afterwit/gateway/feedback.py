"""`POST /v1/feedback`: explicit feedback on a turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from afterwit.errors import RequestError, StoreError, StoreUnavailable, TurnNotFound
from afterwit.gateway.auth import Permission, owner_of
from afterwit.gateway.context import CALLER, STORE_WITHIN_S, Gateway
from afterwit.gateway.endpoint import read_bytes, read_json
from afterwit.lifecycle import State
from afterwit.store import Store
from afterwit.turn import choice_turn, turn_of_response
from afterwit.verdict import Feedback

log = logging.getLogger(__name__)

MOST_BYTES = 2**20
"""Bytes of one request with feedback."""

UNKNOWN = "There is no such response, or its content was removed to keep the store within its limits."
"""Also for a response of another key, so that no one learns of it."""

UNRECORDED = "Turns are served but not recorded at the moment; /readyz says why."

LOST = "The feedback was not recorded, because the store cannot take it; /readyz and the log say why."
"""Paths and database errors are for the operator, not for every key."""

REWARDS = {"thumb": {"up": 1, "down": -1}, "verdict": {"success": 1, "failure": -1}}

MAX_CHOICE = 127

MAX_TEXT = 20_000
"""Characters."""


async def give_feedback(gateway: Gateway, request: Request) -> Response:
    """Record feedback. Needs the scope `teach`, for a reward `reward`, and the key of the turn or an admin's.

    Raises 404 for an unknown turn, also for another key's, 503 while the store cannot take it, 500 if it
    refuses.
    """
    caller = request.scope[CALLER]
    caller.require(Permission.TEACH)
    with gateway.in_flight.body() as hold:
        data = await read_bytes(gateway, request.scope, request.receive, hold, most=MOST_BYTES)
        turn, feedback = await read_json(gateway, data, parse_feedback)
    if feedback.reward is not None:
        caller.require(Permission.REWARD)
    now = gateway.now()

    def record(store: Store) -> tuple[State, bool]:
        (scope,) = store.scopes([turn]).values() or (None,)
        if scope is None or not (owner_of(scope) == caller.name or caller.may(Permission.ADMIN)):
            raise TurnNotFound(f"{caller.name!r} has no turn {turn}")
        return store.feedback(turn, feedback, now=now)

    try:
        state, trains = await gateway.read(record, within_s=STORE_WITHIN_S)
    except TurnNotFound as error:
        if "store" in gateway.faults:  # the turn may have been served, and not recorded
            raise RequestError(503, "store_unavailable", f"{UNKNOWN} {UNRECORDED}") from error
        raise RequestError(404, "turn_not_found", UNKNOWN, param="response_id") from error
    except StoreError as error:
        if gateway.feedback_fault != str(error):
            gateway.feedback_fault = str(error)
            log.error("feedback was not recorded: %s", error)
        away = isinstance(error, StoreUnavailable)
        raise RequestError(*((503, "store_unavailable") if away else (500, "store_failed")), LOST) from error
    gateway.feedback_fault = None
    if trains:
        gateway.wake_judge()
    return JSONResponse(feedback_body(turn, state, trains=trains))


def parse_feedback(body: Mapping[str, Any]) -> tuple[str, Feedback]:
    """The turn, and the feedback on it: `{response_id, choice?}` or `{turn}`, with `thumb`, `verdict` or
    `text`. Raises RequestError 400, and 404 for an id that no response of this server has."""
    rewards, text = set(), body.get("text")
    for name, values in REWARDS.items():
        if (word := body.get(name)) is not None:
            if not isinstance(word, str) or word not in values:
                raise _wrong(name, f"{name} must be one of {', '.join(values)}.")
            rewards.add(values[word])
    if len(rewards) > 1:
        raise _wrong("verdict", "thumb and verdict contradict each other.")
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise _wrong("text", "text must hold more than white space.")
    if text is not None and len(text) > MAX_TEXT:
        raise _wrong("text", f"text is limited to {MAX_TEXT} characters, not {len(text)}.")
    if not rewards and text is None:
        raise _wrong("thumb", "Send thumb (up, down), verdict (success, failure) or text.")
    param = "response_id" if body.get("response_id") is not None else "turn"
    response, choice = body.get(param), body.get("choice")
    if not isinstance(response, str) or not response:
        raise _wrong("response_id", "Name the response: response_id is the id of a response.")
    if choice is None:
        choice = 0
    if not isinstance(choice, int) or isinstance(choice, bool) or not 0 <= choice <= MAX_CHOICE:
        raise _wrong("choice", f"choice must be a whole number from 0 to {MAX_CHOICE}.")
    try:
        turn = choice_turn(turn_of_response(response), choice)
    except ValueError as error:
        message = "No response of this server has this id."
        raise RequestError(404, "turn_not_found", message, param=param) from error
    return turn, Feedback(reward=rewards.pop() if rewards else None, text=text)


def _wrong(param: str, message: str) -> RequestError:
    return RequestError(400, "invalid_feedback", message, param=param)


def feedback_body(turn: str, state: State, *, trains: bool) -> dict[str, Any]:
    """The response's body: the effect of the feedback, for programs and for people."""
    message = "Recorded; the turn will be judged with it."
    if not trains:
        why = "has trained already" if state is State.TRAINED else "does not train"
        message = f"Recorded only: the turn {why}."
    return {"object": "feedback", "turn": turn, "state": state, "trains": trains, "message": message}
