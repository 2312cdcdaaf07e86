"""Reasoning, content and tool calls, read from a response's text while it streams.

A call is passed on when it is complete, and the beginning of its arguments before (`arguments`). A call that
cannot be read is content: no sampled text is lost. Time is proportional to the text, however it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from afterwit.chat_format.calls import WrittenCall, schemas_of
from afterwit.chat_format.families import (
    CHANNEL,
    CONVENTIONS,
    MESSAGE,
    MESSAGE_ENDS,
    START,
    CallMarks,
    Convention,
    Thought,
    channel,
    recipient,
)
from afterwit.dialects.dialect import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta
from afterwit.turn import MOST_CALLS, Message, ToolCall

SLICE = 4096
"""Characters read at a time: the text after a call is copied once for each call."""

LONGEST_HEADER = 512
"""Characters. Longer text is content, not a header, nor the marks around calls."""

HEADS = (START, CHANNEL, MESSAGE, "to=")
"""The beginnings of headers: the prompt ends with the beginning of one."""

BREAK = "\n\n"
"""Between two messages that are both content, or both reasoning."""

MOST_QUOTED_ENDS = 32
"""Quoted end marks that one call may hold; each costs a reading of the whole call."""

_BEGUN = re.compile(
    f"(?:{'|'.join(sorted({re.escape(entry.calls[0].begin) for entry in CONVENTIONS if entry.calls}))})"
    r"(?:\s*(?:[{\[]|<(?!/))|\n?\w[\w.:-]*(?:[(\[{<\n]|\Z))"
)
"""A mark and the beginning of a call: JSON, another mark or a name. In prose, words follow."""

T = TypeVar("T")

Reading = Generator[None, str, T]
"""Takes the text in pieces. At the end of the response, `EndOfResponse` is raised in it."""


class EndOfResponse(Exception):
    """No more text comes: a reading uses the text that it held back."""


class ResponseParser:
    """Reads one response.

    `thought`: it begins inside this reasoning. The `tools` of the request type the arguments that a
    convention writes without quotes.
    """

    def __init__(
        self,
        convention: Convention,
        *,
        thought: Thought | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._convention, self._tools, self._schemas = convention, tools, schemas_of(tools)
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ParsedCall] = []
        self._begun: tuple[int, str, list[str]] | None = None
        """The call that is being written: its index, its name, and the arguments that were passed on."""
        self._said_calls = 0
        """Calls before the latest content."""
        self._indices = 0
        """Indices of calls so far, with those that were begun and not completed."""
        self.thinks = thought is not None
        """Whether the latest text is reasoning."""
        self._code = Code()
        self._code_read = 0
        """Texts of the content that `_code` has read."""
        self._again = ""
        """Text that a reading gives back, to be read in slices: each call copies the rest of its slice."""
        self._events: list[ResponseEvent] = []
        self._reading = self._messages() if convention.grammar == "harmony" else self._marked(thought)
        next(self._reading)

    def push(self, text: str) -> list[ResponseEvent]:
        self._send(text)
        events, self._events = self._events, []
        return events

    def finish(self) -> list[ResponseEvent]:
        """The events of the text that was held back until the end of the response."""
        with suppress(EndOfResponse):
            while True:  # a reading may go on with text that it held back
                self._reading.throw(EndOfResponse)
                self._send("")
        events, self._events = self._events, []
        return events

    def _send(self, text: str) -> None:
        """Have text that was given back read again, then this text, in slices."""
        waiting = [(text, 0), (self._again, 0)]
        self._again = ""
        while waiting:
            text, start = waiting.pop()
            if start < len(text):
                self._reading.send(text[start : start + SLICE])
                waiting += [(text, start + SLICE), (self._again, 0)]
                self._again = ""

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        content = "".join(self._content)
        return Message(
            role="assistant",
            content=content if content or not self._calls else None,
            reasoning="".join(self._reasoning) or None,
            tool_calls=tuple(
                ToolCall(id=call_id(call.index), name=call.name, arguments=call.arguments)
                for call in self._calls
            ),
        )

    def _marked(self, thought: Thought | None) -> Reading[None]:
        thoughts = {thought.begin: thought for thought in self._convention.thoughts}
        text, trim = "", False
        while True:
            if thought is None and (self._convention.openings or not trim):
                mark, text = yield from self._beginning(text, trim=trim)
                if mark in self._convention.openings:
                    yield from self._whole(text)
                thought = thoughts.get(mark)
            if thought is None:
                yield from self._answer(text, trim=trim)
            else:
                self.thinks = True
                text = yield from self._thinking(thought, text)
                self.thinks = False
            thought, trim = None, True

    def _beginning(self, text: str, *, trim: bool) -> Reading[tuple[str, str]]:
        """The mark that the response begins with, empty if none, and the text to read next."""
        openings = self._convention.openings
        marks = (*(thought.begin for thought in self._convention.thoughts), *openings)
        held, window = [""], ""
        try:
            while True:
                held.append(text)
                window = window + text if window else text.lstrip()
                if not any(mark.startswith(window) and mark != window for mark in marks):
                    mark = max(filter(window.startswith, marks), key=len, default="")
                    if mark in openings:
                        return mark, window if trim else "".join(held)
                    return mark, window[len(mark) :] if mark else "".join(held)
                text = yield
        except EndOfResponse:
            self._say(window if trim else "".join(held))
            raise

    def _thinking(self, thought: Thought, text: str) -> Reading[str]:
        """Reasoning up to its end; the text after it.

        A call that is begun within it is a call only if the reasoning never ends otherwise.
        """
        marks = (thought.end, *(call.begin for call in self._convention.calls), *self._convention.wrappers)
        mark, space, text = yield from passage(text, marks, self._think, trim=True)
        if mark == thought.end:
            return text
        held, end, rest = yield from up_to_mark(space + mark + text, (thought.end,))
        if end is not None:
            self._think(held.rstrip())
            return rest
        content, calls = self._apart(held.lstrip(), replace(self._convention, thoughts=()))
        if content or not self._add_calls(calls):
            self._think(held)
        raise EndOfResponse

    def _apart(self, text: str, convention: Convention) -> tuple[str, list[WrittenCall]]:
        """The content and the calls of a text by itself."""
        alone = ResponseParser(convention, tools=self._tools)
        alone.push(text)
        alone.finish()
        return "".join(alone._content), [WrittenCall(call.name, call.arguments) for call in alone._calls]

    def _answer(self, text: str, *, trim: bool) -> Reading[None]:
        """Content and calls. A mark around calls has no meaning next to one, and is text anywhere else."""
        begins = {call.begin: call for call in self._convention.calls}
        around = (*self._convention.wrappers, *(call.end for call in self._convention.calls if call.end))
        marks, held, called = (*begins, *around), "", False
        while True:
            before = len(self._content)
            try:
                mark, space, text = yield from passage(
                    text, marks, self._say, trim=trim and not held, strip=bool(self._calls), lead=held
                )
            except EndOfResponse:
                if len(self._content) == before and not self._calls:
                    self._say(held)
                raise
            said = len(self._content) > before
            space, trim = ("" if said else held) + space, True
            if mark in begins:
                called, text = yield from self._call(begins[mark], space, text)
                held, trim = "", called
            elif called and not said:
                held = ""
            else:
                held, called = space + mark, False
                if len(held) > LONGEST_HEADER:
                    self._say(held)
                    held, trim = "", False

    def _call(self, marks: CallMarks, space: str, text: str) -> Reading[tuple[bool, str]]:
        """One call, after white space: whether it could be read, and the text after it."""
        code = self._within_code(space)
        watch = _unwatched if code else self._watch()
        if marks.end:
            body, end, rest = yield from up_to_mark(text, (marks.end,), marks.quotes_end, watch)
        else:
            body, end, rest = yield from up_to_json_end(text, watch)
        written = marks.begin + body
        if end is None:
            if not (marks.is_whole(body) and self._read(body)):
                self._say(written if holds_unread_call(written) else space + written)
            raise EndOfResponse
        if code:  # an example, unless the code never ends
            closing = (code,) if len(code) >= Code.FENCE else (code, "\n")
            after, closed, rest = yield from up_to_mark(rest, closing)
            if closed == code:
                self._say(space + written + end + after + code)
                return False, rest
            self._code.within, self._again, rest = "", after + (closed or "") + rest, ""
        if self._read(body):
            return True, rest
        mention = written.rfind(marks.begin, 1)
        if mention > 0:  # the mark was mentioned before it began a call
            prose = written[:mention].rstrip()
            while wrapper := next(filter(prose.endswith, self._convention.wrappers), ""):
                prose = prose.removesuffix(wrapper).rstrip()
            self._say(space + prose)
            return False, written[len(prose) :] + end + rest
        self._say(space + written + end)
        return False, rest

    def _within_code(self, space: str) -> str:
        """The backticks or tildes that opened the code in which the content and this white space end."""
        self._code.read("".join(self._content[self._code_read :]) + space)
        self._code_read = len(self._content)
        return self._code.within

    def _whole(self, text: str) -> Reading[None]:
        """The whole response may be calls: hold it back to its end. Else it is read as any other."""
        watch, held = self._watch(), [""]
        try:
            while True:
                held.append(text)
                watch(text)
                text = yield
        except EndOfResponse:
            whole = "".join(held)
            if not self._read(whole):
                content, calls = self._apart(whole, replace(self._convention, thoughts=(), openings=()))
                self._say(content if calls else whole)
                self._add_calls(calls)
            raise

    def _messages(self) -> Reading[None]:
        header, text = "", ""
        while True:
            header, text = yield from self._header(header + text)
            self.thinks = False
            if recipient(header) and self._convention.calls:
                header += MESSAGE
                watch = self._watch()
                watch(header)
                body, mark, text = yield from up_to_mark(
                    text, MESSAGE_ENDS, self._convention.calls[0].quotes_end, watch
                )
                if not self._read(header + body):
                    self._say(header + body + ("" if mark in (None, START) else mark))
                if mark is None:
                    raise EndOfResponse
            else:
                self.thinks = channel(header) == "analysis"
                add, before = (self._think, self._reasoning) if self.thinks else (self._say, self._content)
                lead = BREAK if before else ""
                mark, _, text = yield from passage(text, MESSAGE_ENDS, add, trim=bool(before), lead=lead)
            header = START if mark == START else ""

    def _header(self, header: str) -> Reading[tuple[str, str]]:
        """A message's header, and the text after it. A response in another form is content to its end."""
        while True:
            head, found, rest = header.partition(MESSAGE)
            begun = head.lstrip()
            fits = any(begun.startswith(known) or known.startswith(begun) for known in HEADS)
            if found and fits and len(head) <= LONGEST_HEADER:
                return head, rest
            if found or not fits or len(header) >= LONGEST_HEADER + len(MESSAGE):
                break
            try:
                header += yield
            except EndOfResponse:
                if START not in header and CHANNEL not in header:
                    self._say(header)
                raise
        while True:
            self._say(header)
            header = yield

    def _say(self, text: str) -> None:
        """Content. Text after a call begins on a new line."""
        if text:
            if self._content and self._said_calls < len(self._calls) and not text[0].isspace():
                text = "\n" + text
            self._said_calls = len(self._calls)
            self._content.append(text)
            self._events.append(TextDelta(text=text))

    def _think(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._events.append(ReasoningDelta(text=text))

    def _watch(self) -> Callable[[str], None]:
        ahead = self._convention.ahead(self._schemas)
        next(ahead)

        def push(text: str) -> None:
            piece = ahead.send(text)
            if piece is None or (self._begun is None and self._indices == MOST_CALLS):
                return
            if self._begun is None:
                self._begun = (self._indices, piece.name, [])
                self._indices += 1
            index, name, sent = self._begun
            sent.append(piece.arguments)
            self._events.append(CallDelta(index=index, name=name, arguments=piece.arguments))

        return push

    def _read(self, text: str) -> bool:
        return self._add_calls(self._convention.read(text, self._schemas))

    def _add_calls(self, calls: Sequence[WrittenCall]) -> bool:
        """Add complete calls; False, and nothing is added, if there are none or too few ids are left.

        The first one completes the begun call, if it begins with the arguments that were passed on.
        """
        begun, self._begun = self._begun, None
        first = self._indices
        if begun is not None and calls:
            index, name, sent = begun
            if calls[0].name == name and calls[0].arguments.startswith("".join(sent)):
                first = index
        if not calls or first + len(calls) > MOST_CALLS:
            return False
        added = [
            ParsedCall(index=index, name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(calls, first)
        ]
        self._calls += added
        self._events += added
        self._indices = first + len(calls)
        return True


def passage(
    text: str,
    marks: Sequence[str],
    add: Callable[[str], None],
    *,
    trim: bool,
    strip: bool = False,
    lead: str = "",
) -> Reading[tuple[str, str, str]]:
    """Pass on text up to one of the marks. Returns the mark, the white space before it, and the rest.

    The white space before a mark is not passed on; nor is that at the beginning if `trim`, nor that at the
    end of the response if `strip`. `lead` is added before the first text. Without marks, all text is passed
    on at once.
    """
    pattern = re.compile("|".join(map(re.escape, marks)))
    firsts = frozenset(mark[0] for mark in marks)
    space: list[str] = []
    tail, found = "", None
    try:
        while True:
            if tail or not firsts.isdisjoint(text):
                text = tail + text
                found = pattern.search(text)
                cut = found.start() if found else min(_possible_mark(text, mark) for mark in marks)
                text, tail = text[:cut], text[cut:]
            if trim:
                text = text.lstrip()
                trim = not text
            core = text.rstrip() if marks else text
            if core:
                add("".join((lead, *space, core)) if lead or space else core)
                lead, space = "", [text[len(core) :]] if len(core) < len(text) else []
            elif text:
                space.append(text)
            if found:
                return found[0], "".join(space), tail[len(found[0]) :]
            text = yield
    except EndOfResponse:
        text = "".join(space) + tail
        text = text.lstrip() if trim else text
        if text and not (strip and text.isspace()):
            add(lead + text)
        raise


def _possible_mark(text: str, mark: str) -> int:
    """The start of the longest end of the text that may become the mark; the text's length without one.

    A mark's first character is in it once, so only the last one in the text can begin it.
    """
    begun = text.rfind(mark[0], -len(mark))
    return begun if begun >= 0 and mark.startswith(text[begun:]) else len(text)


Held = tuple[str, str | None, str]
"""A call's text, the mark that ended it (None: the response did), and the text after it."""


def _unwatched(text: str) -> None: ...


def up_to_mark(
    text: str,
    ends: Sequence[str],
    quotes_end: Callable[[str], bool] = lambda body: False,
    watch: Callable[[str], None] = _unwatched,
) -> Reading[Held]:
    """Hold text back up to the first of the marks that is not quoted; `watch` sees the pieces before."""
    pattern = re.compile("|".join(map(re.escape, ends)))
    reach = max(map(len, ends)) - 1
    held, length = [""], 0
    window, quoted, after = "", 0, 0
    try:
        while True:
            held.append(text)
            length += len(text)
            window += text
            begin = length - len(window)
            found = pattern.search(window, max(0, after - begin))
            while found:
                held = ["".join(held)]
                body = held[0][: begin + found.start()]
                if quoted == MOST_QUOTED_ENDS or not quotes_end(body):
                    return body, found[0], held[0][begin + found.end() :]
                quoted += 1
                after = begin + found.start() + 1
                found = pattern.search(window, found.start() + 1)
            window = window[max(0, len(window) - reach) :]
            watch(text)
            text = yield
    except EndOfResponse:
        return "".join(held), None, ""


_STRUCTURE = re.compile(r'["{}[\]]')
_IN_STRING = re.compile(r'["\\]')


def up_to_json_end(text: str, watch: Callable[[str], None]) -> Reading[Held]:
    """Hold text back up to the end of its JSON value; `watch` sees the pieces before.

    The value is an array or object at the beginning of the text, or else the first object in it: a name
    before the object may have square brackets.
    """
    held = [""]
    begun = named = quoted = False
    depth = place = 0
    try:
        while True:
            if not begun:
                start = text.lstrip()
                array = not named and start.startswith("[")
                named = named or bool(start)
                place = text.find("[" if array else "{")
                begun = place >= 0
            while begun and (found := (_IN_STRING if quoted else _STRUCTURE).search(text, place)):
                place = found.end()
                if found[0] == "\\":
                    place += 1  # perhaps in the next piece
                elif found[0] == '"':
                    quoted = not quoted
                else:
                    depth += 1 if found[0] in "{[" else -1
                    if depth == 0:
                        return "".join((*held, text[:place])), "", text[place:]
            place = max(0, place - len(text))
            held.append(text)
            watch(text)
            text = yield
    except EndOfResponse:
        return "".join(held), None, ""


def holds_unread_call(content: str) -> bool:
    """Whether content contains the beginning of a call, of any convention, that could not be read.

    A mark that is only mentioned, or is in code, begins none.
    """
    code, read = Code(), 0
    for found in _BEGUN.finditer(content):
        if found.start() < read:
            continue
        code.read(content[read : found.start()])
        read = code.end(content, found.start()) if code.within else -1
        if read < 0:
            return True
    return False


class Code:
    """Whether a text, read piece by piece, ends within Markdown's code."""

    FENCE = 3
    """Backticks or tildes that open code of several lines; fewer backticks open code within one line."""
    _DELIMITER = re.compile(r"\n|`+|~{3,}")

    def __init__(self) -> None:
        self.within = ""
        """The backticks or tildes that opened the code; empty outside."""

    def read(self, text: str) -> None:
        for run in self._DELIMITER.findall(text):
            if run == "\n":
                self.within = self.within if len(self.within) >= self.FENCE else ""
            elif not self.within:
                self.within = run
            elif run == self.within or (len(self.within) >= self.FENCE and run.startswith(self.within)):
                self.within = ""

    def end(self, text: str, place: int) -> int:
        """The place, from this one on, where the code ends; -1 if it never does."""
        line = text.find("\n", place) if len(self.within) < self.FENCE else -1
        return text.find(self.within, place, len(text) if line < 0 else line)
