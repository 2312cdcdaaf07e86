"""Whether a response repeats a tool call of its session, word for word."""

from __future__ import annotations

from collections.abc import Iterable

from afterwit.core.message import Message


def repeats_a_call(earlier: Iterable[Message], response: Message) -> bool:
    """Whether any call of the response, name and arguments, is in an earlier message."""
    made = {(call.name, call.arguments) for call in response.tool_calls}
    if not made:
        return False
    return any((call.name, call.arguments) in made for message in earlier for call in message.tool_calls)
