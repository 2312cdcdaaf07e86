"""A day through the real store, the learner's own choice of batches and the packing, with a clock.

No model runs: an update takes the time that its pace gives to the tokens that packing leaves. A turn is
sampled by the newest weights, and answered and judged at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from afterwit.judging.prompts import FullPrompts
from afterwit.judging.questions import case_of, questions
from afterwit.judging.settings import JudgeSettings
from afterwit.learning.passes import Row, token_ratio
from afterwit.learning.schedule import is_stale, next_batch
from afterwit.lifecycle import Reason
from afterwit.objective.settings import ObjectiveSettings
from afterwit.packing.pack import WORTH
from afterwit.store import Record, Store
from afterwit.turn import Message, Turn
from afterwit.verdict import NextState, Source, Verdict, Vote
from afterwit.version import Origin, Probe, Version
from benchmarks.scale_day import Arrival, Talk, arrivals, record
from experiments.day.learning import Learning, Tokens
from experiments.day.traffic import Day

T = TypeVar("T")

JUDGE = JudgeSettings()
RULES = JUDGE.rules(ObjectiveSettings().reads)
PROMPTS = FullPrompts(
    max_tokens=JUDGE.max_tokens,
    context_chars=JUDGE.context_chars,
    tools_chars=JUDGE.tools_chars,
    response_chars=JUDGE.response_chars,
    next_state_chars=JUDGE.next_state_chars,
)
PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update of the replay, and what waited when it began."""

    at: float
    turns: int
    ready: int
    tokens: Tokens
    plain: Tokens
    """If rows shared nothing."""
    oldest: int
    """Most versions between the sampling of a turn and its update."""


