"""Names and words of the demo's worlds, cut into parts that share no name."""

from pathlib import Path
from random import Random
from zlib import crc32

from afterwit.apps.demo.speech.wordings import words_in
from afterwit.apps.demo.world import Split

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
