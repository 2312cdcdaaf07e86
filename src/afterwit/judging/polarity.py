"""Whether a reply complains or thanks, from a model's log-probs. Pure.

A model that cannot write a vote can still score text: the reply after examples of each kind of replies (the
noisy channel of Min et al., arXiv:2108.04106), and the first words of an answer to it. Ridge regression over
these log-probs is fitted with the model itself on shipped replies, and used only if it holds for replies that
it was not fitted on.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from math import fsum
from operator import mul
from statistics import fmean, pstdev
from typing import Any

from afterwit.progress import wilson_interval

COMPLAINT, THANKS, NEUTRAL = "complaint", "thanks", "neutral"
EXCHANGE = (
    "I have a question about my work.",
    "Sure, here is what I think about it, and why. I hope that this is what you need.",
)
"""The exchange before the reply in the model's prompt."""
OPENINGS = (
    "I apologize",
    "I'm sorry",
    "You're right",
    "I made a mistake",
    "Let me try again",
    "I understand",
    "Thank you",
    "You're welcome",
    "I'm glad",
    "That's great",
    "Sure",
    "Of course",
    "Here",
    "The",
)
"""First words of the answer to the reply."""
FALSE_ALARMS: Mapping[str, float] = {COMPLAINT: 0.05, THANKS: 0.02}
"""Share of other replies that may be taken for a kind, which gives a reward."""
FALSE_HINTS = 0.1
"""Share of other replies that may be taken for a hint: the teacher, which is shown it, need not follow it."""
LEAST_FOUND = 0.4
"""A border is used if the share of its kind that it finds is surely larger."""
STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Of the pull of all weights to 0. The one that errs least on replies that it was not fitted on is used."""
RULED_OUT = -1e4
"""Nats that a log-prob of -inf counts as."""
LogProbs = Sequence[float]
"""A model's log-probs for one reply, in nats, in the order of `asked`."""


@cache
def _shipped() -> Mapping[str, Any]:
    return tomllib.loads((files("afterwit.judging") / "replies.toml").read_text("utf-8"))


def replies() -> Mapping[str, tuple[str, ...]]:
    """The shipped replies, by kind."""
    return {kind: tuple(_shipped()[kind]) for kind in (COMPLAINT, THANKS, NEUTRAL)}


def examples() -> Mapping[str, tuple[str, ...]]:
    """Replies that a model is shown before it finds another one likely or not, by their heading."""
    return {heading: tuple(said) for heading, said in _shipped()["examples"].items()}


