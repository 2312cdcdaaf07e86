"""`POST /v1/feedback`: explicit feedback on a turn."""

from __future__ import annotations

import logging

from starlette.types import Receive, Scope, Send

from afterwit.core.errors import RequestError, StoreError, StoreUnavailable, TurnNotFound
from afterwit.stages.gateway.auth import Caller, Permission, owner_of
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.http import send_json
from afterwit.stages.gateway.middleware import CALLER
from afterwit.stages.gateway.reading import read_bytes, reading
from afterwit.store import FeedbackOutcome, Store
from afterwit.wire.feedback import FeedbackRequest, feedback_body, parse_feedback

MOST_BYTES = 2**20
"""Of one feedback: words of a person."""
UNKNOWN = "There is no such response, or its content was removed to keep the store within its limits."
"""The same for a response of another key: nobody learns what others have."""
UNRECORDED = "Turns are served but not recorded at the moment; /readyz says why."
LOST = "was not recorded, because the store cannot take it; /readyz and the log say why."
"""Paths and database errors are for the operator, not for every key."""
log = logging.getLogger(__name__)


class FeedbackEndpoint:
    """Needs the scope `teach`, and the key of the turn or an admin's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, caller = self._gateway, scope[CALLER]
        caller.require(Permission.TEACH)
        with gateway.in_flight.body() as hold:
            data = await read_bytes(gateway, scope, receive, hold, most=MOST_BYTES)
            request = await reading(gateway, data, parse_feedback)
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
