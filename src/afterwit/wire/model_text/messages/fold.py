"""Messages that a template would refuse, or leave out, folded into ones that it takes. Pure.

What is folded keeps its text and its order, and the same messages always fold the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from afterwit.core.message import Message
from afterwit.wire.model_text.messages.rules import TemplateRules

JOINT = "\n\n"
"""Between two texts that become one."""
INSTRUCTING = ("system", "developer")
SHORT_ID = 9
"""Letters and digits."""


def folded(messages: Sequence[Message], rules: TemplateRules) -> list[Message]:
    """The messages as a template with these rules takes them."""
    found = _named(messages)
    if not rules.developer:
        found = [_as(message, "system") if message.role == "developer" else message for message in found]
    found = _instructed(found, rules)
    if not rules.results:
        found = [_told(message) for message in found]
    elif not rules.lone_results:
        found = list(_results_told(found))
    if rules.person_first:
        found = _begun_by_a_person(found)
    if not rules.many_calls:
        found = list(_single_calls(found))
    if not rules.user_after_tool:
        found = list(_answered_tools(found))
    if not rules.repeats:
        found = _merged(found, _repeats)
    if not rules.thought_beside_text:
        found = [_thought_alone(message) for message in found]
    if rules.short_ids:
        return _with_ids(found, short_id)
    return _with_ids(found, _named_ids(found).__getitem__) if rules.named_ids else found


def _instructed(messages: list[Message], rules: TemplateRules) -> list[Message]:
    """System messages where the template takes them; elsewhere they are a person's."""
    first = len(list(takewhile(lambda message: message.role in INSTRUCTING, messages)))
    leading, later = messages[:first], messages[first:]
    if not rules.late_system:
        later = [_as(message, "user") if message.role in INSTRUCTING else message for message in later]
    if not rules.systems:
        leading = _merged(leading, lambda one, other: True)
    if rules.system or not leading:
        return [*leading, *later]
    leading = [_as(message, "user") for message in leading]
    return _merged([*leading, *later[:1]], lambda one, other: one.role == other.role == "user") + later[1:]


def _told(message: Message) -> Message:
    """Calls in words of the model, and their results in a person's, for a template that knows neither."""
    if message.role == "tool":
        told = f"Result of {message.name}:\n" if message.name else ""
        return Message(role="user", content=told + (message.content or ""))
    calls = (f"Called {call.name}: {call.arguments}" for call in message.tool_calls)
    content = JOINT.join(text for text in (message.content, *calls) if text)
    return replace(message, content=content, tool_calls=()) if message.tool_calls else message


def _results_told(messages: Sequence[Message]) -> Iterator[Message]:
    """Results of calls that are not there in a person's words."""
    called: set[str] = set()
    for message in messages:
        called |= {call.id for call in message.tool_calls}
        lone = message.role == "tool" and message.tool_call_id not in called
        yield _told(message) if lone else message


def _begun_by_a_person(messages: Sequence[Message]) -> list[Message]:
    """The messages with an empty one of a person after the system's, if the first after these is none.

    Whether more of a person follow does not count: the prompt of the next request begins with this one.
    """
    first = len(list(takewhile(lambda message: message.role in INSTRUCTING, messages)))
    if messages[first:] and messages[first].role == "user":
        return list(messages)
    return [*messages[:first], Message(role="user", content=""), *messages[first:]]


def _single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Each call in a message of its own, followed by its result."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results = list(takewhile(lambda result: result.role == "tool", messages[place:]))
        place += len(results)
        for index, call in enumerate(message.tool_calls):
            own = [result for result in results if result.tool_call_id == call.id]
            said = message if index == 0 else replace(message, content=None, reasoning=None)
            yield replace(said, tool_calls=(call,))
            yield from own
        ids = {call.id for call in message.tool_calls}
        yield from (result for result in results if result.tool_call_id not in ids)


def _answered_tools(messages: Sequence[Message]) -> Iterator[Message]:
    """An empty reply between a tool's result and a person's message."""
    before = ""
    for message in messages:
        if before == "tool" and message.role == "user":
            yield Message(role="assistant", content="")
        before = message.role
        yield message


def _merged(messages: Sequence[Message], belong: Callable[[Message, Message], bool]) -> list[Message]:
    """Neighbours that belong together as one message."""
    merged: list[Message] = []
    for message in messages:
        if merged and belong(merged[-1], message):
            before = merged[-1]
            merged[-1] = replace(
                before,
                content=_joined(before.content, message.content),
                reasoning=_joined(before.reasoning, message.reasoning),
                tool_calls=message.tool_calls,
            )
        else:
            merged.append(message)
    return merged


def _repeats(one: Message, other: Message) -> bool:
    return one.role == other.role != "tool" and not one.tool_calls


def _thought_alone(message: Message) -> Message:
    """Content beside reasoning and calls as a part of the reasoning."""
    if not (message.tool_calls and message.content and message.reasoning):
        return message
    return replace(message, reasoning=_joined(message.reasoning, message.content), content=None)


def _with_ids(messages: Sequence[Message], id_of: Callable[[str], str]) -> list[Message]:
    """The messages with other ids of calls, the same in a call and its result."""
    return [
        replace(
            message,
            tool_calls=tuple(replace(call, id=id_of(call.id)) for call in message.tool_calls),
            tool_call_id=None if message.tool_call_id is None else id_of(message.tool_call_id),
        )
        for message in messages
    ]


def _named_ids(messages: Sequence[Message]) -> dict[str, str]:
    """For each id one that holds the name of the call and its place among all calls."""
    calls = (call for message in messages for call in message.tool_calls)
    ids = {
        message.tool_call_id: message.tool_call_id for message in messages if message.tool_call_id is not None
    }
    return ids | {call.id: f"functions.{call.name}:{place}" for place, call in enumerate(calls)}


def short_id(id: str) -> str:
    """Nine letters and digits for an id; itself if it is that already."""
    if len(id) == SHORT_ID and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:SHORT_ID]


def _named(messages: Sequence[Message]) -> list[Message]:
    """Results of tools with the id and the name of their calls, which clients leave out or drop later on.

    A result without an id is that of the first call before it without a result.
    """
    names: dict[str, str] = {}
    waiting: list[str] = []
    named = []
    for message in messages:
        if message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
            names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool":
            id = message.tool_call_id or (waiting[0] if waiting else "")
            waiting = [other for other in waiting if other != id]
            message = replace(message, tool_call_id=id, name=names.get(id, message.name))
        named.append(message)
    return named


def _as(message: Message, role: str) -> Message:
    return replace(message, role=role)


def _joined(one: str | None, other: str | None) -> str | None:
    return JOINT.join(text for text in (one, other) if text) or (one if one is not None else other)
