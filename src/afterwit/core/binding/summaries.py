"""Summaries that stand in the place of a conversation: known by the side turn of the session that wrote them.

A client sends a summary under the person's name, in words of its own around it. The judge must not take it
for what a person said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from afterwit.core.binding.parents import LONG_REPLY
from afterwit.core.binding.segments import plain_text
from afterwit.core.message import Message


def with_summaries_told(messages: Sequence[Message], replies: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, those of a user that quote one of the `replies` as the assistant's.

    `replies` are those of the session's side turns; short ones may be quoted by chance.
    """
    summaries = [text for text in map(plain_text, replies) if len(text) >= LONG_REPLY]
    if not summaries:
        return tuple(messages)
    return tuple(
        replace(message, role="assistant") if _quotes(message, summaries) else message for message in messages
    )


def _quotes(message: Message, summaries: Iterable[str]) -> bool:
    if message.role != "user" or len(message.content or "") < LONG_REPLY:
        return False
    text = plain_text(message)
    return any(summary in text for summary in summaries)
