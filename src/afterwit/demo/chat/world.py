"""The chat world as the demo plays it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from afterwit.demo.chat import cases, tasks, words
from afterwit.demo.chat import tasks as rules
from afterwit.demo.chat.words import WORDINGS, complaint
from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.speech import Spoken
from afterwit.demo.world import LabelledCase, Split, Task
from afterwit.message import ToolCall

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


HINTS = WORDINGS["judge_hints"]
"""By rule, the judges' sentences."""


def _could_break(rule: str, response: str) -> bool:
    return rule != "steps" or re.search(r"^\s*1[.)] ", response, re.MULTILINE) is None


def _hint(rules: Sequence[str]) -> str:
    *others, last = (_HINTS[rule] for rule in rules)
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."


JUDGE = RuleJudge(
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
    could_break=_could_break,
    hint=_hint,
    failed=re.compile(
        r"\b(wrong|not right|my notes say|is not in|does not say|did not say|it is|answer has|i miss)\b"
    ),
    positive=re.compile(
        APPROVING + r"|\b(lovely|got it|helps|know|needed|said|nicely|put)\b|\?$|\btell me\b"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatWorld(Spoken):
    """Everyday questions about a person's notes, and what that person likes in an answer."""

    afterwards = words.AFTERWARDS
    judges_words = HINTS
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


_FRAMES, _CONTEXTS = WORDINGS["hint_frames"]["sentences"], WORDINGS["hint_frames"]["contexts"]


_DEEDS = WORDINGS["hint_deeds"]


def official(rules: Sequence[str], rng: Random) -> str:
    """The hint a judge of the demo writes about these rules: one sentence."""
    return sentence([rng.choice(HINTS[rule]) for rule in rules])


def sentence(deeds: Sequence[str]) -> str:
    """Deeds as one sentence: "A, b and c."."""
    *others, last = deeds
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."


def worded(rules: Sequence[str], thing: str, split: Split, rng: Random) -> str:
    """A hint of any origin: the judge's sentence, the grammar's, or the person's own words."""
    origin = rng.random()
    if origin < 0.4:
        return official(rules, rng)
    if origin < 0.6:
        return " ".join(_framed(rule, rng) for rule in rules)
    return complaint(rules, thing, split, rng)


def _framed(rule: str, rng: Random) -> str:
    said = rng.choice(_FRAMES).format(d=rng.choice(_DEEDS[rule]), c=rng.choice(_CONTEXTS))
    return said[0].upper() + said[1:]


_HINTS = {
    "short": "keep it short",
    "plain": "choose plain words",
    "friendly": "greet them warmly",
    "steps": "give numbered steps",
}
