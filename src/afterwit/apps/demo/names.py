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

_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
_BUCKETS: dict[Split, range] = {"train": range(14), "dev": range(14, 17), "fresh": range(17, 20)}


def stem(split: Split, rng: Random) -> str:
    """A made-up name, as of a file; which part it belongs to follows from its letters."""
    while True:
        made = _stem(rng)
        if crc32(made.encode()) % 20 in _BUCKETS[split]:
            return made


def _stem(rng: Random) -> str:
    if rng.random() < 0.15:
        return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3))))
    return "-".join(rng.sample(NOUNS, 2))
