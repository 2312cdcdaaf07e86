"""Hints about the house rules: the sentences the demo's judges write, and a grammar of others for
pretraining.
"""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.tools.words import WORDINGS, complaint
from afterwit.apps.demo.world import Split

HINTS = WORDINGS["judge_hints"]
"""By rule, the judges' sentences."""
_FRAMES, _CONTEXTS = WORDINGS["hint_frames"]["sentences"], WORDINGS["hint_frames"]["contexts"]
_DEEDS = WORDINGS["hint_deeds"]


def official(rules: Sequence[str], rng: Random) -> str:
    """The hint a judge of the demo writes about these rules."""
    return " ".join(rng.choice(HINTS[rule]) for rule in rules)


def worded(rules: Sequence[str], file: str, split: Split, rng: Random) -> str:
    """A hint of any origin: the judge's sentence, the grammar's, or the person's own words."""
    origin = rng.random()
    if origin < 0.5:
        return official(rules, rng)
    if origin < 0.75:
        return " ".join(_framed(rule, rng) for rule in rules)
    return complaint(rules, file, split, rng)


def _framed(rule: str, rng: Random) -> str:
    frame = rng.choice(_FRAMES)
    sentence = frame.format(h=rng.choice(HINTS[rule]), d=rng.choice(_DEEDS[rule]), c=rng.choice(_CONTEXTS))
    return sentence[0].upper() + sentence[1:]
