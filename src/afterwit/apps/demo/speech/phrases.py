"""What a person says when a task is over, in every world: lists of wordings, cut into three parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random

from afterwit.apps.demo.world import Split, drawn

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
