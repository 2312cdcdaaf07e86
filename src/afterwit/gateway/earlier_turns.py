"""Requests that refer to earlier turns: those turns, read from the store for the key that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from afterwit.binding.client_ids import ClientSession, client_session_of
from afterwit.dialects.dialect import EarlierTurns, Parse, References, ReferringParser
from afterwit.dialects.request import ModelRequest
from afterwit.errors import RequestError, StoreError, TurnNotFound
from afterwit.gateway.auth import Caller, owner_of
from afterwit.gateway.context import Gateway
from afterwit.gateway.reading import READ_TIMES, off_loop, reading
from afterwit.message import Message
from afterwit.store import Store
from afterwit.turn import Turn

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request, read. Its body is gone: a long one would be in memory for as long as its response takes."""

    asked: ModelRequest
    client: ClientSession
    size: int
    """Characters to render, or bytes of the body if they are more: a short body may refer to a long one."""


async def parse_body(
    gateway: Gateway, parse: Parse, data: bytes, headers: Mapping[str, str], caller: Caller
) -> ParsedRequest:
    """A body parsed, with the turns that it refers to. Raises what `parse` raises, 400 and 503."""
    limits = gateway.settings.request_limits

    def parsed(asked: ModelRequest, body: Mapping[str, Any]) -> ParsedRequest:
        size = max(len(data), asked.conversation.characters)
        return ParsedRequest(asked=asked, client=client_session_of(headers, body), size=size)

    if not isinstance(parse, ReferringParser):
        return await reading(gateway, data, lambda body: parsed(parse(body, limits), body))
    body, references = await reading(gateway, data, lambda body: (body, parse.references(body)))
    earlier = await _earlier(gateway, references, caller)
    work = partial(parse.parse, body, limits, earlier)
    return parsed(await off_loop(gateway, len(data) // READ_TIMES, work), body)


async def _earlier(gateway: Gateway, references: References, caller: Caller) -> EarlierTurns:
    previous = None if references.previous is None else await own_turn(gateway, references.previous, caller)
    quoted = await _own_messages(gateway, references.quoted, caller) if references.quoted else {}
    return EarlierTurns(previous=previous, quoted=quoted)


async def own_turn(gateway: Gateway, name: str, caller: Caller) -> Turn | None:
    """A turn of the caller's key. None if there is none, whoever else may have it. Raises 503."""
    try:
        turn = await _read(
            gateway, lambda store: store.turn(name).turn if owned(store, [name], caller) else None
        )
    except TurnNotFound:
        return None
    return turn if isinstance(turn, Turn) else None


async def _own_messages(gateway: Gateway, names: Collection[str], caller: Caller) -> dict[str, Message]:
    return await _read(gateway, lambda store: store.messages_of(owned(store, names, caller)))


def owned(store: Store, names: Collection[str], caller: Caller) -> list[str]:
    """Those of the turns that are the caller's.

    The content of others is not even read: how long that takes would tell that they exist, and their size.
    """
    return [name for name, scope in store.scopes(names).items() if owner_of(scope) == caller.name]


async def _read(gateway: Gateway, work: Callable[[Store], T]) -> T:
    try:
        return await gateway.store.call(work)
    except TurnNotFound:
        raise
    except StoreError as error:
        message = f"The request refers to an earlier response, and the store does not answer: {error}"
        raise RequestError(503, "store_unavailable", message) from error
