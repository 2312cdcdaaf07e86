"""What a response says: thought, content and tool calls, read from its text while it streams.

A call is handed on when it is complete. One that does not parse is content: nothing that was sampled is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.call_json import ends_in_a_string, parse_call, parse_calls

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
MARKERS = frozenset({THINK, END_THINK, CALL, END_CALL, PYTHON_TAG})
"""Texts that the reader needs to see, even where a tokenizer calls them special."""
MOST_QUOTED_TAGS = 32
"""Closing tags that an argument's text may hold; each costs a look at the whole call."""


class Style(StrEnum):
    """How a model writes a tool call."""

    TAGGED = "tagged"
    """Hermes, Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as many as it likes."""
    BARE = "bare"
    """Llama 3: the whole response is `{"name": ..., "parameters": {...}}`; several may follow each other."""
    NONE = "none"
    """No calls: a template that knows none, or a request without tools."""


def style_of(template_source: str) -> Style:
    """The style that a chat template teaches."""
    if CALL in template_source and "<function=" not in template_source:
        return Style.TAGGED
    if '"parameters"' in template_source and ("ipython" in template_source or PYTHON_TAG in template_source):
        return Style.BARE
    return Style.NONE


def opens_thought(prompt: str) -> bool:
    """Whether a rendered prompt leaves a thought open, so that the response begins inside it."""
    return prompt.rstrip().endswith(THINK)


