"""What a world of the demo is: tasks with checks, a state that acts or listens, rules that a person has.

A world never gives labels. It says which rules a transcript broke, and the person puts that in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from afterwit.message import ToolCall

T = TypeVar("T")


Split = Literal["train", "dev", "fresh"]
"""Parts of names and wordings: `train` is seen in pretraining, `dev` chooses settings, `fresh` reports."""


_PART: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2, 3), "dev": (4,), "fresh": (5,)}


Message = dict[str, Any]
"""A chat message as it goes over the wire."""


CaseKind = Literal["complaint", "approval", "failure", "quiet"]


def text_message(role: str, content: str) -> Message:
    """A message with text and nothing else."""
    return {"role": role, "content": content}


def part(phrases: Sequence[T], split: Split) -> tuple[T, ...]:
    """The phrases of one part; six neighbours give four to train, one to dev and one to fresh."""
    return tuple(phrase for index, phrase in enumerate(phrases) if index % 6 in _PART[split])


def drawn(phrases: Sequence[T], split: Split, rng: Random) -> T:
    """One of the phrases of one part."""
    return rng.choice(part(phrases, split))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work.

    `files` are there at its start. `checks` decide success: commands, or each question's facts if people only
    talk. `follow_ups` are the person's further questions.
    """

    kind: str
    request: str
    files: Mapping[str, str]
    rules: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]
    subject: Mapping[str, str]
    follow_ups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledCase:
    """One answered turn, what came next, and the truth: its reward and the rules a hint must name."""

    kind: CaseKind
    request: str
    response: Mapping[str, Any]
    following: tuple[Mapping[str, Any], ...]
    reward: int
    rules: tuple[str, ...]


class TaskState(Protocol):
    """A task while it is worked on."""

    def act(self, call: ToolCall) -> str:
        """Do what a call says; the real result."""

    def hear(self, said: str) -> str | None:
        """Take in an answer without a call; the person's next question, None when they have no other."""

    def broken(self) -> tuple[str, ...]:
        """The rules broken so far, in the order they were broken."""

    def kept(self) -> bool:
        """Whether every rule that applies was kept by doing the guarded thing right; doing nothing keeps
        none.
        """

    def check(self) -> str | None:
        """None when the task's executable checks pass, else what the first failing one printed."""


class World(Protocol):
    """A family of tasks with its person's wordings."""

    @property
    def name(self) -> str:
        """What `--world` calls it."""

    @property
    def system(self) -> str:
        """The system message of every task."""

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools' OpenAI schemas; empty if people only talk."""

    @property
    def max_tokens(self) -> int:
        """The length that a turn's answer may have."""

    @property
    def folder(self) -> Path:
        """Where the world's own `model/` is."""

    @property
    def rules(self) -> Mapping[str, str]:
        """What the person wants, by rule, in words for the report."""

    @property
    def kept_when(self) -> str:
        """What it takes for a task to count as done the person's way, for the report."""

    @property
    def passed_when(self) -> str:
        """What it takes for a task to count as a success, for the report."""

    def task(self, split: Split, rng: Random) -> Task:
        """A task of one part; names and wordings of different parts do not overlap."""

    def start(self, task: Task) -> AbstractContextManager[TaskState]:
        """Set the task up; its files are gone when the context ends."""

    def complain(self, task: Task, broken: Sequence[str], split: Split, rng: Random) -> str:
        """The person's words on everything that is wrong so far."""

    def fail(self, task: Task, output: str, split: Split, rng: Random) -> str:
        """The person's words on a check that failed."""

    def approve(self, task: Task, split: Split, rng: Random) -> str:
        """The person's words when all is well."""

    def cases(self, split: Split, number: int, seed: int) -> Sequence[LabelledCase]:
        """Turns with known truth, as the interactions give them, to measure a judge on."""

    def rules_named_in(self, hint: str) -> set[str]:
        """The rules that a hint speaks of, if it does so in a judge's words."""

    def hint(self, rules: Sequence[str]) -> str:
        """The rule judge's own words on these rules."""

    def judge(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The rule judge's answer to a short judge prompt; it knows none of the person's wordings."""
