"""`POST /v1/feedback`: explicit feedback on a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from afterwit.errors import RequestError, StoreError, StoreUnavailable, TurnNotFound
from afterwit.gateway.auth import Caller, Permission, owner_of
from afterwit.gateway.context import CALLER, STORE_WITHIN_S, Gateway
from afterwit.gateway.endpoint import read_bytes, read_json
from afterwit.learning.schedule import with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import State
from afterwit.store import Filter, Store
from afterwit.text import is_seen
from afterwit.turn import Kind, RecordedTurn, Turn, choice_turn, turn_of_response
from afterwit.verdict import Feedback, Flag, Review
from afterwit.vetting.doubts import flags_of_feedback
from afterwit.vetting.own_words import fault_for_turn, fault_in_words, taught

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_BYTES = 2**20
"""Bytes of one request with feedback."""

UNKNOWN = "There is no such {}, or its content was removed to keep the store within its limits."
"""Also for one of another key, so that its existence stays hidden."""

UNRECORDED = "Turns wait to be recorded at the moment; send it again later. /readyz shows why."

LOST = "The feedback was not recorded, because the store cannot take it; /readyz and the log have the reason."
"""Paths and database errors are for the operator, not for every key."""

REWARDS = {"thumb": {"up": 1, "down": -1}, "verdict": {"success": 1, "failure": -1}}

MOST_CREDITED = 1000
"""The newest turns of a session that get its reward."""
MAX_CHOICE = 127

WORDS = ("text", "hint", "correction")
MAX_TEXT = 20_000
"""Characters of each."""


async def give_feedback(gateway: Gateway, request: Request) -> Response:
    """Record feedback by the API, as `record_feedback` does."""
    caller = request.scope[CALLER]
    caller.require(Permission.TEACH)
    with gateway.in_flight.body() as hold:
        data = await read_bytes(gateway, request.scope, request.receive, hold, most=MOST_BYTES)
        work = partial(_parsed, reward_from=gateway.settings.reward_from)
        session, turn, feedback = await read_json(gateway, data, work)
    if session is not None:
        turns = await record_outcome(gateway, caller, session, feedback)
        return JSONResponse({"object": "feedback", "session": session, "turns": turns})
    state, trains = await record_feedback(gateway, caller, turn, feedback)
    return JSONResponse(feedback_body(turn, feedback, state, trains=trains))


async def record_feedback(
    gateway: Gateway, caller: Caller, turn: str, feedback: Feedback
) -> tuple[State, bool]:
    """Record feedback on a turn of the caller's key, or of any for an admin; returns the turn's state, and
    whether it learns from it: it is judged with it, or practised if it has trained already and the words are
    not doubtful. Needs the scope `reward` for a reward, a hint or a correction.

    Raises 400 for words that cannot teach, 404 for an unknown turn, also for another key's, 503 while the
    store cannot take it, 500 if it refuses.
    """
    if feedback.reward is not None or feedback.teaches:
        caller.require(Permission.REWARD)

    def own(store: Store) -> RecordedTurn | None:
        (scope,) = store.scopes([turn]).values() or (None,)
        if scope is None or not (owner_of(scope) == caller.name or caller.may(Permission.ADMIN)):
            raise TurnNotFound(f"{caller.name!r} has no turn {turn}")
        return store.turn(turn).turn if feedback.teaches else None

    flags: tuple[Flag, ...] = ()

    def record(store: Store) -> tuple[State, bool]:
        found, now = own(store), gateway.now()
        rule = with_note(LearnerSettings(), store.note("learn")).teaching
        doubtful = flags and rule.review is not Review.OFF
        with store.transaction():
            state, trains = store.feedback(turn, feedback, now=now)
            practises = gateway.practises and isinstance(found, Turn) and found.kind is not Kind.PRACTICE
            if state is State.TRAINED and practises and found is not None and not doubtful:
                store.teach(found, taught(feedback)[0], now=now)
                trains = True
        return state, trains

    if feedback.teaches:
        _refuse(fault_in_words(feedback, gateway.redaction))
        found = await _in_store(gateway, own)
        if found is not None:
            size = found.conversation.characters
            _refuse(await gateway.off_loop(size, lambda: fault_for_turn(feedback, found)))
            flags = await gateway.off_loop(size, lambda: flags_of_feedback(feedback, found))
    state, trains = await _in_store(gateway, record)
    if trains:
        gateway.wake_judge()
    return state, trains


async def record_outcome(gateway: Gateway, caller: Caller, session: str, feedback: Feedback) -> list[str]:
    """Record a session's reward on its turns by `session_credit`; returns the turns that learn from it.

    Raises as `record_feedback` does, 404 also for a session without a turn of the caller's key.
    """
    caller.require(Permission.REWARD)
    most = 1 if gateway.settings.session_credit == "last" else MOST_CREDITED

    def record(store: Store) -> list[str]:
        lines = store.turn_lines(Filter(session=session, kind=Kind.MAIN), limit=most)
        own = [line for line in lines if owner_of(line.scope) == caller.name or caller.may(Permission.ADMIN)]
        if not own:
            raise TurnNotFound(f"{caller.name!r} has no session {session}")
        now = gateway.now()
        with store.transaction():
            found = [(line.turn, store.feedback(line.turn, feedback, now=now)) for line in reversed(own)]
        return [turn for turn, (_, trains) in found if trains]

    turns = await _in_store(gateway, record, param="session")
    if turns:
        gateway.wake_judge()
    return turns


async def _in_store(gateway: Gateway, work: Callable[[Store], T], *, param: str = "response_id") -> T:
    """The store's result, its errors in words for clients; `param` is the field that names what is sought."""
    unknown = UNKNOWN.format("session" if param == "session" else "response")
    try:
        result = await gateway.read(work, within_s=STORE_WITHIN_S)
    except TurnNotFound as error:
        if "store" in gateway.faults:  # the turn may have been served, and not recorded
            raise RequestError(503, "store_unavailable", f"{unknown} {UNRECORDED}") from error
        raise RequestError(404, "turn_not_found", unknown, param=param) from error
    except StoreError as error:
        if gateway.feedback_fault != str(error):
            gateway.feedback_fault = str(error)
            log.error("feedback was not recorded: %s", error)
        away = isinstance(error, StoreUnavailable)
        raise RequestError(*((503, "store_unavailable") if away else (500, "store_failed")), LOST) from error
    gateway.feedback_fault = None
    return result


