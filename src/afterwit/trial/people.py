"""The people of a trial: what they ask, which answers they like, and the words in which they say so. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from afterwit.demo.judge import Judge
from afterwit.demo.people import Setting, calls
from afterwit.demo.world import Message
from afterwit.errors import SettingError
from afterwit.turn import ToolCall

ROOM = 100
"""Tokens of an answer at most."""
SETTING = {"max_tokens": ROOM, "temperature": 0.7}
SHORT = 25
"""Words that the person with the preference `short` reads at most."""
LIMIT = 3
"""Results of a search that the person with the preference `limit` likes."""
REPEATS = 4
"""An answer that has some four words more often goes round in circles."""
SEARCH: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the web.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words to search for."},
                "limit": {"type": "integer", "description": "The most results, from 1 to 50."},
            },
            "required": ["query"],
        },
    },
}
_GREETING = re.compile(r"\W*(hi|hello|hey|greetings|good (morning|day|evening))\b", re.IGNORECASE)
_STIFF = re.compile(
    r"\b(additionally|furthermore|moreover|ensur\w+|utili[sz]\w+|essential\w*|various|crucial\w*"
    r"|important to note|in conclusion|overall|therefore|thus|hence|enhanc\w+|numerous)\b",
    re.IGNORECASE,
)
_LIST = re.compile(r"^[^\S\n]*([-*•]|\d+[.)])\s", re.MULTILINE)
_FORMATTED = re.compile(r"\*\*|^#+ |^[^\S\n]*([-*•]|\d+[.)])\s|\bstep \d", re.MULTILINE | re.IGNORECASE)
_ISO = re.compile(r"\b\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b")
_OTHER_DATE = re.compile(
    r"\b(january|february|march|april|may|june|july|august|september|october|november|december)\s+\d"
    r"|\b\d{1,2}(st|nd|rd|th)?\s+(of\s+)?(january|february|march|april|may|june|july|august|september|october"
    r"|november|december)\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)")
_PRAISE = re.compile(
    r"\b(great|good|well done|nice|excellent|fantastic|wonderful|amazing|awesome|proud|brilliant|bravo)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Said:
    """An assistant's answer."""

    content: str
    calls: tuple[ToolCall, ...] = ()

    @classmethod
    def of(cls, message: Message) -> Said:
        return cls(content=message["content"] or "", calls=tuple(calls(message)))


def _is_json(said: Said) -> bool:
    text = re.sub(r"\A\s*```(?:json)?|```\s*\Z", "", said.content).strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and set(found) == {"answer", "sure"} and isinstance(found["sure"], bool)


def _has_limit(said: Said) -> bool:
    def limit(call: ToolCall) -> object:
        try:
            found = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        return found.get("limit") if isinstance(found, dict) else None

    searches = [call for call in said.calls if call.name == "search"]
    return bool(searches) and all(limit(call) == LIMIT for call in searches)


CHECKS: Mapping[str, Callable[[Said], bool]] = {
    "short": lambda said: 0 < len(said.content.split()) <= SHORT,
    "sentence": lambda said: (
        len(_SENTENCE_END.findall(said.content.strip())) == 1 and not _LIST.search(said.content)
    ),
    "greeting": lambda said: _GREETING.match(said.content) is not None,
    "name": lambda said: re.search(r"\bAna\b", said.content) is not None,
    "plain": lambda said: (
        bool(said.content.strip()) and not (_STIFF.search(said.content) or _LIST.search(said.content))
    ),
    "json": _is_json,
    "dates": lambda said: _ISO.search(said.content) is not None and not _OTHER_DATE.search(said.content),
    "limit": _has_limit,
    "student": lambda said: (
        bool(said.content.strip()) and not (_FORMATTED.search(said.content) or _STIFF.search(said.content))
    ),
    "teacher": lambda said: bool(_PRAISE.search(said.content) and re.search(r"\d", said.content)),
}
"""Whether an answer is as the person likes it, by the preference's name."""


@cache
def words() -> Mapping[str, Any]:
    """The content of people.toml."""
    return tomllib.loads((files("afterwit.trial") / "people.toml").read_text("utf-8"))


