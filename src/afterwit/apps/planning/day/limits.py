"""How many turns a day each part bears before it holds the others up, at the settings that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from afterwit.apps.config import Settings
from afterwit.apps.planning.day.computing import Speed, pace_of, seconds_of
from afterwit.apps.planning.day.learning import Learning
from afterwit.apps.planning.day.storing import calls, request_seconds, store_seconds, stored_bytes
from afterwit.apps.planning.day.traffic import Day
from afterwit.core.model_shape import ModelShape

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
    """Those of one of each part, the nearest first. `day` says what its turns are like; not how many."""
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
    """The largest number that fits, of those up to MOST, if all below it do."""
    low, high = 0, MOST
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