def forced_opening(style: Style, name: str | None, *, thinking: bool) -> str:
    """The text that makes a response call a tool: any, or the one named. Empty for a style without calls."""
    closed = f"\n{END_THINK}\n\n" if thinking else ""
    named = "" if name is None else json.dumps(name, ensure_ascii=False)[1:] + ", "
    if style is Style.TAGGED:
        return f'{closed}{CALL}\n{{"name": "{named}' + ('"arguments": {' if name else "")
    if style is Style.BARE:
        return f'{closed}{{"name": "{named}' + ('"parameters": {' if name else "")
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One complete tool call; `arguments` is a JSON object as the model wrote it."""

    index: int
    name: str
    arguments: str


Event = Content | Thought | Call


class _Where(IntEnum):
    START = 0
    THOUGHT = 1
    ANSWER = 2
    CALL = 3
    BARE = 4


class Reader:
    """Reads one response. `thinking`: it begins inside a thought (see `opens_thought`)."""

    def __init__(self, style: Style, *, thinking: bool = False) -> None:
        self._style = style
        self._where = _Where.THOUGHT if thinking else _Where.START
        self._text = ""
        """Not handed on yet."""
        self._fresh = True
        """Nothing of the current part was handed on: white space that opens it is not part of it."""
        self._quoted = self._inner = 0
        """Where to look for the end of a call, and how many tags before it stand in a string."""
        self._content: list[str] = []
        self._thought: list[str] = []
        self._calls: list[Call] = []

    def push(self, text: str) -> list[Event]:
        """What this text completes."""
        self._text += text
        return self._read(last=False)

    def finish(self) -> list[Event]:
        """What was held back when the response ended."""
        return self._read(last=True)

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        calls = tuple(
            ToolCall(id=call_id(call.index), name=call.name, arguments=call.arguments) for call in self._calls
        )
        content = "".join(self._content)
        return Message(
            role="assistant",
            content=content if content or not calls else None,
            reasoning="".join(self._thought) or None,
            tool_calls=calls,
        )

    def _read(self, *, last: bool) -> list[Event]:
        events: list[Event] = []
        while self._text or last:
            where, left = self._where, len(self._text)
            events += _STEPS[where](self, last)
            if (self._where, len(self._text)) == (where, left):
                break
        return events

    def _start(self, last: bool) -> list[Event]:
        begun = self._text.lstrip()
        if begun.startswith(THINK):
            self._enter(_Where.THOUGHT, begun[len(THINK) :])
        elif not last and (not begun or THINK.startswith(begun)):
            return []
        elif self._style is Style.BARE and begun.startswith(("{", PYTHON_TAG)):
            self._where = _Where.BARE
        elif self._style is Style.BARE and not last and PYTHON_TAG.startswith(begun):
            return []
        else:
            self._where, self._fresh = _Where.ANSWER, bool(self._thought)
        return []

    def _thinking(self, last: bool) -> list[Event]:
        thought, end, rest = self._text.partition(END_THINK)
        if end:
            self._text = ""
            events = self._say(Thought, thought.rstrip())
            self._enter(_Where.START if self._style is Style.BARE else _Where.ANSWER, rest.lstrip())
            return events
        return self._say_safe(Thought, END_THINK, last)

    def _answer(self, last: bool) -> list[Event]:
        if self._style is not Style.TAGGED:
            return self._say_safe(Content, "", last)
        answer, begin, rest = self._text.partition(CALL)
        if begin:
            self._text = ""
            events = self._say(Content, answer.rstrip())
            self._enter(_Where.CALL, rest)
            return events
        if last and self._calls and not self._text.strip():
            self._text = ""
        return self._say_safe(Content, CALL, last)

    def _call(self, last: bool) -> list[Event]:
        end = self._text.find(END_CALL, self._quoted)
        while end >= 0 and self._inner < MOST_QUOTED_TAGS and ends_in_a_string(self._text[:end]):
            self._quoted, self._inner = end + 1, self._inner + 1
            end = self._text.find(END_CALL, self._quoted)
        if end < 0 and not last:
            return []
        body, rest = (self._text, "") if end < 0 else (self._text[:end], self._text[end + len(END_CALL) :])
        call = parse_call(body)
        if call is None:
            whole = CALL + body + (END_CALL if end >= 0 else "")
            self._where, self._fresh, self._text = _Where.ANSWER, False, rest
            return self._said(Content(text=whole))
        self._enter(_Where.ANSWER, rest)
        return self._called(*call)

    def _bare(self, last: bool) -> list[Event]:
        if not last:
            return []
        whole, self._text = self._text, ""
        self._where = _Where.ANSWER
        calls = parse_calls(whole.strip().removeprefix(PYTHON_TAG))
        if not calls:
            return self._said(Content(text=whole))
        return [event for call in calls for event in self._called(*call)]

    def _enter(self, where: _Where, rest: str) -> None:
        self._where, self._fresh, self._text = where, True, rest
        self._quoted = self._inner = 0

    def _say_safe(self, kind: type[Content] | type[Thought], marker: str, last: bool) -> list[Event]:
        """Hand on what can no longer belong to a marker or to the white space before one."""
        text = self._text.lstrip() if self._fresh else self._text
        keep = len(text) if last else _safe_length(text, marker)
        self._text = text[keep:]
        return self._say(kind, text[:keep])

    def _say(self, kind: type[Content] | type[Thought], text: str) -> list[Event]:
        text = text.lstrip() if self._fresh else text
        if not text:
            return []
        self._fresh = False
        return self._said(kind(text=text))

    def _said(self, event: Content | Thought) -> list[Event]:
        (self._content if isinstance(event, Content) else self._thought).append(event.text)
        return [event]

    def _called(self, name: str, arguments: str) -> list[Event]:
        call = Call(index=len(self._calls), name=name, arguments=arguments)
        self._calls.append(call)
        return [call]


_STEPS: tuple[Callable[[Reader, bool], list[Event]], ...] = (
    Reader._start,
    Reader._thinking,
    Reader._answer,
    Reader._call,
    Reader._bare,
)
"""In the order of `_Where`."""


def _safe_length(text: str, marker: str) -> int:
    """How much of a text can be handed on before more of it is known.

    A marker's first character is in it once, so only the last one in the text can begin it.
    """
    if not marker:
        return len(text)
    begun = text.rfind(marker[0], -len(marker))
    if begun >= 0 and marker.startswith(text[begun:]):
        text = text[:begun]
    return len(text.rstrip())
