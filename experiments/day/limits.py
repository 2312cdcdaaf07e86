"""How many turns a day each part bears before it holds the others up, at the settings that it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from afterwit.config import Settings
from afterwit.judging.settings import JudgeSettings
from afterwit.planning.memory import WIDTHS, ModelShape
from experiments.day.learning import Learning, Pace
from experiments.day.traffic import (
    Day,
    calls,
    question_tokens,
    request_seconds,
    store_seconds,
    stored_bytes,
)

WEEK = 7


TOKEN_S = 0.025
"""Between two tokens of one response: assumed, of policy and judge."""


LATE_S = 600.0
"""How long a person may take to reply, and still teach."""


MOST = 1 << 30


class Limit(NamedTuple):
    """A part's limit; `then`: what is done about it."""

    turns: int
    """A day."""
    what: str
    then: str


def limits(
    day: Day, settings: Settings, served: ModelShape, judge: ModelShape, learning: Learning, speed: Speed
) -> list[Limit]:
    """The limits of one of each part, the nearest first. `day` describes its turns, not their number."""
    return sorted(_limits(day, settings, served, judge, learning, speed))


def _limits(
    day: Day, settings: Settings, served: ModelShape, judge: ModelShape, learning: Learning, speed: Speed
) -> Iterator[Limit]:
    at_peak = day.turns / day.peak  # turns a day whose fullest hour has one a second
    card = seconds_of(day, served, judge, settings.judge, speed)
    together = min(settings.judge.max_concurrency, settings.judge.max_turns * calls(settings.judge))
    asking = calls(settings.judge) * day.answer * TOKEN_S

    def learns(turns: int) -> bool:
        there = replace(day, turns=turns)
        return learning.at(pace_of(there, served, speed)).keeps_up(there)

    yield Limit(_most(learns), "one learner", "learner.processes, and a larger learner.batch")
    fresh = settings.learner.max_staleness * settings.learner.batch / LATE_S
    yield Limit(
        int(at_peak * fresh * day.turns / day.learned),
        "replies after ten minutes, which are too old by then",
        "a larger learner.batch, learner.max_staleness",
    )
    yield Limit(int(at_peak / card.policy), "one card that serves", "more servers in engine.url")
    yield Limit(int(at_peak / card.judge), "one card that judges", "more of them behind judge.url")
    yield Limit(
        int(at_peak * together / asking),
        "the judge's calls at one time",
        "judge.max_concurrency and max_turns",
    )
    yield Limit(
        int(at_peak * settings.gateway.max_requests / (day.said * TOKEN_S)),
        "the gateway's requests at one time",
        "gateway.max_requests",
    )
    yield Limit(
        int(settings.store.keep_gb * 2**30 / WEEK / stored_bytes(day, settings.judge)),
        "a week within store.keep_gb",
        "store.keep_gb",
    )
    yield Limit(
        int(at_peak / request_seconds(day)), "one core of the gateway", "several gateways, PostgreSQL"
    )
    yield Limit(int(at_peak / store_seconds(day)), "one thread of the store", "several gateways, PostgreSQL")


def _most(fits: Callable[[int], bool]) -> int:
    """The largest number up to MOST that fits, if all below it do."""
    low, high = 0, MOST
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


BETWEEN_UPDATES_S = 2.0
"""An update's time apart from its tokens: rows, the step, a version's files. Assumed."""


BESIDE = 1.83 / 2
"""Share of its speed that a learner keeps each time its processes double: `python -m benchmarks ranks`, of
one and two; of more it is assumed."""


MOST_CARDS = 1024


ADAPTER_BYTES = 12
"""Of a version, for each weight of an adapter: itself and two moments (`python -m benchmarks lora`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A card. The defaults are NVIDIA's data sheet of the H100 SXM: dense bfloat16, HBM3."""

    operations: float = 989e12
    """A second."""
    bandwidth: float = 3.35e12
    """Bytes a second."""
    computes: float = 0.4
    """Share of the operations that training and reading prompts reach: assumed."""
    reads: float = 0.6
    """Share of the bandwidth that sampling reaches: assumed."""
    streams: int = 32
    """Responses that one engine samples together, and so read its weights together: assumed."""
    kept: float = 0.9
    """Share of what a prompt repeats whose keys and values an engine still has: assumed."""


class Seconds(NamedTuple):
    """Of one card, for one turn of the day."""

    policy: float
    judge: float


def token_operations(shape: ModelShape, before: float) -> float:
    """Multiplications and additions for a token that is read behind `before` others, without the head."""
    return 2.0 * shape.layers * (shape.layer + 2 * shape.heads * shape.head_width * before)


def read_seconds(shape: ModelShape, speed: Speed, tokens: float, before: float) -> float:
    """Seconds to read `tokens` of a prompt, with `before` others before each in the mean."""
    return tokens * token_operations(shape, before) / (speed.operations * speed.computes)


def sampled_seconds(shape: ModelShape, speed: Speed, tokens: float, before: float) -> float:
    """Seconds to sample `tokens`: each step reads the weights once for all streams, and each one's keys."""
    each = WIDTHS["bfloat16"] * (shape.weights / speed.streams + before * shape.kept_per_token)
    return tokens * each / (speed.bandwidth * speed.reads)


def seconds_of(day: Day, served: ModelShape, judge: ModelShape, asks: JudgeSettings, speed: Speed) -> Seconds:
    """Of the policy's engine and of the judge, whose calls with one question share its prompt."""
    new = day.asked + (1 - speed.kept) * (day.prompt - day.asked)
    policy = read_seconds(served, speed, new, day.prompt / 2)
    policy += sampled_seconds(served, speed, day.said, day.prompt)
    question, answered = question_tokens(day, asks), 1 - 1 / day.session
    judged = read_seconds(judge, speed, 2 * question, question / 2)
    judged += sampled_seconds(judge, speed, calls(asks) * day.answer, question)
    return Seconds(policy=policy, judge=judged * answered)


def pace_of(day: Day, shape: ModelShape, speed: Speed, cards: int = 1) -> Pace:
    """The pace of a learner with `cards`, each with a copy of the model."""
    together = cards * BESIDE ** math.log2(cards)
    return Pace(fixed_s=BETWEEN_UPDATES_S, token_s=read_seconds(shape, speed, 1.0, day.prompt / 2) / together)


def learner_cards(day: Day, shape: ModelShape, speed: Speed, learning: Learning) -> int | None:
    """The fewest with which nothing becomes too old in the fullest hour; None: its batch is too small."""

    most = min(learning.settings.batch, MOST_CARDS)
    paces = (pace_of(day, shape, speed, cards) for cards in range(1, most + 1))
    return next((at for at, pace in enumerate(paces, start=1) if learning.at(pace).keeps_up(day)), None)


def version_bytes(shape: ModelShape, rank: int, dtype: str = "bfloat16") -> int:
    """An update writes the trained weights, their moments and, for whole rounded weights, the masters."""
    if rank:
        return ADAPTER_BYTES * shape.adapter(rank)
    precise = WIDTHS["float32"]
    return (2 * precise + precise + (WIDTHS[dtype] if WIDTHS[dtype] < precise else 0)) * shape.weights
