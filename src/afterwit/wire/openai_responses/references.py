"""What a request refers to without repeating it: the response before it, and items of earlier responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.ids import choice_turn, turn_of_response
from afterwit.core.message import Message
from afterwit.core.turn import Turn
from afterwit.wire.dialect import EarlierTurns, References
from afterwit.wire.fields import text, wrong_value
from afterwit.wire.openai_responses.item_ids import ItemKind, read_item_id

MOST_REFERENCES = 256
"""Turns that one request may refer to: each is read from the store."""


def references_of(body: Mapping[str, Any]) -> References:
    """The turns that a body refers to. Raises RequestError 400 if there are too many."""
    items = body.get("input")
    referred = (referred_id(item) for item in items) if isinstance(items, list) else ()
    found = (read_item_id(identifier) for identifier in referred if identifier is not None)
    quoted = dict.fromkeys(item.turn for item in found if item is not None)
    if len(quoted) > MOST_REFERENCES:
        raise wrong_value("input", f"refers to {len(quoted)} responses, more than {MOST_REFERENCES}")
    return References(previous=_previous(body), quoted=tuple(quoted))


def _previous(body: Mapping[str, Any]) -> str | None:
    try:
        return choice_turn(turn_of_response(body["previous_response_id"]), 0)
    except (KeyError, TypeError, ValueError):
        return None


def referred_id(item: Any) -> str | None:
    """The id that an item of the input consists of; None if the item says something itself."""
    if not isinstance(item, Mapping):
        return None
    bare = item.get("type") is None and "role" not in item
    identifier = item.get("id") if bare or item.get("type") == "item_reference" else None
    return identifier if isinstance(identifier, str) else None


def previous_turn(body: Mapping[str, Any], earlier: EarlierTurns) -> Turn | None:
    """The turn of the response that the request goes on from. Raises RequestError 404 if there is none."""
    if text(body, "previous_response_id") is not None and earlier.previous is None:
        message = "previous_response_id: there is no such response."
        raise RequestError(404, "previous_response_not_found", message, param="previous_response_id")
    return earlier.previous


def said_before(turn: Turn) -> tuple[Message, ...]:
    """A turn's conversation with its response, without the instructions of its request."""
    messages = turn.conversation.messages
    return (*(messages[1:] if turn.conversation.instructed else messages), turn.message)


def referred_part(identifier: str, quoted: Mapping[str, Message], where: str) -> Message | None:
    """The part of an earlier response that an item was; None if it was empty. Raises RequestError 404."""
    item = read_item_id(identifier)
    response = None if item is None else quoted.get(item.turn)
    if item is None or response is None:
        message = f"{where} refers to an item that is not known here."
        raise RequestError(404, "item_not_found", message, param=where)
    return _part(response, item.kind, item.index)


def _part(message: Message, kind: ItemKind, index: int) -> Message | None:
    """The first message item holds the whole text, even if a call divided it."""
    if kind is ItemKind.CALL:
        calls = message.tool_calls[index : index + 1]
        return Message(role="assistant", tool_calls=calls) if calls else None
    if index:
        return None
    if kind is ItemKind.REASONING:
        return Message(role="assistant", reasoning=message.reasoning) if message.reasoning else None
    return Message(role="assistant", content=message.content or "")
