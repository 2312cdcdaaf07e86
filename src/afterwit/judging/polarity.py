"""Whether a reply complains or thanks, from a model's log-probs. Pure.

A model that cannot write a vote can still score text: the reply after examples of each kind of replies (the
noisy channel of Min et al., arXiv:2108.04106), and the first words of an answer to it. Ridge regression over
these log-probs is fitted with the model itself on shipped replies, and used only if it holds for replies that
it was not fitted on.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice, pairwise
from math import fsum
from operator import mul
from statistics import fmean, pstdev
from typing import Any

from afterwit.progress import wilson_interval
from afterwit.turn import Message

COMPLAINT, THANKS, NEUTRAL = "complaint", "thanks", "neutral"
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
LONGEST_READ = 1000
"""Characters of a text that are read."""
LogProbs = Sequence[float]
"""A model's log-probs for one text, in nats, in the order of `Subject.rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Messages that a person and an assistant wrote in turn, `{}` for the text, and answers to the last."""

    messages: tuple[str, ...]
    answers: tuple[str, ...]

    def of(self, text: str) -> tuple[str, ...]:
        """The messages about a text."""
        return tuple(message.replace("{}", text) for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One sort of texts of which some complain, and the questions to the model about each."""

    name: str
    asks: tuple[Ask, ...]
    scored: bool = True
    """The text itself is scored, after examples of several kinds. Only an engine can."""

    @property
    def texts(self) -> Mapping[str, tuple[str, ...]]:
        """The shipped texts, by kind."""
        return {kind: tuple(said) for kind, said in _shipped()[self.name].items()}

    @property
    def examples(self) -> Mapping[str, tuple[str, ...]]:
        """Texts that a model is shown before it finds another one likely or not, by their heading."""
        return {heading: tuple(said) for heading, said in _shipped()["examples"].items()}

    @property
    def parts(self) -> tuple[int, ...]:
        """How many log-probs belong together: those of the text, and those of the answers to each ask."""
        return (len(self.examples) * self.scored, *(len(ask.answers) for ask in self.asks))

    def rows(self, text: str) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The messages to score for a text, each after earlier ones."""
        written = [
            (("\n".join([heading, "", *said, "", "Write another one."]),), text)
            for heading, said in self.examples.items()
            if self.scored
        ]
        return (*written, *((ask.of(text), answer) for ask in self.asks for answer in ask.answers))


def alternating(said: Sequence[str]) -> tuple[Message, ...]:
    """The messages of a person and an assistant in turn."""
    return tuple(
        Message(role="assistant" if at % 2 else "user", content=words) for at, words in enumerate(said)
    )


REPLIES = Subject(
    name="replies",
    asks=(
        Ask(
            messages=(
                "I have a question about my work.",
                "Sure, here is what I think about it, and why. I hope that this is what you need.",
                "{}",
            ),
            answers=(
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
            ),
        ),
    ),
)
"""People's replies to a response: complaints, thanks, and all else."""
ASKED = Subject(
    name="replies",
    asks=(
        Ask(messages=('"{}"\n\nIs this message positive or negative?',), answers=("Positive", "Negative")),
        Ask(messages=('Is this message a complaint? Answer Yes or No.\n\n"{}"',), answers=("Yes", "No")),
        Ask(
            messages=('Is this message praise, criticism or a request?\n\n"{}"',),
            answers=("Praise", "Criticism", "Request"),
        ),
    ),
    scored=False,
)
"""The same, for an endpoint that gives the log-probs of the first words of its answer alone."""
RESULTS = Subject(
    name="results",
    asks=(
        Ask(messages=("Is this the output of a success or an error?\n\n{}",), answers=("Success", "Error")),
        Ask(messages=("Did this command succeed or fail?\n\n{}",), answers=("Succeeded", "Failed")),
        Ask(messages=('"{}"\n\nIs this message positive or negative?',), answers=("Positive", "Negative")),
    ),
    scored=False,
)
"""Tools' results: failures as complaints, successes as thanks."""


@cache
def _shipped() -> Mapping[str, Any]:
    return tomllib.loads((files("afterwit.judging") / "replies.toml").read_text("utf-8"))


def form() -> str:
    """A hash of all that borders depend on, but the model."""
    parts = [(each.rows("{}"), each.texts) for each in (REPLIES, RESULTS)]
    return hashlib.sha256(repr((parts, FALSE_ALARMS, FALSE_HINTS, STRENGTHS)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meaning read from a reply."""

    value: int | None
    """-1 a complaint, 1 thanks, 0 neither; None: unclear."""
    hint: bool
    """Whether it may be a complaint, which the teacher then reads."""
    words: str
    """How it was read, for people."""


UNREAD = Reading(value=None, hint=False, words="no model here can tell complaints from other replies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """A plane through log-probs: replies of one kind lie above it."""

    weights: tuple[float, ...]
    parts: tuple[int, ...]
    """How many log-probs belong together, in order."""
    at: float
    near: float
    """So far below it lie replies that may be of the kind; 0: none."""
    found: int
    """Replies of the kind above a border that was fitted without them."""
    of: int
    taken: int
    """Other replies above such a border."""
    others: int

    @property
    def holds(self) -> bool:
        """Whether it surely separates the kind from others."""
        return wilson_interval(self.found, self.of).low > LEAST_FOUND

    def height(self, reply: LogProbs) -> float:
        """The reply's distance above the border; as fitted, the kind is at 1 and the others at -1."""
        return _dot(self.weights, _centred(reply, self.parts)) - self.at

    def described(self, kind: str) -> str:
        """Its reliability, in words."""
        sure = wilson_interval(self.found, self.of)
        return (
            f"{self.found} of {self.of} {kind} ({sure.low:.0%} to {sure.high:.0%}) and takes {self.taken} of"
            f" {self.others} others for one"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """How one model's log-probs are read."""

    complaint: Border
    thanks: Border

    @property
    def right(self) -> float:
        """The share of unseen texts that are read right, the three kinds weighing the same."""
        thanks = self.thanks.found / self.thanks.of if self.thanks.holds else 0.0
        neutral = 1 - self.complaint.taken / self.complaint.others
        return (self.complaint.found / self.complaint.of + thanks + neutral) / 3

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


def borders(shipped: Mapping[str, Sequence[LogProbs]], parts: tuple[int, ...]) -> Borders:
    """From the log-probs of texts of known kinds, at least two of each. `parts` are their subject's."""
    complaint, thanks = (_border(kind, shipped, parts) for kind in (COMPLAINT, THANKS))
    return Borders(complaint=complaint, thanks=thanks)


def _centred(reply: LogProbs, parts: Sequence[int]) -> list[float]:
    """Less the mean of what belongs together, because length and rarity carry no meaning. ValueError if the
    reply has another number of log-probs."""
    if len(reply) != sum(parts):
        raise ValueError(f"{len(reply)} log-probs, but a border through {sum(parts)}")
    kept = iter([max(value, RULED_OUT) for value in reply])
    together = [list(islice(kept, many)) for many in parts if many]
    return [value - fmean(part) for part in together for value in part]


def _border(kind: str, shipped: Mapping[str, Sequence[LogProbs]], parts: tuple[int, ...]) -> Border:
    rows = [_centred(reply, parts) for said in shipped.values() for reply in said]
    own = [name == kind for name, said in shipped.items() for _ in said]
    aims = [1.0 if mine else -1.0 for mine in own]
    # weights of rows, 1 on average, by which both sides weigh the same
    heavy = [len(own) / (2 * (sum(own) if mine else len(own) - sum(own))) for mine in own]
    scales = [pstdev(column) or 1.0 for column in zip(*rows, strict=True)]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] + [1.0] for row in rows]

    def error(fit: tuple[list[float], list[float]]) -> float:
        return fsum(h * (value - aim) ** 2 for h, value, aim in zip(heavy, fit[1], aims, strict=True))

    (*weights, level), unseen = min(ridge(scaled, heavy, aims, strengths=STRENGTHS), key=error)
    others = [value for value, its in zip(unseen, own, strict=True) if not its]
    mine = [value for value, its in zip(unseen, own, strict=True) if its]
    at = _between(others, mine, share=FALSE_ALARMS[kind])
    return Border(
        weights=tuple(weight / scale for weight, scale in zip(weights, scales, strict=True)),
        parts=parts,
        at=at - level,
        near=max(at - _between(others, mine, share=FALSE_HINTS), 0.0),
        found=sum(value > at for value in mine),
        of=len(mine),
        taken=sum(value > at for value in others),
        others=len(others),
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
    rows: Sequence[Sequence[float]],
    heavy: Sequence[float],
    aims: Sequence[float],
    *,
    strengths: Iterable[float],
) -> Iterator[tuple[list[float], list[float]]]:
    """The weights that err least from the aims, and each row's value by weights that were fitted without it,
    for each strength.

    Minimises the squared errors of rows, weighted by `heavy`, plus the strength times the squares of weights
    other than the constant's, the last.
    """
    columns = list(zip(*rows, strict=True))
    weighed = [list(map(mul, heavy, column)) for column in columns]
    moments = [[_dot(left, right) for right in columns] for left in weighed]
    totals = [_dot(column, aims) for column in weighed]
    for strength in strengths:
        pulled = [list(line) for line in moments]
        for at in range(len(pulled) - 1):
            pulled[at][at] += strength
        inverse = _inverse(pulled)
        weights = [_dot(line, totals) for line in inverse]
        unseen: list[float] = []
        for row, weight, aim in zip(rows, heavy, aims, strict=True):
            lever = weight * _dot(row, [_dot(line, row) for line in inverse])
            unseen.append((_dot(row, weights) - lever * aim) / (1 - lever))
        yield weights, unseen


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    width = len(matrix)
    lines = [[*line, *(float(at == own) for own in range(width))] for at, line in enumerate(matrix)]
    for at, pivot in enumerate(lines):
        pivot[:] = [value / pivot[at] for value in pivot]
        for other, line in enumerate(lines):
            if other != at and line[at]:
                line[:] = [value - line[at] * taken for value, taken in zip(line, pivot, strict=True)]
    return [line[width:] for line in lines]