def _refuse(fault: tuple[str, str] | None) -> None:
    if fault is not None:
        raise _wrong(*fault)


def _parsed(body: Mapping[str, Any], *, reward_from: float) -> tuple[str | None, str, Feedback]:
    """The session, or the turn, and the feedback on it. Raises as `parse_feedback` does."""
    session = body.get("session")
    if session is None:
        return None, *parse_feedback(body, reward_from=reward_from)
    if not isinstance(session, str) or not session:
        raise _wrong("session", "session is the header x-afterwit-session of a response.")
    if any(body.get(name) is not None for name in (*WORDS, "response_id", "turn", "choice")):
        raise _wrong("session", "A session takes a reward alone: send words on one of its turns.")
    return session, "", feedback_in(body, reward_from=reward_from)


def parse_feedback(body: Mapping[str, Any], *, reward_from: float) -> tuple[str, Feedback]:
    """The turn, and the feedback on it: `{response_id, choice?}` or `{turn}`, with `thumb`, `verdict` or
    `reward`, `text`, `hint`, `correction`. Raises RequestError 400, and 404 for an id that no response of
    this server has."""
    feedback = feedback_in(body, reward_from=reward_from)
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
    return turn, feedback


def feedback_in(body: Mapping[str, Any], *, reward_from: float) -> Feedback:
    """The feedback of a body, whatever turn it names. Raises RequestError 400."""
    reward = _reward_of(body, reward_from)
    text, hint, correction = (_words_of(body, name) for name in WORDS)
    if reward is None and text is hint is correction is None:
        raise _wrong("thumb", f"Send one of {', '.join((*REWARDS, 'reward', *WORDS))}.")
    return Feedback(reward=reward, text=text, hint=hint, correction=correction)


def _reward_of(body: Mapping[str, Any], reward_from: float) -> int | None:
    rewards = set()
    for name, values in REWARDS.items():
        if (word := body.get(name)) is not None:
            if not isinstance(word, str) or word not in values:
                raise _wrong(name, f"{name} must be one of {', '.join(values)}.")
            rewards.add(values[word])
    if (number := body.get("reward")) is not None:
        if not isinstance(number, int | float) or isinstance(number, bool) or not -1 <= number <= 1:
            raise _wrong("reward", "reward must be a number from -1 to 1.")
        rewards.add((number >= reward_from) - (number <= -reward_from))
    if len(rewards) > 1:
        raise _wrong("verdict", "thumb, verdict and reward contradict each other.")
    return rewards.pop() if rewards else None


def _words_of(body: Mapping[str, Any], name: str) -> str | None:
    words = body.get(name)
    if words is None:
        return None
    if not isinstance(words, str) or not is_seen(words):
        raise _wrong(name, f"{name} must be text of more than white space.")
    if len(words) > MAX_TEXT:
        raise _wrong(name, f"{name} is limited to {MAX_TEXT} characters, not {len(words)}.")
    return words if name == "text" else words.strip()


def _wrong(param: str, message: str) -> RequestError:
    return RequestError(400, "invalid_feedback", message, param=param)


def feedback_body(turn: str, feedback: Feedback, state: State, *, trains: bool) -> dict[str, Any]:
    """The response's body: the effect of the feedback, for programs and for people."""
    message = effect(state, trains=trains)
    found = {"object": "feedback", "turn": turn, "state": state, "trains": trains, "message": message}
    return found if feedback.reward is None else found | {"reward": feedback.reward}


def effect(state: State, *, trains: bool) -> str:
    """The effect of feedback in a sentence."""
    if trains and state is State.TRAINED:
        return "Recorded; the turn has trained already, so this is practised as a lesson."
    if trains:
        return "Recorded; the turn will be judged with it."
    why = "has trained already" if state is State.TRAINED else "does not train"
    return f"Recorded only: the turn {why}."