@dataclass(slots=True, kw_only=True)
class Replay:
    store: Store
    day: Day
    learning: Learning
    all_day: bool
    """Whether sessions go on for all of the day."""
    updates: list[Update] = field(default_factory=list)
    stale: int = 0
    store_s: float = 0.0
    """CPU seconds of the store's calls for turns."""
    asked: list[int] = field(default_factory=list)
    """Characters of everything that the judge is sent about a turn."""
    _now: float = 0.0
    _version: int = 0
    _talks: dict[int, Talk] = field(default_factory=dict)
    _person_at: dict[str, int] = field(default_factory=dict)
    _random: Random = field(default_factory=lambda: Random(7))

    def run(self) -> None:
        """The whole day. Turns for which no more come stay."""
        coming = arrivals(self.day, self._random, all_day=self.all_day)
        for number, arrival in enumerate(coming):
            self._learn_until(arrival.at)
            self._now = max(self._now, arrival.at)
            self._arrive(number, arrival)
        self._learn_until(math.inf)

    def _arrive(self, number: int, arrival: Arrival) -> None:
        if (talk := self._talks.get(arrival.session)) is None:
            talk = self._talks[arrival.session] = Talk(self.day, arrival.session)
            talk.asks(0)
        turn = talk.turn(number, at=arrival.at, version=self._version, scope=f"p{arrival.session}")
        self._person_at[turn.id] = talk.person_at
        self._timed(lambda: record(self.store, turn))
        if arrival.last:
            del self._talks[arrival.session]
        else:
            self._judge(turn, talk.asks(arrival.place + 1), talk)

    def _judge(self, turn: Turn, messages: tuple[Message, ...], talk: Talk) -> None:
        case = case_of(turn, NextState(messages=messages), schema_error=None)
        calls = questions(case, PROMPTS, RULES)
        self.asked.append(sum(len(said.content or "") for call in calls for said in call.messages))
        trains = self._random.random() < self.day.trains
        hints = tuple(talk.words(self.day.hint) for _ in range(_whole(self.day.hints, self._random)))
        votes = tuple(
            Vote(question=call.question, words=talk.words(self.day.answer), value=1 if trains else 0)
            for call in calls
        )
        verdict = Verdict(
            reward=-1 if trains else 0, source=Source.VOTES, hints=hints if trains else (), votes=votes
        )
        self._timed(lambda: self.store.answer(turn.id, messages, answered_by=None, now=self._now))
        self._timed(lambda: self._settle(turn, verdict, trains=trains))

    def _settle(self, turn: Turn, verdict: Verdict, *, trains: bool) -> None:
        self.store.claim("judge", owner="judge", limit=1, lease_s=60.0, now=self._now)
        self.store.judged(
            turn.id,
            verdict,
            rl=trains,
            opd=bool(verdict.hints),
            reason=None if trains else Reason.NO_SIGNAL,
            owner="judge",
            now=self._now,
        )

    def _learn_until(self, until: float) -> None:
        """Every update that begins before that."""
        settings = self.learning.settings
        while self._now < until:
            waiting = self.store.waiting(now=self._now)
            stale = [turn.turn for turn in waiting if is_stale(turn, settings, self._version)]
            self.stale += self.store.skip(stale, Reason.STALE, now=self._now)
            fresh = [turn for turn in waiting if not is_stale(turn, settings, self._version)]
            choice = next_batch(settings, fresh, now=self._now, version=self._version)
            if choice.turns:
                self._update(choice.turns, choice.ready)
                continue
            patience = min((turn.since + settings.max_wait_s for turn in fresh), default=math.inf)
            if not self._now < patience < until:
                return
            self._now = patience

    def _update(self, turns: Sequence[int], ready: int) -> None:
        records = self._timed(
            lambda: self.store.claim(
                "learn", owner="learner", limit=len(turns), lease_s=1e9, now=self._now, only=turns
            )
        )
        tokens, plain = self._tokens(records)
        oldest = max(self._version - record.sampled_turn.sampled.oldest_version for record in records)
        self.updates.append(
            Update(at=self._now, turns=len(records), ready=ready, tokens=tokens, plain=plain, oldest=oldest)
        )
        self._now += self.learning.pace.seconds(tokens)
        self._version += 1
        made = Version(
            number=self._version,
            parent=self._version - 1,
            origin=Origin.UPDATE,
            created=self._now,
            turns=tuple(record.turn.id for record in records),
            probe=PROBE,
        )
        self._timed(lambda: self.store.commit_version(made, now=self._now))

    def _tokens(self, records: Sequence[Record]) -> tuple[Tokens, Tokens]:
        """Of an update, as packing runs them, and if rows shared nothing."""
        students, read = list[Row](), list[Row]()
        for held in records:
            turn = held.sampled_turn
            own = Row(prompt=turn.prompt_ids, response=turn.sampled.ids)
            hints = () if held.verdict is None else held.verdict.hints
            students.append(own)
            read += [self._hinted(turn, number) for number in range(len(hints))] + [own]
        plain = Tokens(sum(map(len, students)), sum(map(len, read)))
        return Tokens(_run(students), _run(read)), plain

    def _hinted(self, turn: Turn, number: int) -> Row:
        """The turn after a hint, whose ids occur in no other hint."""
        at = len(turn.prompt_ids) if self.learning.at_end else self._person_at[turn.id]
        hint = tuple(-(self._version * 64 + number * 16 + place) - 1 for place in range(self.day.hint))
        prompt = (*turn.prompt_ids[:at], *hint, *turn.prompt_ids[at:])
        return Row(prompt=prompt, response=turn.sampled.ids)

    def _timed(self, call: Callable[[], T]) -> T:
        began = time.process_time()
        found = call()
        self.store_s += time.process_time() - began
        return found


def _run(rows: Sequence[Row]) -> float:
    """Tokens that run: shared ones once, if that pays."""
    ratio = token_ratio(rows)
    return sum(map(len, rows)) / (ratio if ratio >= WORTH else 1.0)


def _whole(mean: float, random: Random) -> int:
    """A number with this mean."""
    return math.floor(mean) + (random.random() < mean % 1)
