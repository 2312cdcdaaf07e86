"""Requests that refer to earlier turns: those turns, read from the store for the key that they belong to."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError, StoreError, TurnNotFound
from afterwit.core.turn import Turn
from afterwit.stages.gateway.auth import Caller, owner_of
from afterwit.stages.gateway.context import Gateway
from afterwit.wire.dialect import Parse, Recalling
from afterwit.wire.request import ModelRequest


async def parsed(gateway: Gateway, parse: Parse, body: dict[str, Any], caller: Caller) -> ModelRequest:
    """A body parsed, with the turns that it refers to. Raises what `parse` raises, and 503."""
    limits = gateway.settings.request_limits
    if not isinstance(parse, Recalling):
        return parse(body, limits)
    # one call of the store for each, so that others get their turn in between
    found = [await own_turn(gateway, name, caller) for name in parse.named(body)]
    return parse.parse(body, limits, {turn.id: turn for turn in found if turn is not None})


async def own_turn(gateway: Gateway, name: str, caller: Caller) -> Turn | None:
    """A turn of the caller's key. None if there is none, whoever else may have it. Raises 503."""
    try:
        record = await gateway.store.call(lambda store: store.turn(name))
    except TurnNotFound:
        return None
    except StoreError as error:
        message = f"The request refers to an earlier response, and the store does not answer: {error}"
        raise RequestError(503, "store_unavailable", message) from error
    return record.turn if owner_of(record.turn.scope) == caller.name else None
