"""People of other manners than the demo's, who say less or more than what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from afterwit.demo.people import Mood, outspoken
from afterwit.demo.words import Split, drawn, sentence
from afterwit.demo.world import Task, World

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
"""The words of people who never say what is wrong."""


class Manner(StrEnum):
    """How a person reacts."""

    FULL = "full"
    """They name everything that is wrong so far, and give thanks."""
    ONE = "one"
    """They name one thing at a time: what they noticed first."""
    VAGUE = "vague"
    """They say that it is wrong, and never what."""
    THANKLESS = "thankless"
    """They complain, but leave without a word when all is well."""
    CONTENT = "content"
    """They give thanks, whatever was done."""

    @property
    def watches(self) -> bool:
        """Whether they interrupt a turn that breaks a rule."""
        return self is not Manner.CONTENT

    def react(
        self, world: World, task: Task, broken: Sequence[str], failed: str | None, split: Split, rng: Random
    ) -> tuple[Mood, str]:
        """The reaction, for `afterwit.demo.people.interaction`."""
        match self:
            case Manner.CONTENT:
                return "approval", world.speech.approval(split, rng)
            case Manner.VAGUE if broken or failed is not None:
                return "complaint" if broken else "failure", displeased(split, rng)
            case Manner.THANKLESS if not broken and failed is None:
                return "approval", ""
            case Manner.ONE:
                broken = broken[:1]
        return outspoken(world, task, broken, failed, split, rng)


def displeased(split: Split, rng: Random) -> str:
    """That something is wrong, and not what."""
    return sentence("", drawn(DISPLEASED, split, rng), "")
