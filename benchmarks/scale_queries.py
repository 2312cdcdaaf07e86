"""Growth with the store: the same calls over some thousand turns, and over ten times as many.

The turns are short, so that only their number counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from afterwit.lifecycle import Reason, State
from afterwit.store import Filter, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Message, Turn
from afterwit.verdict import Question, Source, Verdict, Vote
from benchmarks.asked import Asked
from benchmarks.measure import Row
from benchmarks.scale_day import Talk, arrivals, record
from benchmarks.scale_growth import of_manifests, row, seconds, version_of
from experiments.day.traffic import Day

LARGE, QUICK = 100_000, 2_000
BATCH = 16
TOGETHER = 64
"""Turns stored in one transaction."""
SHORT = Day(turns=1, system=100, asked=40, said=30, answer=10, hint=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`bounded`: it is called again and again, and should not depend on the number of turns."""

    what: str
    run: Callable[[Store], object]
    bounded: bool = True


def _parent(store: Store) -> object:
    return store.candidates("p0", [bytes([at]) * 16 for at in range(40)], [])


CALLS = (
    Call(what="page: the newest turns", run=lambda store: store.turn_lines(limit=51)),
    Call(
        what="page: turns of a rare state",
        run=lambda store: store.turn_lines(Filter(state=State.ANSWERED), limit=51),
    ),
    Call(what="page: the newest sessions", run=lambda store: store.session_lines(limit=31)),
    Call(what="page: curves", run=lambda store: store.judged_turns(limit=2_000)),
    Call(what="page: sources", run=lambda store: store.source_lines(newest=5_000)),
    Call(what="page: the judge's votes", run=lambda store: store.judged_turns(limit=1_000)),
    Call(what="page: the newest versions", run=lambda store: store.newest_versions(limit=41)),
    Call(what="gateway: a request's parent", run=_parent),
    Call(what="gateway: recent conversations", run=lambda store: store.recent("p0")),
    Call(
        what="judge: the oldest that waits",
        run=lambda store: store.claim("judge", owner="j", limit=1, lease_s=0.0, now=0.0),
    ),
    Call(what="learner: what waits", run=lambda store: store.waiting(now=0.0), bounded=False),
    Call(
        what="housekeeping: what nothing answered",
        run=lambda store: store.expire_open(-1.0, now=0.0),
        bounded=False,
    ),
    Call(
        what="housekeeping: nothing is too old",
        run=lambda store: store.prune(now=0.0, max_age_s=1e9, max_bytes=1 << 40),
    ),
    Call(what="du: the store's size", run=lambda store: store.size()),
    Call(what="status, page, /metrics: turns by state", run=lambda store: store.counts(), bounded=False),
    Call(what="versions, page: all of them", run=lambda store: store.versions(), bounded=False),
)


def rows(asked: Asked) -> Iterator[Row]:
    large = QUICK if asked.quick else LARGE
    sizes = (large // 10, large)
    with tempfile.TemporaryDirectory() as folder:
        stores = [_filled(Path(folder) / f"{size}.db", size) for size in sizes]
        for call in CALLS:
            taken = [seconds(partial(call.run, store)) for store in stores]
            yield row(call.what, sizes, taken, bounded=call.bounded)
        for store in stores:
            store.close()
    yield from of_manifests(200 if asked.quick else 2_000)


def _filled(path: Path, count: int) -> Store:
    """A store of `count` turns, judged and trained, but for the last ones."""
    store, day = SqliteStore.open(path, fingerprint=None), Day(turns=count)
    talks, random, learned = dict[int, Talk](), Random(0), list[str]()
    coming, version = arrivals(day, random, all_day=False), 0
    for start in range(0, count, TOGETHER):
        with store.transaction():
            for place in range(start, min(start + TOGETHER, count)):
                arrival = coming[place]
                talk = talks.get(arrival.session) or talks.setdefault(
                    arrival.session, Talk(SHORT, arrival.session)
                )
                asked = talk.asks(arrival.place)
                if talk.last is not None:
                    _judged(store, talk.last, asked, trains=(trains := random.random() < day.trains))
                    learned += [talk.last.id] if trains else []
                record(store, talk.turn(place, at=float(place), version=0, scope=f"p{arrival.session % 50}"))
                if arrival.last:
                    del talks[arrival.session]
            while len(learned) >= BATCH:
                version += 1
                store.commit_version(version_of(version, learned[:BATCH]), now=0.0)
                del learned[:BATCH]
    return store


def _judged(store: Store, turn: Turn, messages: Sequence[Message], *, trains: bool) -> None:
    votes = [
        Vote(question=question, words=turn.message.content or "", value=-1 if trains else 0)
        for question in (Question.EVALUATION, Question.HINT)
        for _ in range(3)
    ]
    verdict = Verdict(reward=-1 if trains else 0, source=Source.VOTES, votes=tuple(votes))
    now = turn.created
    store.answer(turn.id, messages, answered_by=None, now=now)
    store.claim("judge", owner="judge", limit=1, lease_s=60.0, now=now)
    reason = None if trains else Reason.NO_SIGNAL
    store.judged(turn.id, verdict, rl=trains, opd=False, reason=reason, owner="judge", now=now)
