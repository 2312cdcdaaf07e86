"""The next state of a turn: which messages of a later request answer it."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.binding.client_text import is_boilerplate
from afterwit.core.binding.read_message import mentions, read_message, written_calls
from afterwit.core.binding.request import IncomingRequest, after_call, last_reply
from afterwit.core.binding.segments import plain_text, segments_of
from afterwit.core.message import SYSTEM, Message, observed
from afterwit.core.turn import Kind, RecordedTurn


def next_state(
    incoming: IncomingRequest, after: int, kind: Kind, behind: tuple[Message, ...] = ()
) -> tuple[Message, ...]:
    """The next state: what is `behind` a summary, and the messages from `after` to the assistant's next one.

    Messages that hold only the client's text are left out, the system's if anybody else spoke. A side turn
    keeps only its tool results: its other messages were written to obtain a title or a summary.
    """
    return (*_reaction(behind, 0, kind), *_reaction(incoming.messages, after, kind))


def added_messages(messages: Sequence[Message], parent: RecordedTurn, depth: int) -> tuple[Message, ...]:
    """The next state of `parent` in the prompt of its child.

    It begins after the parent's call or reply, or after the `depth` segments of its prompt and response.
    """
    read = list(map(read_message, messages))
    called = {**written_calls(read), **mentions(read)}.get(parent.id)
    if called is not None:
        return _reaction(messages, after_call(messages, called), Kind.MAIN)
    reply, last = plain_text(parent.message), last_reply(messages)
    if reply and last is not None and plain_text(messages[last]) == reply:
        return _reaction(messages, last + 1, Kind.MAIN)
    segments = segments_of(messages, tuple(plain_text(message) for message in messages))
    if not 0 < depth <= len(segments):
        return ()
    return _reaction(messages, segments[depth - 1].message + 1, Kind.MAIN)


def _reaction(messages: Sequence[Message], after: int, kind: Kind) -> tuple[Message, ...]:
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    kept: list[Message] = []
    told: list[Message] = []
    for index in range(after, len(messages)):
        message, before = messages[index], messages[index - 1].content if index > after else None
        if _speaks(message, before) or (kept and _is_silent(message)):
            break
        if message.role in roles and (message.role == "tool" or plain_text(message)):
            kept.append(message)
        elif message.role in SYSTEM and plain_text(message):
            told.append(message)
    return tuple(kept) if kept or kind is Kind.SIDE else observed(told)


def _speaks(message: Message, before: str | None) -> bool:
    """Whether the assistant said this, and not the client in its place."""
    if message.role != "assistant":
        return False
    boilerplate = is_boilerplate(message.content or "", before or "")
    return bool(message.tool_calls) or not (boilerplate or _is_silent(message))


def _is_silent(message: Message) -> bool:
    """Whether it stands in the place of a reply without visible text."""
    said = message.content or ""
    silent = not message.tool_calls and not plain_text(message) and not is_boilerplate(said, "")
    return message.role == "assistant" and silent
