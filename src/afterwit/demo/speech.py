"""Names and words of the demo's worlds, cut into parts that share no name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import ClassVar
from zlib import crc32

from afterwit.demo.judge import RuleJudge
from afterwit.demo.world import Split, Task, drawn


def words_in(file: Path) -> list[str]:
    """The words of a text file, in order."""
    return file.read_text(encoding="utf-8").split()


NOUNS = words_in(Path(__file__).with_name("nouns.txt"))


FIRST = words_in(Path(__file__).with_name("first_names.txt"))


_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


_BUCKETS: dict[Split, range] = {"train": range(14), "dev": range(14, 17), "fresh": range(17, 20)}


def person(split: Split, rng: Random) -> str:
    """A person's first and last name, of words that all parts have but in no other part together."""
    while True:
        made = f"{rng.choice(FIRST)} {rng.choice(NOUNS)}"
        if _in(split, made):
            return made


def thing(split: Split, rng: Random) -> str:
    """A thing's or a place's name of two words; the words are common to all parts, the pair is not."""
    while True:
        made = " ".join(rng.sample(NOUNS, 2))
        if _in(split, made):
            return made


def stem(split: Split, rng: Random) -> str:
    """A made-up name, as of a file; which part it belongs to follows from its letters."""
    while True:
        made = _stem(rng)
        if _in(split, made):
            return made


def _in(split: Split, made: str) -> bool:
    return crc32(made.encode()) % 20 in _BUCKETS[split]


def _stem(rng: Random) -> str:
    if rng.random() < 0.15:
        return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3))))
    return "-".join(rng.sample(NOUNS, 2))


DISPLEASED = (
    "no, not like that",
    "no",
    "that is not it",
    "not like that",
    "no, wrong",
    "no, not like this",
    "that is not what I wanted",
    "no, do it differently",
    "wrong",
    "no, that is not right",
    "not what I wanted",
    "no, that is wrong",
)
"""Of people who never say what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """A world's wordings; `{o}` in `failed` is what was wrong."""

    thanks: Sequence[str]
    moving_on: Sequence[str]
    failed: Sequence[str]
    unclear: Sequence[str]

    @classmethod
    def of(cls, person: Mapping[str, Sequence[str]]) -> Phrases:
        """Those among all that a world's person says."""
        return cls(**{each.name: person[each.name] for each in fields(cls)})

    def approval(self, split: Split, rng: Random) -> str:
        """Thanks, perhaps with what comes next."""
        thanks, onward = drawn(self.thanks, split, rng), drawn(self.moving_on, split, rng)
        return sentence("", thanks, onward and onward[0].upper() + onward[1:] + ".")

    def failure(self, output: str, split: Split, rng: Random) -> str:
        """Words on a result that is wrong, with what shows it."""
        return sentence("", drawn(self.failed, split, rng).format(o=output), "")

    def nothing(self, split: Split, rng: Random) -> str:
        """Words that say nothing about the work."""
        return sentence("", drawn(self.unclear, split, rng), "")


def sentence(opener: str, body: str, closer: str) -> str:
    """The three as one text, with a capital and a full stop."""
    end = "" if body[-1] in ".?!" else "."
    text = " ".join(piece for piece in (opener, body + end, closer) if piece)
    return text[0].upper() + text[1:]


def displeased(split: Split, rng: Random) -> str:
    """That something is wrong, and nothing of what it is."""
    return sentence("", drawn(DISPLEASED, split, rng), "")


class Spoken:
    """The talking half of a world; the world gives the words."""

    __slots__ = ()
    afterwards: ClassVar[Phrases]
    judges_words: ClassVar[Mapping[str, Sequence[str]]]
    """By rule, the sentences in which a judge speaks of it."""
    rule_judge: ClassVar[RuleJudge]

    def fail(self, task: Task, output: str, split: Split, rng: Random) -> str:
        """What is wrong in itself, with what shows it."""
        return self.afterwards.failure(output, split, rng)

    def approve(self, task: Task, split: Split, rng: Random) -> str:
        """Thanks."""
        return self.afterwards.approval(split, rng)

    def rules_named_in(self, hint: str) -> set[str]:
        """The rules whose sentence is in the hint."""
        spoken = hint.lower()
        return {
            rule for rule, known in self.judges_words.items() if any(one.lower() in spoken for one in known)
        }

    def hint(self, rules: Sequence[str]) -> str:
        """What the rule judge says of these rules."""
        return self.rule_judge.hint(rules)

    def judge(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The rules over the prompt's text."""
        return self.rule_judge(prompt)


Wordings = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By what they are for, by name: the wordings in the order in which `part` cuts them."""


def wordings_beside(module: str) -> Wordings:
    """What `wordings.json` in the module's folder says."""
    groups = json.loads(Path(module).with_name("wordings.json").read_text(encoding="utf-8"))
    return {
        group: {name: tuple(wordings) for name, wordings in lists.items()} for group, lists in groups.items()
    }