def names(*, tools: bool, problems: bool) -> list[str]:
    """The preferences that can be tried, by whether the model calls tools and whether there are problems."""
    return [
        name
        for name, its in words()["preferences"].items()
        if (tools or name != "limit") and (problems or "form" not in its)
    ]


def read_problems(path: Path) -> list[dict[str, str]]:
    """The problems of a JSON Lines file with `question` and `answer`, as GSM8K has them.

    SettingError names the line that is none.
    """
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--problems {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            problem = json.loads(line)
            found.append({name: str(problem[name]) for name in ("question", "answer")})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SettingError(
                f"--problems {path}, line {number}: it needs JSON with `question` and `answer`"
            ) from error
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with one preference; what they ask and how they speak follows from the seed."""

    preference: str
    seed: int
    held_out: int = 32
    """Questions that measure, which the person never asks."""
    problems: Sequence[Mapping[str, str]] = ()

    @property
    def wants(self) -> str:
        return str(self._words["wants"])

    @property
    def complaints(self) -> list[str]:
        return list(self._words["said"])

    @property
    def hints(self) -> list[str]:
        """A competent judge's hints about it."""
        return list(self._words["hints"])

    @property
    def setting(self) -> Setting:
        return SETTING | ({"tools": [SEARCH]} if self.preference == "limit" else {})

    @property
    def measured(self) -> list[str]:
        """The held-out questions."""
        return self._shuffled()[: self.held_out]

    def questions(self, first: int, number: int) -> list[str]:
        """Their questions in the conversations from `first` on; the list repeats once all were asked."""
        asked = self._shuffled()[self.held_out :]
        return [asked[at % len(asked)] for at in range(first, first + number)]

    def likes(self, said: Said) -> bool:
        return CHECKS[self.preference](said)

    def liked(self, answers: Iterable[Message]) -> int:
        """The number of answers that they like."""
        return sum(self.likes(Said.of(each)) for each in answers)

    def reaction(self, liked: bool, turn: str) -> str:
        """Thanks, or a complaint; `turn` chooses the wording."""
        said = words()["thanks"]["said"] if liked else self._words["said"]
        return str(Random(f"{self.seed} {turn}").choice(said))

    @property
    def _words(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = words()["preferences"][self.preference]
        return found

    def _shuffled(self) -> list[str]:
        its = self._words
        if "form" in its:
            every = [its["form"].format_map(problem) for problem in self.problems]
        elif "questions" in its:
            every = [
                form.format(event)
                for event in its["questions"]["events"]
                for form in its["questions"]["forms"]
            ]
        else:
            every = list(words()["questions"])
        if len(every) <= self.held_out:
            raise SettingError(
                f"{len(every)} questions are too few for the preference {self.preference}: {self.held_out} of"
                " them measure"
            )
        return Random(self.seed).sample(every, len(every))


def competent_judge(people: Sequence[Person]) -> Judge:
    """A judge that understands these people's words, in full prompts or short ones. It is always right, and
    its hints vary in wording."""
    wanted = {said: person for person in people for said in person.complaints}

    def judge(prompt: Sequence[Mapping[str, str]]) -> str:
        shown = prompt[-1]["content"]
        complained, last = max((shown.rfind(said), said) for said in wanted)
        thanked = max(shown.rfind(said) for said in words()["thanks"]["said"])
        if "HINT_START" not in prompt[0]["content"]:
            return rf"\boxed{{{(complained < thanked) - (complained > thanked)}}}"
        if complained <= thanked:
            return r"\boxed{-1}"
        return rf"\boxed{{1}} [HINT_START]{Random(shown).choice(wanted[last].hints)}[HINT_END]"

    return judge


def is_bad(answer: str) -> bool:
    """Whether an answer is empty, or goes round in circles."""
    said = answer.lower().split()
    runs = Counter(zip(said, said[1:], said[2:], said[3:], strict=False))
    return not said or max(runs.values(), default=0) > REPEATS


def got_worse(question: str, before: str, after: str) -> bool:
    """Whether an answer that no one taught is worse than before: empty, circling, or a fact is lost."""
    if is_bad(after) and not is_bad(before):
        return True
    fact = words()["facts"].get(question)
    if fact is None:
        return False
    right = re.compile(fact, re.IGNORECASE | re.DOTALL)
    return bool(right.search(before)) and not right.search(after)
