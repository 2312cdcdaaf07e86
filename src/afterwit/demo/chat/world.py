"""The chat world: everyday questions about a person's notes, and how that person likes an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from afterwit.demo.chat import tasks
from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.words import Split
from afterwit.demo.world import Task, World
from afterwit.turn import ToolCall

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
        """The next question, asked only after an answer that holds the facts."""
        index = len(self.answers)
        self.answers.append(said)
        answered = tasks.missing(said, self.task.checks[index]) is None
        return self.task.follow_ups[index] if answered and index < len(self.task.follow_ups) else None

    def broken(self) -> tuple[str, ...]:
        """The rules that some answer broke."""
        found: set[str] = set()
        for kind, answer in zip(self.task.kind.split("_"), self.answers, strict=False):
            found.update(tasks.broken(answer, tasks.rules_of(kind)))
        return tuple(rule for rule in tasks.RULES if rule in found)

    def kept(self) -> bool:
        """Whether every question was asked and no answer broke a rule."""
        return len(self.answers) == len(self.task.checks) and not self.broken()

    def check(self) -> str | None:
        """None if every answer holds its facts, else the first that is missing."""
        for index, facts in enumerate(self.task.checks):
            answer = self.answers[index] if index < len(self.answers) else ""
            if (fact := tasks.missing(answer, facts)) is not None:
                return fact
        return None


def joined(deeds: Sequence[str]) -> str:
    """Deeds as one sentence: "A, b and c."."""
    *others, last = deeds
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."


class ChatWorld(World):
    """Everyday questions about a person's notes, and how that person likes an answer."""

    name = "chat"
    system = SYSTEM
    folder = Path(__file__).parent
    max_tokens = 144
    rules = tasks.IN_WORDS
    kept_when = (
        "every answer was short, plain and friendly, and in numbered steps where it says how to do something"
    )
    passed_when = "the answers hold every fact asked for"
    speech = tasks.SPEECH
    judge = RuleJudge(
        about={
            "short": re.compile(
                r"\b(long|longer|short|shorter|brief|briefly|enough|less|fewer|essay|length|wordy|half of it"
                r"|half way|(too|that|(?<!thank you )so) (much|many)|on and on|cut|nothing more|the rest)\b"
            ),
            "plain": re.compile(
                r"\b(plain|stiff|formal|fancy|simpl[ey]r?|everyday|big words|hard|offices?|lawyers?|law|bank"
                r"|form|jargon|normal|(talks|says it) like|like a book|look up|pompous)\b"
            ),
            "friendly": re.compile(
                r"\b(friend|friendly|warm|warmth|warmer|cold|hello|hi|greet|greeting|kind|cross|polite|smile"
                r"|like me)\b"
            ),
            "steps": re.compile(r"\b(steps?|numbers?|numbered|list|listed|one, two)\b"),
        },
        could_break=lambda rule, response: (
            rule != "steps" or re.search(r"^\s*1[.)] ", response, re.MULTILINE) is None
        ),
        hint=lambda rules: joined([tasks.WORDINGS["judge_hints"][rule][0] for rule in rules]),
        failed=re.compile(
            r"\b(wrong|not right|my notes say|is not in|does not say|did not say|it is|answer has|i miss)\b"
        ),
        positive=re.compile(
            APPROVING + r"|\b(lovely|got it|helps|know|needed|said|nicely|put)\b|\?$|\btell me\b"
        ),
    )

    def task(self, split: Split, rng: Random) -> Task:
        return tasks.draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ChatState]:
        yield ChatState(task=task)
