"""What one family's way of writing reasoning and tool calls is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from afterwit.chat_format.arguments import NOT_AHEAD, Ahead
from afterwit.chat_format.calls import Schemas, WrittenCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The marks around reasoning."""

    begin: str
    end: str
    closing: str
    """What closes reasoning that the prompt left open, for a forced call: the end mark with its spacing."""


THINK = Thought(begin="<think>", end="</think>", closing="\n</think>\n\n")


def never(text: str) -> bool:
    """No text."""
    return False


def always(text: str) -> bool:
    """Any text."""
    return True


def _read_nothing(text: str, schemas: Schemas) -> list[WrittenCall]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMarks:
    """The marks around one call, or around several that are read together."""

    begin: str
    end: str = ""
    """Empty: the call ends with the JSON value that it holds."""
    quotes_end: Callable[[str], bool] = never
    """Whether text behind `begin` stops inside an argument, so that the `end` after it is quoted."""
    is_whole: Callable[[str], bool] = always
    """Whether text behind `begin` is to be read although the response ended before `end`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One way of writing tool calls and reasoning.

    Calls are between marks anywhere in the response, or the whole response is made of calls and starts with
    one of `openings`. No character of a mark but its first may be its first again.
    """

    name: str
    taught_by: Callable[[str], bool]
    """Whether a chat template teaches this convention."""
    thoughts: tuple[Thought, ...] = (THINK,)
    """The reasoning that a response may begin with."""
    calls: tuple[CallMarks, ...] = ()
    wrappers: tuple[str, ...] = ()
    """Marks around all calls of a response. They say nothing and are left out."""
    openings: tuple[str, ...] = ()
    """A response that starts with one of these is held back to its end, then read as calls."""
    read: Callable[[str, Schemas], list[WrittenCall]] = _read_nothing
    """The calls in the text between the marks, or in the whole response. Empty if it is anything else."""
    ahead: Callable[[Schemas], Ahead] = lambda schemas: NOT_AHEAD
    """Reads the arguments of one call while it is being written, given the schemas of the tools."""
    opening: Callable[[str | None], str] | None = None
    """The text that makes a response call a tool: the one named, or any. None: calls cannot be forced."""
    inner: tuple[str, ...] = ()
    """Marks within a call. A tokenizer may call them, and all marks above, special: they are text here."""
    content_mark: str = ""
    """What the content is marked with, if it has a mark of its own: other things may come before."""
    grammar: Literal["marks", "harmony"] = "marks"
    """`harmony`: the whole response is messages in channels."""

    @property
    def without_calls(self) -> Convention:
        """For a request without tools: only reasoning is told from content."""
        return replace(self, calls=(), wrappers=(), openings=(), read=_read_nothing, opening=None)

    @property
    def marks(self) -> tuple[str, ...]:
        """All texts that the response parser must see."""
        thoughts = [mark for thought in self.thoughts for mark in (thought.begin, thought.end)]
        calls = [mark for call in self.calls for mark in (call.begin, call.end) if mark]
        return (*thoughts, *calls, *self.wrappers, *self.openings, *self.inner)

    def shows(self, control: str) -> bool:
        """Whether a control token of the tokenizer is a part of a mark, so that its text is needed."""
        return any(control in mark for mark in self.marks)

    def open_thought(self, prompt: str) -> Thought | None:
        """The reasoning that a rendered prompt leaves open, so that the response begins inside it."""
        prompt = prompt.rstrip()
        return next((thought for thought in self.thoughts if prompt.endswith(thought.begin.rstrip())), None)

    def forced_opening(self, name: str | None, thought: Thought | None) -> str:
        """The text that makes a response call the tool, or any; empty if it cannot be forced.

        `thought`: the reasoning that the prompt left open, which is closed first.
        """
        if self.opening is None:
            return ""
        return (thought.closing if thought else "") + self.opening(name)
