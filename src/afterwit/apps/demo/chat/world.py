"""The chat world as the demo plays it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from afterwit.apps.demo.chat import cases, hints, rules, tasks, words
from afterwit.apps.demo.chat.judge import JUDGE
from afterwit.apps.demo.speech.spoken import Spoken
from afterwit.apps.demo.world import LabelledCase, Split, Task
from afterwit.core.message import ToolCall

SYSTEM = "You answer questions."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """One task's answers so far."""

    task: Task
    answers: list[str] = field(default_factory=list)

    def act(self, call: ToolCall) -> str:
        """There is nothing to call."""
        return f"error: no tool {call.name}"

    def hear(self, said: str) -> str | None:
        """The next question, asked only of someone who has answered this one."""
        index = len(self.answers)
        self.answers.append(said)
        told = rules.missing(said, self.task.checks[index]) is None
        return self.task.follow_ups[index] if told and index < len(self.task.follow_ups) else None

    def broken(self) -> tuple[str, ...]:
        """The rules that some answer broke."""
        kinds = self.task.kind.split("_")
        found = {
            rule
            for kind, answer in zip(kinds, self.answers, strict=False)
            for rule in rules.broken(answer, tasks.rules_of(kind))
        }
        return tuple(rule for rule in rules.RULES if rule in found)

    def kept(self) -> bool:
        """Whether every question was asked and no answer broke a rule."""
        return len(self.answers) == len(self.task.checks) and not self.broken()

    def check(self) -> str | None:
        """None when every question's facts were told, else the first that was not."""
        for index, facts in enumerate(self.task.checks):
            answer = self.answers[index] if index < len(self.answers) else ""
            if (fact := rules.missing(answer, facts)) is not None:
                return fact
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatWorld(Spoken):
    """Everyday questions about a person's notes, and what that person likes in an answer."""

    afterwards = words.AFTERWARDS
    judges_words = hints.HINTS
    rule_judge = JUDGE

    name: str = "chat"
    system: str = SYSTEM
    tools: Sequence[Mapping[str, Any]] = ()
    max_tokens: int = 144
    folder: Path = Path(__file__).parent
    rules: Mapping[str, str] = field(default_factory=lambda: rules.IN_WORDS)
    kept_when: str = (
        "every answer was short, plain and friendly, and in numbered steps where it says how to do something"
    )
    passed_when: str = "the answers hold every fact asked for"

    def task(self, split: Split, rng: Random) -> Task:
        """A task of a random kind."""
        return tasks.draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ChatState]:
        """A conversation that has not begun."""
        yield ChatState(task=task)

    def complain(self, task: Task, broken: Sequence[str], split: Split, rng: Random) -> str:
        """Everything that is wrong so far, in one message."""
        return words.complaint(broken, next(iter(task.subject.values())), split, rng)

    def cases(self, split: Split, number: int, seed: int) -> list[LabelledCase]:
        """First answers, and what the person said next."""
        return cases.cases(split, number, seed)