def asked(reply: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """The messages to score for a reply, each after earlier ones, which a person and an assistant wrote in
    turn."""
    written = [
        ("\n".join([heading, "", *said, "", "Write another one."]), reply)
        for heading, said in examples().items()
    ]
    answered = [((*EXCHANGE, reply), opening) for opening in OPENINGS]
    return (*(((prompt,), text) for prompt, text in written), *answered)


def form() -> str:
    """A hash of all that borders depend on, but the model."""
    parts = (asked("{}"), replies(), FALSE_ALARMS, FALSE_HINTS, STRENGTHS)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meaning read from a reply."""

    value: int | None
    """-1 a complaint, 1 thanks, 0 neither; None: unclear."""
    hint: bool
    """Whether it may be a complaint, so that the teacher is shown it."""
    words: str
    """How it was read, for people."""


UNREAD = Reading(value=None, hint=True, words="no model here tells complaints from other replies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """A plane through log-probs: replies of one kind lie above it."""

    weights: tuple[float, ...]
    at: float
    near: float
    """So far below it lie replies that may be of the kind; 0: none."""
    found: int
    """Replies of the kind above a border that was fitted without them."""
    of: int

    @property
    def holds(self) -> bool:
        """Whether it surely separates the kind from others."""
        return wilson_interval(self.found, self.of).low > LEAST_FOUND

    def height(self, reply: LogProbs) -> float:
        """The reply's distance above the border; as fitted, the kind is at 1 and the others at -1."""
        return _dot(self.weights, _centred(reply)) - self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """How one model's log-probs are read."""

    complaint: Border
    thanks: Border

    def read(self, reply: LogProbs) -> Reading:
        """How a reply is taken. Nearly a complaint is a hint without a reward."""
        if not self.complaint.holds:
            return UNREAD
        height = self.complaint.height(reply)
        hint = height > -self.complaint.near
        if height > 0:
            value, says = -1, "a complaint"
        elif hint:
            value, says = 0, "perhaps a complaint"
        elif self.thanks.holds and self.thanks.height(reply) > 0:
            value, says = 1, "thanks"
        else:
            value, says = 0, "no complaint"
        return Reading(value=value, hint=hint, words=f"{says}: {height:+.2f} from the border")


def borders(shipped: Mapping[str, Sequence[LogProbs]]) -> Borders:
    """From the log-probs of replies whose kinds are known: at least two of each."""
    return Borders(complaint=_border(COMPLAINT, shipped), thanks=_border(THANKS, shipped))


def _centred(reply: LogProbs) -> list[float]:
    """Less the mean over the prompts, and over the openings, because length and rarity carry no meaning."""
    kept = [max(value, RULED_OUT) for value in reply]
    many = len(kept) - len(OPENINGS)
    return [value - fmean(part) for part in (kept[:many], kept[many:]) for value in part]


def _border(kind: str, shipped: Mapping[str, Sequence[LogProbs]]) -> Border:
    rows = [_centred(reply) for said in shipped.values() for reply in said]
    own = [name == kind for name, said in shipped.items() for _ in said]
    aims = [1.0 if mine else -1.0 for mine in own]
    # weights of rows, 1 on average, by which both sides weigh the same
    heavy = [len(own) / (2 * (sum(own) if mine else len(own) - sum(own))) for mine in own]
    scales = [pstdev(column) or 1.0 for column in zip(*rows, strict=True)]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] + [1.0] for row in rows]

    def error(fit: tuple[list[float], list[float]]) -> float:
        return fsum(h * (value - aim) ** 2 for h, value, aim in zip(heavy, fit[1], aims, strict=True))

    fits = (ridge(scaled, heavy, aims, strength=strength) for strength in STRENGTHS)
    (*weights, level), unseen = min(fits, key=error)
    others = [value for value, its in zip(unseen, own, strict=True) if not its]
    mine = [value for value, its in zip(unseen, own, strict=True) if its]
    at = _between(others, mine, share=FALSE_ALARMS[kind])
    return Border(
        weights=tuple(weight / scale for weight, scale in zip(weights, scales, strict=True)),
        at=at - level,
        near=max(at - _between(others, mine, share=FALSE_HINTS), 0.0),
        found=sum(value > at for value in mine),
        of=len(mine),
    )


def _between(others: Sequence[float], own: Sequence[float], *, share: float) -> float:
    """Halfway between two neighbours, where most values of both lie on their side, both weighing the same,
    and no larger share of the others above."""
    most = sorted(others, reverse=True)[int(share * len(others))]
    values = sorted({value for value in (*others, *own) if value >= most})
    places = [(below + above) / 2 for below, above in pairwise(values)]

    def told_apart(place: float) -> float:
        return sum(v > place for v in own) / len(own) - sum(v > place for v in others) / len(others)

    return max(places, key=told_apart, default=values[-1])


def ridge(
    rows: Sequence[Sequence[float]], heavy: Sequence[float], aims: Sequence[float], *, strength: float
) -> tuple[list[float], list[float]]:
    """The weights that err least from the aims, and each row's value by weights that were fitted without it.

    Minimises the rows' squared errors, weighted by `heavy`, plus `strength` times the squares of all weights
    but the last, the constant's.
    """
    columns = list(zip(*rows, strict=True))
    weighed = [list(map(mul, heavy, column)) for column in columns]
    moments = [[_dot(left, right) for right in columns] for left in weighed]
    for at in range(len(moments) - 1):
        moments[at][at] += strength
    inverse = _inverse(moments)
    totals = [_dot(column, aims) for column in weighed]
    weights = [_dot(line, totals) for line in inverse]
    unseen: list[float] = []
    for row, weight, aim in zip(rows, heavy, aims, strict=True):
        lever = weight * _dot(row, [_dot(line, row) for line in inverse])
        unseen.append((_dot(row, weights) - lever * aim) / (1 - lever))
    return weights, unseen


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return fsum(map(mul, left, right))


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of a symmetric positive definite matrix."""
    width = len(matrix)
    lines = [[*line, *(float(at == own) for own in range(width))] for at, line in enumerate(matrix)]
    for at, pivot in enumerate(lines):
        pivot[:] = [value / pivot[at] for value in pivot]
        for other, line in enumerate(lines):
            if other != at and line[at]:
                line[:] = [value - line[at] * taken for value, taken in zip(line, pivot, strict=True)]
    return [line[width:] for line in lines]
