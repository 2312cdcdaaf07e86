"""The records that OpenClaw-RL's servers write: one turn a line, with all messages before it.

Fields: `session_id`, `turn`, `messages` (the request's), `response_text` (with the template's marks),
`tool_calls` or null, `next_state` (the last message of the next request) or null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from afterwit.core.message import Message
from afterwit.core.recording import Recording
from afterwit.wire.fields import as_object, as_text, wrong_value
from afterwit.wire.openai_chat.messages import parse_messages
from afterwit.wire.recorded.openai_chat import LIMITS

_THOUGHT = re.compile(r"\A\s*(?:<think>)?(.*?)</think>", re.DOTALL)
_CALLS = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_END = re.compile(r"(?:<\|[a-z_]+\|>|</s>)\s*\Z")
"""The mark that a chat template writes after a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One turn of a session."""

    session: str
    before: tuple[Message, ...]
    response: Message
    next_state: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.before, self.response, *self.next_state)


class SessionChains:
    """Puts sessions together from their records: a record that repeats the one before it goes on from it."""

    def __init__(self) -> None:
        self._chains: dict[str, list[SessionRecord]] = {}

    def add(self, record: SessionRecord) -> Iterator[Recording]:
        """Take a record; the session's recording so far, if this one begins anew."""
        chain = self._chains.get(record.session)
        if chain is not None and _continues(record, chain[-1]):
            chain.append(record)
            return
        if chain is not None:
            yield _recording(chain)
        self._chains[record.session] = [record]

    def rest(self) -> Iterator[Recording]:
        """What is left at the end of the file."""
        for chain in self._chains.values():
            yield _recording(chain)


def is_record(data: Any) -> bool:
    """Whether a line is one of theirs."""
    return isinstance(data, Mapping) and "session_id" in data and "response_text" in data


def parse_record(data: Mapping[str, Any]) -> SessionRecord:
    """Raises RequestError that names what is wrong."""
    before = parse_messages(data.get("messages"), LIMITS)
    following = data.get("next_state")
    return SessionRecord(
        session=as_text(data["session_id"], "session_id"),
        before=before,
        response=_response(as_text(data["response_text"], "response_text"), data.get("tool_calls")),
        next_state=() if following is None else _reaction(following),
    )


def _response(said: str, calls: Any) -> Message:
    """The response without the marks of its template. `calls` are the parsed ones; they leave the text."""
    thought = _THOUGHT.match(said)
    content = _END.sub("", said[thought.end() :] if thought else said)
    written = {"role": "assistant", "content": (_CALLS.sub("", content) if calls else content).strip()}
    (message,) = parse_messages([{**written, "tool_calls": calls}], LIMITS)
    return replace(message, reasoning=thought[1].strip() or None if thought else None)


def _reaction(written: Any) -> tuple[Message, ...]:
    (message,) = parse_messages([as_object(written, "next_state")], LIMITS)
    if message.role == "assistant":
        raise wrong_value("next_state", "is said by the assistant")
    return (message,)


def _continues(record: SessionRecord, earlier: SessionRecord) -> bool:
    """Whether a record's messages are the earlier one's, a response, and something more."""
    at = len(earlier.before)
    return (
        record.before[:at] == earlier.before
        and len(record.before) > at + 1
        and (record.before[at].role == "assistant")
    )


def _recording(chain: list[SessionRecord]) -> Recording:
    """The last record has all messages; each earlier response stands in it as it was sampled, not echoed."""
    messages = list(chain[-1].messages)
    for record in chain:
        messages[len(record.before)] = record.response
    return Recording(messages=tuple(messages), responses=tuple(len(record.before) for record in chain))
