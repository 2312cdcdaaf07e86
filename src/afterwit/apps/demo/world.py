"""What a world of the demo is: tasks with checks, tools that act, rules a person holds to.

A world never labels anything: it says which rules a transcript broke and lets the person put that in words.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol

Split = Literal["train", "dev", "fresh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work: what the person asks for, the files it starts from, the checks that decide
    success.
    """

    kind: str
    request: str
    files: Mapping[str, str]
    rules: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]
    subject: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as the agent made it: `arguments` is the JSON text, `id` the server's."""

    id: str
    name: str
    arguments: str


class Place(Protocol):
    """A task's place while it is worked on."""

    def act(self, call: Call) -> str:
        """Do what a call says; the real result."""

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
        """The tools' OpenAI schemas."""

    def task(self, split: Split, rng: Random) -> Task:
        """A task of one part; names and wordings of different parts do not overlap."""

    def place(self, task: Task) -> AbstractContextManager[Place]:
        """Set the task up; its files are gone when the context ends."""

    def complain(self, task: Task, broken: Sequence[str], split: Split, rng: Random) -> str:
        """The person's words on everything that is wrong so far."""

    def fail(self, task: Task, output: str, split: Split, rng: Random) -> str:
        """The person's words on a check that failed."""

    def approve(self, task: Task, split: Split, rng: Random) -> str:
        """The person's words when all is well."""
