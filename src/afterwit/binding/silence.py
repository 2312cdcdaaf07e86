"""Replies without visible text: nothing in the history says that they were there.

A client sends such a reply back as an empty message or as a thought, puts words of its own in its place, or
leaves it out. Then the person's next words follow the last ones, and some clients put both into one message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from afterwit.binding.segments import Segment, extend, plain_text
from afterwit.message import SYSTEM, Message

MOST_MESSAGES = 4
"""Messages that are looked at, the last ones."""

MOST_HEADS = 8
"""Places in a message where another may have been put behind it, the last ones."""

LONGEST_JOINED = 16_384
"""Characters of a message that is looked at for such places."""

PARAGRAPH = "\n\n"

TELLING = 40
"""Least characters of a head that begins a conversation: many begin with the same few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a user message, if it was a message of its own before."""

    fingerprint: bytes
    """Of the conversation up to its end."""
    message: int
    """Index of the message."""
    rest: Message


def heads_of(
    messages: Sequence[Message], segments: Sequence[Segment], fingerprints: Sequence[bytes], opened: int
) -> tuple[Head, ...]:
    """The heads of the last user messages from index `opened` on."""
    ends = [segment.message for segment in segments]
    said = [index for index in range(opened, len(messages)) if messages[index].role == "user"]
    return tuple(
        Head(
            fingerprint=extend(fingerprints[depth], [("user", text)]),
            message=index,
            rest=replace(messages[index], content=rest, breaks=()),
        )
        for index in said[-MOST_MESSAGES:]
        for depth in [bisect_left(ends, index)]
        for text, rest in _parts(messages[index])
        if depth or len(text) >= TELLING
    )


def _parts(message: Message) -> Iterator[tuple[str, str]]:
    content = message.content or ""
    if len(content) > LONGEST_JOINED:
        return
    starts, at = set(message.breaks), content.find(PARAGRAPH)
    while at >= 0:
        starts.add(at + len(PARAGRAPH))
        at = content.find(PARAGRAPH, at + 1)
    for start in sorted(starts)[-MOST_HEADS:]:
        text, rest = plain_text(replace(message, content=content[:start])), content[start:].strip()
        if text and rest:
            yield text, rest


def goes_on(messages: Sequence[Message], texts: Sequence[str], *, behind: str | None) -> bool:
    """Whether a client goes on behind a reply without text, given the messages from there on.

    `behind` is the role of the first segment among them; None: there is none. Then only the system can have
    spoken, behind an empty message in the place of the reply.
    """
    if behind is not None:
        return behind == "user"
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    told = zip(messages, texts, strict=True)
    spoken = [index for index, (message, text) in enumerate(told) if message.role in SYSTEM and text]
    return bool(replies) and bool(spoken) and replies[0] < spoken[-1]
