"""Does a day match its model, at a thousandth of the size?

A thousand turns, as `experiments/day` assumes them, go through a real store, the learner's own
choice of batches and the packing, four times: as sessions one after the other, and as concurrent sessions
with a learner at ease, one that is busy in the fullest hours, and one that is too slow for them. An
update's time is a number of tokens: no model runs, so the rows do not cover cards. Each row is what was
measured over what was predicted, or the inverse if that is more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_most, number
from benchmarks.scale_queries import rows as of_queries
from benchmarks.scale_replay import JUDGE, Replay
from experiments.day.learning import Learning, Pace
from experiments.day.traffic import (
    DAY_S,
    HOUR_S,
    HOURS,
    TEXT,
    Day,
    calls,
    question_tokens,
    store_seconds,
    stored_bytes,
)
from tests.store.postgresql.server import Server, programs

FULL = 10
"""Hours of this load and more are the fullest ones."""
CLOSE, NEAR = 1.15, 1.3
CPU = 2.5
"""Another machine is another speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """`load`: what the learner's smallest updates take of the fullest hour.

    `fixed`: the share of an update's time that is not its tokens'.
    """

    name: str
    load: float
    fixed: float
    all_day: bool = True

    def day(self, turns: int) -> Day:
        day = Day(turns=turns)
        return Day(turns=turns, pause_s=DAY_S / day.session) if self.all_day else day

    def learning(self, day: Day) -> Learning:
        tokens = Learning(pace=Pace(fixed_s=0.0, token_s=0.0)).tokens(day, day.peak, 4)
        seconds = self.load * 4 / (day.peak * day.learned / day.turns)
        token_s = (1 - self.fixed) * seconds / tokens.work
        return Learning(pace=Pace(fixed_s=self.fixed * seconds, token_s=token_s))


AT_EASE = Traffic(name="at ease", load=0.5, fixed=0.1)
TRAFFICS = (
    Traffic(name="one after the other", load=0.03, fixed=0.1, all_day=False),
    AT_EASE,
    Traffic(name="busy", load=1.5, fixed=0.5),
    Traffic(name="too slow", load=8.0, fixed=0.5),
)


def rows(asked: Asked) -> Iterator[Row]:
    turns = 200 if asked.quick else 1000
    for traffic in TRAFFICS:
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore.open(Path(folder) / "store.db", fingerprint=None)
            replay, stored = _replayed(traffic, store, turns)
        if traffic is AT_EASE:
            yield from _of_turns(replay, stored)
        yield from _of_updates(traffic.name, replay)
    yield from _over_postgresql(turns)
    yield from of_queries(asked)


def _replayed(traffic: Traffic, store: Store, turns: int) -> tuple[Replay, float]:
    """The replay, and the bytes of a turn in the store."""
    day, empty = traffic.day(turns), store.size()
    replay = Replay(store=store, day=day, learning=traffic.learning(day), all_day=traffic.all_day)
    replay.run()
    stored = (store.size() - empty) / turns
    store.close()
    return replay, stored


def _of_turns(replay: Replay, stored: float) -> Iterator[Row]:
    day = replay.day
    yield _apart("Y1", "bytes of a turn in the store", stored, stored_bytes(day), CLOSE)
    spent = replay.store_s / day.turns
    yield _apart("Y2", "CPU us of a turn in the store", 1e6 * spent, 1e6 * store_seconds(day), CPU)
    characters = calls(JUDGE) * question_tokens(day) * TEXT
    yield _apart(
        "Y3", "characters that the judge is sent about a turn", fmean(replay.asked), characters, CLOSE
    )


def _over_postgresql(turns: int) -> Iterator[Row]:
    """The same rows for information: the model has one formula."""
    if programs() is None:
        yield Row(id="y1", what="a turn over PostgreSQL", values=(), absent="skipped: no server here")
        return
    from afterwit.store.postgresql import PostgresqlStore

    server = Server(fsync="on")
    try:
        store = PostgresqlStore.open(server.url(server.empty_schema()), fingerprint=None)
        replay, stored = _replayed(AT_EASE, store, turns)
    finally:
        server.remove()
    spent, day = replay.store_s / turns, replay.day
    yield _apart("y1", "PostgreSQL: bytes of a turn", stored, stored_bytes(day))
    yield _apart("y2", "PostgreSQL: client's CPU us of a turn", 1e6 * spent, 1e6 * store_seconds(day))


def _of_updates(name: str, replay: Replay) -> Iterator[Row]:
    found, predicted = replay.updates, replay.learning.run(replay.day)
    both = (found, predicted)
    yield _apart("Y4", f"{name}: updates", len(found), len(predicted), NEAR)
    trained, modelled = (sum(update.turns for update in updates) for updates in both)
    yield _apart("Y5", f"{name}: turns that train", trained, modelled, NEAR)
    ready, modelled = (fmean(update.ready for update in updates if _fullest(update.at)) for updates in both)
    yield _apart("Y6", f"{name}: turns that wait in the fullest hours", ready, modelled, NEAR)
    work, modelled = (sum(update.tokens.work for update in updates) / 1e6 for updates in both)
    plain = sum(update.plain.work for update in found) / 1e6
    note = f"{plain / work:.2f} times that unpacked"
    yield _apart("Y7", f"{name}: million tokens of work", work, modelled, NEAR, note)


def _fullest(at: float) -> bool:
    return HOURS[int(at / HOUR_S) % len(HOURS)] >= FULL


def _apart(
    id: str, what: str, found: float, predicted: float, bound: float | None = None, note: str = ""
) -> Row:
    ratio = found / predicted
    said = f"measured {number(found)}, predicted {number(predicted)}"
    return Row(
        id=id,
        what=what,
        values=(max(ratio, 1 / ratio),),
        target=None if bound is None else at_most(bound),
        floor="the model of a day",
        note=f"{said}; {note}" if note else said,
    )
