"""The next state of a turn: what people, tools or the client's system messages say after its response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from afterwit.binding.client_text import is_boilerplate
from afterwit.binding.evidence import LONG_REPLY, Candidate, after_call, renamed
from afterwit.binding.request import (
    CALL,
    IncomingRequest,
    first_index,
    last_reply,
    plain_text,
    read_message,
    segments_of,
)
from afterwit.turn import SYSTEM, Kind, Message, RecordedTurn, call_id, observed, plain_id


def reaction(messages: Sequence[Message], after: int, kind: Kind) -> tuple[Message, ...]:
    """The messages from index `after` to the assistant's next one.

    Messages that hold only the client's text are left out, and the system's if anyone else spoke. A side turn
    keeps only its tool results: its other messages were written to obtain a title or a summary.
    """
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    kept: list[Message] = []
    system: list[Message] = []
    for index in range(after, len(messages)):
        message = messages[index]
        if message.role == "assistant":
            before = messages[index - 1].content if index > after else None
            said, empty = message.content or "", not message.tool_calls and not plain_text(message)
            # a placeholder, of a reply without visible text, ends it only after something was said
            placeholder = empty and not is_boilerplate(said, "")
            own = message.tool_calls or not (is_boilerplate(said, before or "") or placeholder)
            if own or (kept and placeholder):
                break
        elif message.role in roles and (message.role == "tool" or plain_text(message)):
            kept.append(message)
        elif message.role in SYSTEM and plain_text(message):
            system.append(message)
    return tuple(kept) if kept or kind is Kind.SIDE else observed(system)


def added_messages(messages: Sequence[Message], parent: RecordedTurn, depth: int) -> tuple[Message, ...]:
    """The next state of `parent` in the prompt of its child.

    It begins after the parent's call or reply, or after the `depth` segments of its prompt and response.
    """
    read = list(map(read_message, messages))
    written, mentions = (first_index(turns) for turns in ([r.written for r in read], [r.turns for r in read]))
    called = {**written, **mentions}.get(parent.id)
    if called is not None:
        return reaction(messages, after_call(messages, called), Kind.MAIN)
    reply, last = plain_text(parent.message), last_reply(messages)
    if reply and last is not None and read[last].text == reply:
        return reaction(messages, last + 1, Kind.MAIN)
    segments = segments_of(messages)
    if not 0 < depth <= len(segments):
        return ()
    return reaction(messages, segments[depth - 1].message + 1, Kind.MAIN)


def with_our_ids(
    results: tuple[Message, ...], incoming: IncomingRequest, turn: Candidate
) -> tuple[Message, ...]:
    """The `results` of the turn's calls, under the ids that we gave them."""
    if not renamed(incoming, turn):
        return results
    found = (one.parts for one in incoming.segments[turn.depth :][: len(turn.said)])
    theirs = (parts[1] for parts in found if parts[0] == CALL)
    ours = {identifier: call_id(turn.turn, at) for at, identifier in enumerate(theirs)}
    return tuple(
        replace(one, tool_call_id=ours.get(plain_id(one.tool_call_id or ""), one.tool_call_id))
        for one in results
    )


def with_assistant_summaries(messages: Sequence[Message], replies: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with the assistant as the author of user messages that quote one of the `replies`.

    `replies` are those of the session's side turns; short ones may be quoted by chance.
    """
    summaries = [text for text in map(plain_text, replies) if len(text) >= LONG_REPLY]

    def quotes(message: Message) -> bool:
        if not summaries or message.role != "user" or len(message.content or "") < LONG_REPLY:
            return False
        text = plain_text(message)
        return any(summary in text for summary in summaries)

    return tuple(replace(one, role="assistant") if quotes(one) else one for one in messages)
