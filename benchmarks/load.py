"""How much is learned, and how fresh, when turns come faster than the learner's pace?

A discrete-event replay: a real store, the learner's own choice of batches, and a clock. An update moves the
clock by the tokens it runs (shared prefixes once, three hints a turn), and by a tenth of a published batch
for all else (3 to 10 percent on the demo model). The pace is that of published batches: 16 turns, the oldest
first. Each turn is sampled by the weights that are newest half a batch's time before it is judged.

The traffic: 16 people in sessions of 16 turns, or each turn in a session of its own, which shares nothing.
Only turns of the replay's middle half count, as learned if they trained before it ends. Late: how long after
its verdict a turn is learned, in published batches' time.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from afterwit.learning.schedule import is_stale, next_batch
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason
from afterwit.store import Record, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from afterwit.verdict import Source, Verdict, Waiting
from afterwit.version import Origin, Probe, Version
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_least
from benchmarks.segments import SESSION
from benchmarks.sessions import HINTS

LOADS = {1: 80, 2: 240, 5: 80, 10: 80}
"""Multiples of the pace, and how many published batches a replay lasts: until its queue no longer grows."""
PEOPLE = {"16 people": 16, "nothing shared": None}
SETTINGS = LearnerSettings()
FIXED_SHARE = 0.1
MIDDLE = SESSION.system + (SESSION.turns + 1) / 2 * (SESSION.asked + SESSION.said)
"""Tokens of a session's middle turn: of an average turn alone."""
HINTED = HINTS * (SESSION.hint + SESSION.said)
"""Tokens that a turn's teachers add."""
BATCH_TIME = SETTINGS.batch * (MIDDLE + HINTED) * (1 + FIXED_SHARE)
"""Of a published batch of turns that share nothing: the unit of the replay's time, in tokens."""
PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))
ANSWER = (Message(role="user", content="No, the other one."),)
VERDICT = Verdict(reward=-1, source=Source.VOTES, hints=("Ask which one is meant.",))

Choose = Callable[[Sequence[Waiting], float, int], tuple[int, ...]]


def rows(asked: Asked) -> Iterator[Row]:
    for traffic, people in PEOPLE.items():
        for load, length in LOADS.items():
            batches = length // 8 if asked.quick else length
            fixed = replayed(published, people=people, load=load, batches=batches)
            ours = replayed(growing, people=people, load=load, batches=batches)
            for name, found in (("fixed batch", fixed), ("ours", ours)):
                yield Row(
                    id="o" if found is fixed else "O",
                    what=f"{traffic}, {load} x the pace: share learned, {name}",
                    values=(found.share,),
                    target=None if found is fixed else at_least(0.95 * fixed.share),
                    note=f"{found.age:.1f} versions old, {found.wait:.1f} late, {found.updates} updates",
                )


def published(waiting: Sequence[Waiting], now: float, version: int) -> tuple[int, ...]:
    """Always 16 turns, the oldest first."""
    full = len(waiting) >= SETTINGS.batch
    return tuple(turn.seq for turn in waiting[: SETTINGS.batch]) if full else ()


def growing(waiting: Sequence[Waiting], now: float, version: int) -> tuple[int, ...]:
    """The learner's own choice with the published settings."""
    return next_batch(SETTINGS, waiting, now=now, version=version).turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The fate of the turns of the middle half."""

    share: float
    """The part of these turns that was learned."""
    age: float
    """Versions between a learned turn's sampling and its update, in the mean."""
    wait: float
    """Published batches' time between its verdict and its update, in the mean."""
    updates: int


