"""Hints about the person's likes: the sentence the demo's judges write, and a grammar of others for
pretraining.
"""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.chat.words import WORDINGS, complaint
from afterwit.apps.demo.world import Split

HINTS = WORDINGS["judge_hints"]
"""By rule, the judges' sentences."""
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
