"""A convention: the marks and grammar in which one family of models writes reasoning and tool calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from afterwit.chat_format.arguments import NOT_AHEAD, Ahead
from afterwit.chat_format.calls import Schemas, WrittenCall, ends_in_a_string


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The marks around reasoning."""

    begin: str
    end: str
    closing: str
    """Closes reasoning that the prompt left open, before a forced call: the end mark with its spacing."""


THINK = Thought(begin="<think>", end="</think>", closing="\n</think>\n\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMarks:
    """The marks around one call, or around several that are read together."""

    begin: str
    end: str = ""
    """Empty: the call ends with its JSON value."""
    quotes_end: Callable[[str], bool] = ends_in_a_string
    """Whether text after `begin` stops inside an argument, so that the `end` after it is part of a value."""
    is_whole: Callable[[str], bool] = lambda text: True
    """Whether to read text after `begin` although the response ended before `end`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One way of writing tool calls and reasoning.

    Calls are between marks anywhere in the response, or the whole response consists of calls and starts with
    one of `openings`. A mark's first character must not occur again in the mark.
    """

    name: str
    taught_by: Callable[[str], bool]
    """Whether a chat template teaches this convention."""
    thoughts: tuple[Thought, ...] = (THINK,)
    """The reasoning that a response may begin with."""
    calls: tuple[CallMarks, ...] = ()
    wrappers: tuple[str, ...] = ()
    """Marks around all calls of a response, without a meaning of their own."""
    openings: tuple[str, ...] = ()
    """A response that starts with one of these is held back to its end, then read as calls."""
    read: Callable[[str, Schemas], list[WrittenCall]] = lambda text, schemas: []
    """The calls in the text between the marks, or in the whole response. Empty if it is anything else."""
    ahead: Callable[[Schemas], Ahead] = lambda schemas: NOT_AHEAD
    """Reads the arguments of a call while it is being written, given the schemas of the tools."""
    opening: tuple[str, str] | None = None
    """The texts before and after a tool's name that force a call. None: calls cannot be forced."""
    inner: tuple[str, ...] = ()
    """Marks within a call. Special tokens of these, and of the marks above, are decoded as text."""
    content_mark: str = ""
    """The mark of the content, if it has one: other text may come before."""
    grammar: Literal["marks", "harmony"] = "marks"
    """`harmony`: the whole response is messages in channels."""

    @property
    def without_calls(self) -> Convention:
        """For a request without tools: only reasoning is separated from content."""
        bare = Convention(name=self.name, taught_by=self.taught_by)
        return replace(self, calls=(), wrappers=(), openings=(), read=bare.read, opening=None)

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
        """The text that forces a call of the tool, or of any; empty if calls cannot be forced.

        `thought`: the reasoning that the prompt left open, which is closed first.
        """
        if self.opening is None:
            return ""
        before, after = self.opening
        if name is not None and before.endswith('"'):
            name = json.dumps(name, ensure_ascii=False)[1:-1]
        return (thought.closing if thought else "") + before + ("" if name is None else name + after)
