"""Names and wordings of the demo's worlds, in parts without common words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, TypeVar
from zlib import crc32

T = TypeVar("T")
Split = Literal["train", "dev", "fresh"]
"""Parts of names and wordings: `train` is seen in pretraining, `dev` chooses settings, `fresh` reports."""
Wordings = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By purpose, by name: the wordings in the order in which `part` cuts them."""
JOINERS = (", and", ". Also,", ";")
"""Between the complaints of one message."""
_PART: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2, 3), "dev": (4,), "fresh": (5,)}
_BUCKETS: dict[Split, range] = {"train": range(14), "dev": range(14, 17), "fresh": range(17, 20)}
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def words_in(file: Path) -> list[str]:
    """The words of a text file, in order."""
    return file.read_text(encoding="utf-8").split()


NOUNS = words_in(Path(__file__).with_name("nouns.txt"))
FIRST = words_in(Path(__file__).with_name("first_names.txt"))


def part(phrases: Sequence[T], split: Split) -> tuple[T, ...]:
    """The phrases of one part: of six neighbours four are in train, one in dev and one in fresh."""
    return tuple(phrase for index, phrase in enumerate(phrases) if index % 6 in _PART[split])


def drawn(phrases: Sequence[T], split: Split, rng: Random) -> T:
    """One of the phrases of one part."""
    return rng.choice(part(phrases, split))


def person(split: Split, rng: Random) -> str:
    """A person's first and last name. All parts share the words, no two parts a whole name."""
    return _of_part(split, lambda: f"{rng.choice(FIRST)} {rng.choice(NOUNS)}")


def thing(split: Split, rng: Random) -> str:
    """The name of a thing or a place, two words. All parts share the words, no two parts a pair."""
    return _of_part(split, lambda: " ".join(rng.sample(NOUNS, 2)))


def stem(split: Split, rng: Random) -> str:
    """A made-up name, as of a file. Its letters decide which part it belongs to."""

    def made() -> str:
        syllables = rng.random() < 0.15
        parts = rng.choices(_SYLLABLES, k=rng.choice((2, 3))) if syllables else rng.sample(NOUNS, 2)
        return ("" if syllables else "-").join(parts)

    return _of_part(split, made)


def _of_part(split: Split, make: Callable[[], str]) -> str:
    """The first name made that belongs to this part."""
    while crc32((made := make()).encode()) % 20 not in _BUCKETS[split]:
        pass
    return made


def sentence(opener: str, body: str, closer: str) -> str:
    """The three as one text, with a capital and a full stop."""
    end = "" if body[-1] in ".?!" else "."
    text = " ".join(piece for piece in (opener, body + end, closer) if piece)
    return text[0].upper() + text[1:]


def wordings_in(folder: Path) -> Wordings:
    """The content of the folder's `wordings.json`."""
    groups = json.loads((folder / "wordings.json").read_text(encoding="utf-8"))
    return {
        group: {name: tuple(wordings) for name, wordings in lists.items()} for group, lists in groups.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """The words of a world's person after the agent's work."""

    wordings: Wordings
    article: str = ""
    """Before the thing or file that a complaint is about."""
    question_joins: bool = False
    """Whether a joiner drops its punctuation after a question mark."""

    def complaint(self, rules: Sequence[str], about: str, split: Split, rng: Random) -> str:
        """Words on every broken rule. `about`, a thing or a file, fills the slot of some wordings."""
        complaints, person, named = self.wordings["complaints"], self.wordings["person"], self.article + about
        first, *others = [drawn(complaints[rule], split, rng).format(f=named) for rule in rules]
        body = first
        for more in others:
            joiner = rng.choice(JOINERS)
            joins = self.question_joins and body.endswith("?")
            body += f"{joiner.lstrip('.,;') if joins else joiner} {more}"
        return sentence(drawn(person["openers"], split, rng), body, drawn(person["closers"], split, rng))

    def approval(self, split: Split, rng: Random) -> str:
        """Thanks, perhaps with what comes next."""
        person = self.wordings["person"]
        thanks, onward = drawn(person["thanks"], split, rng), drawn(person["moving_on"], split, rng)
        return sentence("", thanks, onward and onward[0].upper() + onward[1:] + ".")

    def failure(self, output: str, split: Split, rng: Random) -> str:
        """Words on a wrong result, with the output that shows it."""
        return sentence("", drawn(self.wordings["person"]["failed"], split, rng).format(o=output), "")

    def unclear(self, split: Split, rng: Random) -> str:
        """Words that say nothing about the work."""
        return sentence("", drawn(self.wordings["person"]["unclear"], split, rng), "")
