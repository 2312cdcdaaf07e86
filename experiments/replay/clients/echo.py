"""How clients send their history back: each function turns the history into the messages to send."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from afterwit.turn import Message, ToolCall

Echo = Callable[[Sequence[Message], Random], list[Message]]
"""Given the history and a source of chance, the messages as they are sent."""

KEPT_RESULTS = 3
"""The last tool results that a clearing client keeps."""
WINDOW = 8
"""Most messages that a client with a window sends."""


def plainly(history: Sequence[Message], rng: Random) -> list[Message]:
    """Unchanged, reasoning included."""
    return list(history)


def respelled(history: Sequence[Message], rng: Random) -> list[Message]:
    """Arguments serialised again, reasoning dropped, white space stripped."""
    return [_respelled(message, separators=rng.choice([(",", ":"), (", ", ": ")])) for message in history]


def underscored(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with ids in another form and the results' tool names."""
    changed = []
    for message in _respelled_all(history):
        made = tuple(
            replace(one, id=one.id.replace("call", "call_", 1).upper()) for one in message.tool_calls
        )
        id = message.tool_call_id and message.tool_call_id.replace("call", "call_", 1)
        changed.append(replace(message, tool_calls=made, tool_call_id=id, name="tool" if id else None))
    return changed


def numbered(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with the calls of the conversation renumbered."""
    changed = _respelled_all(history)
    made = (call.id for message in changed for call in message.tool_calls)
    known = {identifier: f"call_{at:035}" for at, identifier in enumerate(made)}
    return [
        replace(
            message,
            tool_calls=tuple(replace(call, id=known[call.id]) for call in message.tool_calls),
            tool_call_id=message.tool_call_id and known[message.tool_call_id],
        )
        for message in changed
    ]


def answers_only(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, without the calls and results before the person's last words."""
    changed = _respelled_all(history)
    last = max((at for at, message in enumerate(changed) if message.role == "user"), default=0)
    before = [one for one in changed[:last] if one.role != "tool" and not one.tool_calls]
    return [*before, *changed[last:]]


def reminded(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with reminders that come and go at people's words and results."""

    def one(message: Message) -> Message:
        if message.role not in ("user", "tool") or rng.random() < 0.5:
            return message
        block = f"<system-reminder>\nThe todo list has {rng.randrange(9)} entries.\n</system-reminder>"
        said = message.content or ""
        return replace(message, content=f"{said}\n\n{block}" if rng.random() < 0.7 else f"{block}\n{said}")

    return [one(message) for message in _respelled_all(history)]


def written_out(history: Sequence[Message], rng: Random) -> list[Message]:
    """Calls rewritten as text, as smolagents does."""
    return [_written(message) for message in history]


def cleared(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with the old results of tools cleared."""
    results = [at for at, message in enumerate(history) if message.role == "tool"]
    old = set(results[:-KEPT_RESULTS])
    return [
        replace(message, content="[Old tool result content cleared]") if at in old else message
        for at, message in enumerate(_respelled_all(history))
    ]


def windowed(history: Sequence[Message], rng: Random) -> list[Message]:
    """The last messages only, from a person's words on."""
    said = [at for at, message in enumerate(history) if message.role == "user"]
    begin = next((at for at in said if len(history) - at <= WINDOW), said[-1])
    return _respelled_all(history[begin:])


def detailed(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with the state of the editor after the last message, gone in the next request."""
    block = f"<environment_details>\n# Open tabs\n{rng.randrange(99)}.py\n</environment_details>"
    *before, last = _respelled_all(history)
    return [*before, replace(last, content=f"{last.content}\n{block}")]


def informed(history: Sequence[Message], rng: Random) -> list[Message]:
    """As `respelled`, with the time and the folder in the last message, in tags of the client's own."""
    block = f"<info-msg>\nIt is 12:{rng.randrange(10, 60)}. Working directory: /srv\n</info-msg>"
    *before, last = _respelled_all(history)
    return [*before, replace(last, content=f"{last.content}\n{block}")]


def truncated(history: Sequence[Message], rng: Random) -> list[Message]:
    """The first exchange, with a note of the gap in the first reply, and the last messages."""
    sent = detailed(history, rng)
    if len(sent) <= WINDOW + 4:
        return sent
    first, reply, *rest = sent
    cut = next(at for at in range(len(rest) - WINDOW, len(rest)) if rest[at].role == "user")
    note = "[NOTE] Some earlier messages were removed to keep the context small."
    return [first, replace(reply, content=f"{note}\n\n{reply.content}"), *rest[cut:]]


def _respelled_all(history: Sequence[Message]) -> list[Message]:
    return [_respelled(message, separators=(",", ":")) for message in history]


def _respelled(message: Message, separators: tuple[str, str]) -> Message:
    made = tuple(replace(call, arguments=_spelled(call, separators)) for call in message.tool_calls)
    said = message.content
    if message.role == "assistant" and said is not None:
        said = said.strip() or (None if made else "")
    return replace(message, content=said, reasoning=None, tool_calls=made)


def _spelled(call: ToolCall, separators: tuple[str, str]) -> str:
    parsed = json.loads(call.arguments)
    return json.dumps(dict(sorted(parsed.items())), separators=separators, ensure_ascii=False)


def _written(message: Message) -> Message:
    if not message.tool_calls:
        return replace(message, reasoning=None)
    made = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.loads(call.arguments)},
        }
        for call in message.tool_calls
    ]
    return Message(role="assistant", content=f"{message.content or ''}\nCalling tools:\n{made}")
