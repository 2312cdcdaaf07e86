"""Requests that refer to earlier turns: those turns, read from the store for the key that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from afterwit.core.errors import RequestError, StoreError, TurnNotFound
from afterwit.core.message import Message
from afterwit.core.turn import Turn
from afterwit.stages.gateway.auth import Caller, owner_of
from afterwit.stages.gateway.context import Gateway
from afterwit.store import Store
from afterwit.wire.dialect import EarlierTurns, Parse, ReferringParser
from afterwit.wire.request import ModelRequest

T = TypeVar("T")


async def parse_body(gateway: Gateway, parse: Parse, body: dict[str, Any], caller: Caller) -> ModelRequest:
    """A body parsed, with the turns that it refers to. Raises what `parse` raises, and 503."""
    limits = gateway.settings.request_limits
    if not isinstance(parse, ReferringParser):
        return parse(body, limits)
    references = parse.references(body)
    previous = None if references.previous is None else await own_turn(gateway, references.previous, caller)
    quoted = await _own_messages(gateway, references.quoted, caller) if references.quoted else {}
    return parse.parse(body, limits, EarlierTurns(previous=previous, quoted=quoted))


async def own_turn(gateway: Gateway, name: str, caller: Caller) -> Turn | None:
    """A turn of the caller's key. None if there is none, whoever else may have it. Raises 503."""
    try:
        turn = (await _read(gateway, lambda store: store.turn(name))).turn
    except TurnNotFound:
        return None
    return turn if isinstance(turn, Turn) and owner_of(turn.scope) == caller.name else None


async def _own_messages(gateway: Gateway, names: Collection[str], caller: Caller) -> dict[str, Message]:
    found = await _read(gateway, lambda store: store.messages_of(names))
    return {turn: message for turn, (scope, message) in found.items() if owner_of(scope) == caller.name}


async def _read(gateway: Gateway, work: Callable[[Store], T]) -> T:
    try:
        return await gateway.store.call(work)
    except TurnNotFound:
        raise
    except StoreError as error:
        message = f"The request refers to an earlier response, and the store does not answer: {error}"
        raise RequestError(503, "store_unavailable", message) from error
