"""Calls under ids that a client gave them: some number all calls of a conversation anew.

Such a call is known by what it says, behind the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from afterwit.core.binding.request import IncomingRequest
from afterwit.core.binding.segments import CALL
from afterwit.core.ids import call_id, plain_id, turn_of_call
from afterwit.core.message import Message

Said = Sequence[tuple[str, ...]]
"""The segments of a response, by their parts."""


def calls_under_other_ids(incoming: IncomingRequest, depth: int) -> bool:
    """Whether a reply follows the first `depth` segments that calls, under ids that are not ours."""
    for segment in incoming.segments[depth:]:
        if segment.parts[0] == CALL:
            return turn_of_call(segment.parts[1]) is None
        if segment.parts[0] != "assistant":
            return False
    return False


def renamed(incoming: IncomingRequest, depth: int, said: Said) -> bool:
    """Whether the response `said` follows the first `depth` segments, its calls under ids not ours."""
    if not calls_under_other_ids(incoming, depth):
        return False
    return list(map(_without_id, _behind(incoming, depth, said))) == list(map(_without_id, said))


def with_our_ids(
    results: tuple[Message, ...], incoming: IncomingRequest, *, turn: str, depth: int, said: Said
) -> tuple[Message, ...]:
    """The `results` of the calls of a `turn`, under the ids that we gave them."""
    if not renamed(incoming, depth, said):
        return results
    theirs = (parts[1] for parts in _behind(incoming, depth, said) if parts[0] == CALL)
    ours = {identifier: call_id(turn, at) for at, identifier in enumerate(theirs)}
    return tuple(
        replace(one, tool_call_id=ours.get(plain_id(one.tool_call_id or ""), one.tool_call_id))
        for one in results
    )


def _behind(incoming: IncomingRequest, depth: int, said: Said) -> list[tuple[str, ...]]:
    return [segment.parts for segment in incoming.segments[depth : depth + len(said)]]


def _without_id(parts: tuple[str, ...]) -> tuple[str, ...]:
    return (CALL, *parts[2:]) if parts[0] == CALL else parts
