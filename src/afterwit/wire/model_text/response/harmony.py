"""Responses in gpt-oss's form: messages in channels, see `conventions.harmony`."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from afterwit.wire.model_text.calls.written import Schemas
from afterwit.wire.model_text.conventions import Convention
from afterwit.wire.model_text.conventions.harmony import CHANNEL, ENDS, MESSAGE, START, channel, recipient
from afterwit.wire.model_text.response.call_text import CallText, UpToMark
from afterwit.wire.model_text.response.growing import Growing
from afterwit.wire.model_text.response.passage import Passage

LONGEST_HEADER = 512
"""Characters. What is longer is no header, but content."""
HEADS = (START, CHANNEL, MESSAGE, "to=")
"""What a header may begin with: the prompt ends with the beginning of one."""
BREAK = "\n\n"
"""Between two messages that are both content, or both reasoning."""


class _State(IntEnum):
    HEADER = 0
    TEXT = 1
    CALL = 2
    PLAIN = 3
    """Not in this form: the rest is content."""


class HarmonyReader:
    """Reads one response into what it grows to."""

    def __init__(self, convention: Convention, growing: Growing, schemas: Schemas) -> None:
        self._convention = convention
        self._growing = growing
        self._schemas = schemas
        self._state = _State.HEADER
        self._header = ""
        """What there is of the header, or the one of the current call."""
        self._say = growing.say
        self._break = ""
        """What comes before the message's first text."""

    def push(self, text: str) -> None:
        """Reads more text."""
        rest: str | None = text
        while rest:
            rest = _STEPS[self._state](self, rest)

    def finish(self) -> None:
        """Reads what was held back: the response has ended."""
        if self._state is _State.TEXT:
            self._speak(self._passage.finish())
        elif self._state is _State.CALL:
            self._end_call(self._call.held(), "")
        elif self._state is _State.HEADER and not any(mark in self._header for mark in (START, CHANNEL)):
            self._growing.say(self._header)

    def _in_header(self, text: str) -> str | None:
        self._header += text
        header, found, rest = self._header.partition(MESSAGE)
        if found and len(header) <= LONGEST_HEADER and _may_be_header(header):
            return self._open(header, rest)
        if found or len(self._header) >= LONGEST_HEADER + len(MESSAGE) or not _may_be_header(self._header):
            self._state = _State.PLAIN
            return self._header
        return None

    def _open(self, header: str, rest: str) -> str:
        """A message begins."""
        if recipient(header) and self._convention.calls:
            self._header = header + MESSAGE
            self._call: CallText = UpToMark(ENDS, self._convention.calls[0].quotes_end)
            self._ahead = self._convention.ahead(self._schemas)
            self._ahead.push(self._header)
            self._state = _State.CALL
            return rest
        thought = channel(header) == "analysis"
        self._say = self._growing.think if thought else self._growing.say
        spoken = self._growing.has_reasoning if thought else self._growing.has_content
        self._break = BREAK if spoken else ""
        self._passage = Passage(ENDS, trim=bool(spoken))
        self._state = _State.TEXT
        return rest

    def _in_text(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._speak(cleared.text)
        return None if cleared.mark is None else self._next(cleared.mark, cleared.rest)

    def _in_call(self, text: str) -> str | None:
        ended = self._call.push(text)
        if ended is None:
            self._growing.begin(self._ahead.push(text))
            return None
        self._end_call(ended.body, ended.mark)
        return self._next(ended.mark, ended.rest)

    def _plain(self, text: str) -> None:
        self._growing.say(text)

    def _next(self, mark: str, rest: str) -> str:
        """A message has ended, and perhaps another one begun."""
        self._state = _State.HEADER
        self._header = START if mark == START else ""
        return rest

    def _end_call(self, body: str, mark: str) -> None:
        if not self._growing.call(self._convention.read(self._header + body, self._schemas)):
            self._growing.say(self._header + body + ("" if mark == START else mark))

    def _speak(self, text: str) -> None:
        if text:
            self._say(self._break + text)
            self._break = ""


def _may_be_header(text: str) -> bool:
    """Whether a text can be the beginning of a header."""
    begun = text.lstrip()
    return any(begun.startswith(head) or head.startswith(begun) for head in HEADS)


_STEPS: tuple[Callable[[HarmonyReader, str], str | None], ...] = (
    HarmonyReader._in_header,
    HarmonyReader._in_text,
    HarmonyReader._in_call,
    HarmonyReader._plain,
)
"""In the order of `_State`. Each takes text and gives back what the next state must read."""
