"""A world of the demo: tasks with checks, a state that acts or listens, and a person who has rules.

A world never gives labels. It finds the rules that a transcript broke, and the person puts them in words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

from afterwit.demo.judge import RuleJudge
from afterwit.demo.words import Speech, Split
from afterwit.turn import ToolCall

TEMPERATURE = 0.6
Message = dict[str, Any]
"""A chat message as it goes over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work."""

    kind: str
    request: str
    files: Mapping[str, str]
    rules: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]
    """The checks of success: commands, or each question's facts if people only talk."""
    subject: Mapping[str, str]
    follow_ups: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The first file or thing, which complaints name."""
        return next(iter(self.subject.values()))


class TaskState(Protocol):
    """A task while it is worked on."""

    def act(self, call: ToolCall) -> str:
        """Run a call and return its real result."""

    def hear(self, said: str) -> str | None:
        """Take in an answer without a call. The person's next question, or None after the last."""

    def broken(self) -> tuple[str, ...]:
        """The rules broken so far, in the order they were broken."""

    def kept(self) -> bool:
        """Whether each rule that applies was kept by doing the guarded thing right, not by doing nothing."""

    def check(self) -> str | None:
        """None if the task's checks pass, else the output of the first that fails."""


class World(ABC):
    """A family of tasks with its person's wordings."""

    name: ClassVar[str]
    """Its value of `--world`."""
    system: ClassVar[str]
    folder: ClassVar[Path]
    """The folder of its `model/`."""
    max_tokens: ClassVar[int]
    tools: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """The tools' OpenAI schemas; empty if people only talk."""
    rules: ClassVar[Mapping[str, str]]
    """The person's rules, in words for the report."""
    kept_when: ClassVar[str]
    """When a task counts as done the person's way, for the report."""
    passed_when: ClassVar[str]
    """When a task counts as a success, for the report."""
    speech: ClassVar[Speech]
    judge: ClassVar[RuleJudge]
    """The rule judge, which answers short judge prompts and knows none of the person's wordings."""

    @property
    def setting(self) -> dict[str, Any]:
        """The fields of its agent's every request."""
        fields = {"temperature": TEMPERATURE, "max_tokens": self.max_tokens}
        return fields | ({"tools": list(self.tools)} if self.tools else {})

    @abstractmethod
    def task(self, split: Split, rng: Random) -> Task:
        """A task of one part; names and wordings of different parts do not overlap."""

    @abstractmethod
    def start(self, task: Task) -> AbstractContextManager[TaskState]:
        """Set the task up; its files are removed when the context ends."""

    def complain(self, task: Task, broken: Sequence[str], split: Split, rng: Random) -> str:
        """The person's words on everything that is wrong so far, in one message."""
        return self.speech.complaint(broken, task.about, split, rng)

    def rules_named_in(self, hint: str) -> set[str]:
        """The rules whose sentence, in a judge's words, is in the hint."""
        spoken, known = hint.lower(), self.speech.wordings["judge_hints"]
        return {rule for rule, said in known.items() if any(one.lower() in spoken for one in said)}
