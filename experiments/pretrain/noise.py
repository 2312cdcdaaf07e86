"""Words without meaning, with_noise over pretraining texts so that the model learns to look past them."""

from pathlib import Path
from random import Random

from afterwit.demo.words import words_in

_COMMON = words_in(Path(__file__).with_name("common_words.txt"))


def sentence(rng: Random) -> str:
    """A few common words in no order."""
    words = rng.choices(_COMMON, k=rng.randint(1, 6))
    return " ".join(words).capitalize() + rng.choice(".....!?")


def with_noise(text: str, share: float, rng: Random) -> str:
    """The text, in `share` of the cases with such a sentence before it, after it, or both."""
    if rng.random() > share:
        return text
    where = rng.random()
    before = f"{sentence(rng)} " if where < 0.6 else ""
    after = f" {sentence(rng)}" if where > 0.4 else ""
    return f"{before}{text}{after}"


def strewn(text: str, share: float, rng: Random) -> str:
    """The text, in `share` of the cases with one to three common words between its own, outside quotes."""
    if not share or rng.random() > share:
        return text
    pieces = text.split('"')
    for _ in range(rng.randint(1, 3)):
        outside = rng.randrange(0, len(pieces), 2)
        own = pieces[outside].split(" ")
        if len(own) > 1:
            own.insert(rng.randrange(1, len(own)), rng.choice(_COMMON))
        pieces[outside] = " ".join(own)
    return '"'.join(pieces)