def replayed(choose: Choose, *, people: int | None, load: float, batches: int) -> Found:
    """A replay as long as this many published batches take."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore.open(Path(folder) / "store.db", fingerprint=None)
        try:
            return _Replay(store=store, people=people, load=load).run(choose, float(batches))
        finally:
            store.close()


@dataclass(slots=True, kw_only=True)
class _Replay:
    store: Store
    people: int | None
    load: float
    now: float = 0.0
    """In published batches' time, like every time here."""
    published_at: list[float] = field(default_factory=lambda: [0.0])
    """When each version came, by its number."""
    judged_at: list[float] = field(default_factory=list)
    """When each turn was judged, by its number."""
    learned: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Age in versions and wait of each learned turn."""

    def run(self, choose: Choose, until: float) -> Found:
        while self.now < until:
            self._arrive()
            version = len(self.published_at) - 1
            waiting = self.store.waiting(now=self.now)
            stale = [turn.turn for turn in waiting if is_stale(turn, SETTINGS, version)]
            self.store.skip(stale, Reason.STALE, now=self.now)
            fresh = [turn for turn in waiting if not is_stale(turn, SETTINGS, version)]
            if turns := choose(fresh, self.now, version):
                self._update(turns)
            else:
                self.now += 1 / SETTINGS.batch / self.load
        return self._found(until)

    def _arrive(self) -> None:
        """Bring the turns that were judged by now."""
        with self.store.transaction():
            while len(self.judged_at) < self.now * SETTINGS.batch * self.load:
                number = len(self.judged_at)
                self.judged_at.append(number / SETTINGS.batch / self.load)
                version = max(bisect_right(self.published_at, self.judged_at[-1] - 0.5) - 1, 0)
                self._judge(_turn(number, self.people, version))

    def _judge(self, turn: Turn) -> None:
        name = turn.id.encode().ljust(16)
        self.store.add_turn(
            turn,
            prompt_hash=name,
            full_hash=name[::-1],
            depth=1,
            full_depth=2,
            delivered=True,
            reason=None,
            now=self.now,
        )
        self.store.answer(turn.id, ANSWER, answered_by=None, now=self.now)
        self.store.claim("judge", owner="judge", limit=1, lease_s=1.0, now=self.now)
        self.store.judged(turn.id, VERDICT, rl=True, opd=True, reason=None, owner="judge", now=self.now)

    def _update(self, turns: tuple[int, ...]) -> None:
        records = self.store.claim(
            "learn", owner="learner", limit=len(turns), lease_s=1e6, now=self.now, only=turns
        )
        began, version = self.now, len(self.published_at)
        self.now += _duration(records, self.people)
        for record in records:
            number = int(record.turn.id)
            self.learned[number] = (
                version - 1 - record.sampled_turn.sampled.versions[0],
                began - self.judged_at[number],
            )
        names = tuple(record.turn.id for record in records)
        made = Version(
            number=version,
            parent=version - 1,
            origin=Origin.UPDATE,
            created=self.now,
            turns=names,
            probe=PROBE,
        )
        self.store.commit_version(made, now=self.now)
        self.published_at.append(self.now)

    def _found(self, until: float) -> Found:
        middle = [number for number, at in enumerate(self.judged_at) if until / 4 <= at <= 3 * until / 4]
        learned = [self.learned[number] for number in middle if number in self.learned]
        return Found(
            share=len(learned) / len(middle),
            age=fmean(age for age, _ in learned) if learned else math.nan,
            wait=fmean(wait for _, wait in learned) if learned else math.nan,
            updates=len(self.published_at) - 1,
        )


def _duration(records: Sequence[Record], people: int | None) -> float:
    """Of an update, in published batches' time: each session's longest turn once, and all hints."""
    longest = defaultdict[str, float](float)
    for record in records:
        longest[record.turn.session] = max(longest[record.turn.session], _tokens(int(record.turn.id), people))
    tokens = sum(longest.values()) + HINTED * len(records)
    return FIXED_SHARE / (1 + FIXED_SHARE) + tokens / BATCH_TIME


def _tokens(number: int, people: int | None) -> float:
    """Of a turn's prompt and response; one that shares nothing is as long as the middle one."""
    if people is None:
        return MIDDLE
    place = number // people % SESSION.turns
    return SESSION.system + (place + 1) * (SESSION.asked + SESSION.said)


def _turn(number: int, people: int | None, version: int) -> Turn:
    return Turn(
        id=f"{number:08d}",
        scope="benchmark",
        session=str(number) if people is None else f"{number % people} {number // people // SESSION.turns}",
        parent=None,
        kind=Kind.MAIN,
        created=0.0,
        model="policy",
        conversation=Conversation(messages=(Message(role="user", content="Which one?"),)),
        prompt_ids=(1, 2, 3),
        sampling=Sampling(max_tokens=8),
        sampled=Sampled(ids=(4,), logprobs=(-1.0,), versions=(version,), forced=(False,)),
        message=Message(role="assistant", content="This one."),
        finish=Finish.STOP,
    )
