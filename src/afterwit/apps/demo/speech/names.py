"""Names and words of the demo's worlds, cut into parts that share no name."""

from random import Random
from zlib import crc32

from afterwit.apps.demo.world import Split

_NOUNS = """
apple arrow autumn badge barrel basket beach bell bird boat book bottle branch bread brick bridge brush
button cable camel candle canvas carpet castle chain chalk cherry circle cloud clock coat coin copper
corner cotton crown desert diamond door dream drum eagle engine feather fence field flag flame flower
forest fork fountain frost garden gate glass globe grape grass hammer harbor hat hill honey horse ice
island ivory jacket jungle kettle key kite ladder lake lamp leaf lemon letter lion magnet maple marble
market meadow melon mirror moon mountain needle nest oak ocean olive onion orange paddle paper pearl
pebble pencil pepper piano planet plum pocket pond rabbit rain ribbon ring river rocket roof rope rose
saddle sail salt sand shadow shell ship silver sky snow spoon spring star stone storm sugar summer sun
table tiger tower train tree tulip valley velvet violin wagon wall water wheel willow wind window winter
wolf wood yard
"""
NOUNS = _NOUNS.split()

_FIRST = """
ada alan amy anna ben bob carl clara dan diana eli emma eric eva finn frank grace hugo ida ivan jack jane
jonas julia karl kate leo lily lisa lucas maria mark max mia nina noah nora olga oscar otto paul peter
rita rosa sam sara simon tom vera viktor
"""
FIRST = _FIRST.split()

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
