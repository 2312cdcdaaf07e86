"""Whether a reply complains or thanks, by how likely a model finds it as the one or the other. Pure.

A model that cannot write a vote still tells in which situation a person writes so: the reply's own log-prob
is read after prompts for each kind of replies (the noisy channel of Min et al., arXiv:2108.04106), and the
log-odds of two one-word answers are added. SmolLM2-135M told 17 complaints from 28 other replies, on which
the prompts were chosen, with an area of .68 by one prompt a kind, and of .82 by all of these. The border
between kinds is the model's own: it is measured on replies that are shipped, and trusted only as far as it
holds for replies that it was not measured on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from statistics import fmean

from afterwit.progress import wilson_interval

COMPLAINT, THANKS, NEUTRAL = "complaint", "thanks", "neutral"


PROMPTS: Mapping[str, tuple[str, ...]] = {
    COMPLAINT: (
        "Write what a person says who is not content with the answer they were given.",
        "Write a short complaint about an answer, by the person who asked for it.",
    ),
    THANKS: (
        "Write what a person says who is content with the answer they were given.",
        "Write a short message of thanks for a good answer.",
    ),
    NEUTRAL: (
        "Write what a person asks next, on another subject.",
        "Write the next question or task of a person.",
    ),
}
"""By kind of replies, what a model is asked to write when it writes one."""


QUESTIONS = (
    ("Is this message positive or negative?\n\n{}", "Positive", "Negative"),
    (
        'A person wrote this after they read an answer: "{}"\n\nAre they happy or unhappy with the answer?',
        "Happy",
        "Unhappy",
    ),
)
"""What a model is asked about a reply, the answer that speaks for thanks, and the one for a complaint."""


WEIGHT = 2.0
"""Nats of a reply's own log-prob that a nat of an answer counts as."""


LogProbs = Mapping[str, float]
"""Of one reply, how likely it is as each kind, in nats up to a constant."""


LEAST_RIGHT = 0.7
"""A border is used if the share of replies that it tells apart is surely larger."""


@cache
def replies() -> Mapping[str, tuple[str, ...]]:
    """The shipped replies, by kind."""
    text = (files("afterwit.judging") / "replies.toml").read_text("utf-8")
    return {kind: tuple(said) for kind, said in tomllib.loads(text).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Log-odds of one kind of replies, above which it lies."""

    at: float
    right: int
    """Replies on the right side of a border that was measured without them."""
    of: int

    @property
    def holds(self) -> bool:
        """Whether it surely tells the kind from others."""
        return wilson_interval(self.right, self.of).low > LEAST_RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """How one model's log-probs are read."""

    complaint: Border
    thanks: Border

    def says(self, reply: LogProbs) -> int | None:
        """-1 a complaint, 1 thanks, 0 neither; None: complaints cannot be told from other replies."""
        if not self.complaint.holds:
            return None
        if odds(COMPLAINT, reply) > self.complaint.at:
            return -1
        return int(self.thanks.holds and odds(THANKS, reply) > self.thanks.at)


def likely(written: Mapping[str, Sequence[float]], asked: Sequence[tuple[float, float]]) -> LogProbs:
    """How likely a reply is as each kind: from its log-probs after each of `PROMPTS`, and from those of the
    two answers to each of `QUESTIONS`, in their order."""
    means = {kind: fmean(values) for kind, values in written.items()}
    against = WEIGHT * sum(complains - thanks for thanks, complains in asked)
    return means | {COMPLAINT: means[COMPLAINT] + against}


def odds(kind: str, reply: LogProbs) -> float:
    """How much likelier a reply is as this kind than as the likeliest other, in nats."""
    return reply[kind] - max(value for other, value in reply.items() if other != kind)


def borders(shipped: Mapping[str, Sequence[LogProbs]]) -> Borders:
    """From the log-probs of replies whose kinds are known."""
    return Borders(complaint=_border(COMPLAINT, shipped), thanks=_border(THANKS, shipped))


def _border(kind: str, shipped: Mapping[str, Sequence[LogProbs]]) -> Border:
    own = [odds(kind, reply) for reply in shipped[kind]]
    rest = [odds(kind, reply) for other, said in shipped.items() if other != kind for reply in said]
    right = sum(value > _middle(rest, [*own[:at], *own[at + 1 :]]) for at, value in enumerate(own))
    right += sum(value < _middle([*rest[:at], *rest[at + 1 :]], own) for at, value in enumerate(rest))
    return Border(at=_middle(rest, own), right=right, of=len(own) + len(rest))


def _middle(low: Sequence[float], high: Sequence[float]) -> float:
    """Halfway between two neighbours, where most values of both lie on their side, both weighing the same."""
    values = sorted({*low, *high})
    places = [(below + above) / 2 for below, above in pairwise(values)]

    def told_apart(place: float) -> float:
        return sum(v < place for v in low) / len(low) + sum(v > place for v in high) / len(high)

    return max(places, key=told_apart, default=values[0])
