"""The chat world: everyday questions about a person's notes, and how that person likes an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.words import NOUNS, Speech, Split, drawn, person, thing, wordings_in
from afterwit.demo.world import Task, World
from afterwit.turn import ToolCall

SYSTEM = "You answer questions."
WORDINGS = wordings_in(Path(__file__).parent)
SPEECH = Speech(wordings=WORDINGS, article="the ", question_joins=True)
KINDS = ("where", "who", "when", "howto", "howto", "where_who", "howto_when")
"""A task's questions, in order. How-to questions come twice as often as the others."""
RULES = ("short", "plain", "friendly", "steps")
MOST_WORDS = 18
IN_WORDS = {
    "short": f"Answer in at most {MOST_WORDS} words.",
    "plain": "Use plain words, no stiff ones.",
    "friendly": "Say something warm, such as a greeting.",
    "steps": "Number the steps when you explain how to do something.",
}
_STIFF = """
accordance additional advisable aforementioned ascertain clarification commence commences communication
convenience currently documentation duly endeavour foregoing furnish furthermore henceforth herein hereby
hitherto inform initially inquiry kindly located moreover nevertheless notwithstanding obtain occur occurs
permitted persons possession presently prior proceed provided pursuant reference regarding remain request
require required respective retain retained scheduled sequence situated submit subsequent subsequently
therefore thereof ultimately utilise utilize verified whereas
"""
STIFF = frozenset(_STIFF.split())
WARM = re.compile(
    r"\b(hi\b|hey\b|hello\b|sure[!,]|of course|no problem|no worries|glad|happy to|my pleasure"
    r"|good question|cheers|there you go|here you go|dear friend)"
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "noon")
_DEEDS = ("clean", "fix", "open", "start", "stop", "use")
_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")
_NUMBERED = re.compile(r"^[^\S\n]*(\d{1,9})[.)] +\S", re.MULTILINE)
_VERBS = """
clean close cover drop empty fill fold heat hold lift lock move open paint press pull push rinse roll shake
spin stir tie turn warm wash wipe wrap
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A note about a thing: its text, and the pieces that an answer must tell in order."""

    kind: str
    thing: str
    noted: str
    facts: tuple[str, ...]
    deed: str = ""

    def put(self, group: str, split: Split, rng: Random) -> str:
        """The fact in one of the group's wordings: `notes`, or `questions`."""
        wording = drawn(WORDINGS[group][self.kind], split, rng)
        return wording.format(t=self.thing, p=self.noted, v=self.deed)


def fact(kind: str, about: str, split: Split, rng: Random) -> Fact:
    if kind == "howto":
        steps = some_steps(rng)
        return Fact(kind=kind, thing=about, noted=", ".join(steps), facts=steps, deed=rng.choice(_DEEDS))
    if kind == "where":
        facts: tuple[str, ...] = (thing(split, rng),)
    elif kind == "who":
        facts = (person(split, rng),)
    else:
        facts = (f"on {rng.choice(_DAYS)}", f"at {rng.choice(_HOURS)}")
    return Fact(kind=kind, thing=about, noted=" ".join(facts), facts=facts)


def some_steps(rng: Random) -> tuple[str, ...]:
    """Three things to do, of words that all parts have."""
    pairs = zip(rng.sample(_VERBS.split(), 3), rng.sample(NOUNS, 3), strict=True)
    return tuple(f"{verb} the {noun}" for verb, noun in pairs)


def draw(split: Split, rng: Random) -> Task:
    """A task of a random kind."""
    return of_kind(rng.choice(KINDS), split, rng)


def of_kind(kind: str, split: Split, rng: Random) -> Task:
    """A task: the notes with the first question; each further one comes after the one before is answered."""
    asked = kind.split("_")
    first, second = thing(split, rng), thing(split, rng)
    while first == second:
        first, second = thing(split, rng), thing(split, rng)
    known = [fact(one, about, split, rng) for one, about in zip(asked, (first, second), strict=False)]
    other = rng.choice([one for one in ("where", "who", "when") if one not in asked])
    notes = rng.sample([*known, fact(other, second, split, rng)][:2], 2)
    noted = [f"{one.put('notes', split, rng)}." for one in notes]
    question, *further = (one.put("questions", split, rng) for one in known)
    requests = WORDINGS["requests"]
    return Task(
        kind=kind,
        request=sentences(drawn(requests["openings"], split, rng), *noted, question),
        follow_ups=tuple(f"{drawn(requests['follow_ups'], split, rng)} {more}" for more in further),
        files={},
        rules=rules_of("howto" if "howto" in asked else asked[0]),
        checks=tuple(one.facts for one in known),
        subject={one.kind: one.thing for one in known},
    )


def sentences(*pieces: str) -> str:
    return " ".join(piece[0].upper() + piece[1:] for piece in pieces if piece)


def rules_of(kind: str) -> tuple[str, ...]:
    """The rules that apply to the answer of one kind of question."""
    return RULES if kind == "howto" else RULES[:3]


def broken(answer: str, rules: Sequence[str]) -> tuple[str, ...]:
    """Those of `rules` that the answer breaks, in their order; an answer without a word breaks them all."""
    text = answer.lower()
    words, numbers = _WORD.findall(text), [int(number) for number in _NUMBERED.findall(text)]
    kept = {
        "short": len(words) <= MOST_WORDS,
        "plain": not STIFF.intersection(words),
        "friendly": WARM.search(text) is not None,
        "steps": len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1)),
    }
    return tuple(rule for rule in rules if not (words and kept[rule]))


def missing(answer: str, facts: Sequence[str]) -> str | None:
    """The first fact that the answer lacks after the facts before it; None if all are there."""
    text, at = " ".join(answer.lower().split()), 0
    for fact in facts:
        found = re.compile(rf"\b{re.escape(fact.lower())}\b").search(text, at)
        if found is None:
            return fact
        at = found.end()
    return None


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
        answered = missing(said, self.task.checks[index]) is None
        return self.task.follow_ups[index] if answered and index < len(self.task.follow_ups) else None

    def broken(self) -> tuple[str, ...]:
        """The rules that some answer broke."""
        found: set[str] = set()
        for kind, answer in zip(self.task.kind.split("_"), self.answers, strict=False):
            found.update(broken(answer, rules_of(kind)))
        return tuple(rule for rule in RULES if rule in found)

    def kept(self) -> bool:
        """Whether every question was asked and no answer broke a rule."""
        return len(self.answers) == len(self.task.checks) and not self.broken()

    def check(self) -> str | None:
        """None if every answer holds its facts, else the first that is missing."""
        for index, facts in enumerate(self.task.checks):
            answer = self.answers[index] if index < len(self.answers) else ""
            if (fact := missing(answer, facts)) is not None:
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
    rules = IN_WORDS
    kept_when = (
        "every answer was short, plain and friendly, and in numbered steps where it says how to do something"
    )
    passed_when = "the answers hold every fact asked for"
    speech = SPEECH
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
            rule != "steps" or re.search(r"^[^\S\n]*1[.)] ", response, re.MULTILINE) is None
        ),
        hint=lambda rules: joined([WORDINGS["judge_hints"][rule][0] for rule in rules]),
        failed=re.compile(
            r"\b(wrong|not right|my notes say|is not in|does not say|did not say|it is|answer has|i miss)\b"
        ),
        positive=re.compile(
            APPROVING + r"|\b(lovely|got it|helps|know|needed|said|nicely|put)\b|\?$|\btell me\b"
        ),
    )

    def task(self, split: Split, rng: Random) -> Task:
        return draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ChatState]:
        yield ChatState(task=task)
