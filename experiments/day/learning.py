"""The learner's day: which updates it makes, of how many turns, and how many tokens run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from afterwit.learning.schedule import SHARE_OF_BACKLOG, largest_batch, largest_share
from afterwit.learning.settings import LearnerSettings
from experiments.day.traffic import HOUR_S, HOURS, Day

TRAINED = 3
"""Work of a token that is trained on, in tokens that are only read: as `learning/metrics.py` counts."""


ROUNDING = 1e-6
"""Of a turn."""


class Tokens(NamedTuple):
    """Of an update, or of a turn's share of one."""

    trained: float
    read: float
    """By teacher and reference."""

    @property
    def work(self) -> float:
        """In tokens that are only read."""
        return TRAINED * self.trained + self.read


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long an update takes: `fixed_s`, and `token_s` for each token of its work."""

    fixed_s: float
    token_s: float

    def seconds(self, tokens: Tokens) -> float:
        return self.fixed_s + self.token_s * tokens.work


class Update(NamedTuple):
    """`at`: when it begins, in seconds of the day. `ready`: turns that wait then, its own included."""

    at: float
    turns: int
    ready: int
    seconds: float
    tokens: Tokens


def sessions_in(day: Day, rate: float, batch: float, settings: LearnerSettings) -> float:
    """Of how many sessions an update's turns are, if each session's are as likely.

    Each session is a source of its own; an update takes at most a share from one.
    """
    there = day.at_once(rate)
    drawn = there * (1 - (1 - 1 / there) ** batch) if there > 1 else 1.0
    size, sources = max(1, round(batch)), max(1, round(there))
    least = batch / largest_share(size, sources=sources, share=settings.source_share)
    return min(batch, max(drawn, least))


def tokens_of(day: Day, batch: float, sessions: float, *, at_end: bool, reads_own: bool) -> Tokens:
    """Tokens of an update that packs: what rows share runs once, in the policy and in the teacher.

    `at_end`: hints follow the prompt (`judge.placement = "end"`), else they follow the last message of a
    person, and the rest of the prompt runs again. `reads_own`: the reference reads the turns themselves too.
    """
    later = (batch - sessions) * (day.asked + day.said) / day.trains
    prompts = sessions * day.prompt + later
    hinted = batch * day.hints * (day.hint + (0.0 if at_end else day.behind) + day.said)
    own = sessions * day.said
    read = prompts + hinted + (own if reads_own else 0.0)
    return Tokens(prompts + own, read if hinted or reads_own else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A learner's settings, and where its hints stand."""

    settings: LearnerSettings = field(default_factory=LearnerSettings)
    pace: Pace
    at_end: bool = False
    reads_own: bool = True

    def at(self, pace: Pace) -> Learning:
        """The same at another pace."""
        return replace(self, pace=pace)

    def tokens(self, day: Day, rate: float, batch: float) -> Tokens:
        """Of an update while `rate` turns come a second. A replayed turn has a hint and shares nothing."""
        sessions, again = sessions_in(day, rate, batch, self.settings), float(self.settings.replay)
        hinted = replace(day, hints=max(1.0, day.hints))
        new = tokens_of(day, batch, sessions, at_end=self.at_end, reads_own=self.reads_own)
        replayed = tokens_of(hinted, again, again, at_end=self.at_end, reads_own=self.reads_own)
        return Tokens(new.trained + replayed.trained, new.read + replayed.read)

    def keeps_up(self, day: Day) -> bool:
        """Whether the largest updates take all turns of the fullest hour."""
        largest = largest_batch(self.settings)
        coming = day.peak * day.learned / day.turns
        return coming * self.pace.seconds(self.tokens(day, day.peak, largest)) <= largest

    def run(self, day: Day) -> list[Update]:
        """The day's updates, if its turns come evenly within each hour, and each is judged at once.

        A short form of `learning/schedule.py`: no sessions that wait for each other, no sources.
        """
        settings, coming = self.settings, deque(_arrivals(day))
        waiting, found, now = deque[tuple[float, int]](), list[Update](), 0.0
        while coming or waiting:
            while coming and coming[0] <= now:
                waiting.append((coming.popleft(), len(found)))
            while waiting and len(found) - waiting[0][1] > settings.max_staleness:
                waiting.popleft()
            patient = waiting and now < waiting[0][0] + settings.max_wait_s
            enough = settings.batch if patient else settings.min_batch
            if len(waiting) >= enough:
                update = self._update(day, now, len(waiting))
                lags = not _all_in_time(waiting, len(found), settings)
                for _ in range(update.turns):
                    (waiting.pop if lags else waiting.popleft)()
                found.append(update)
                now += update.seconds
            else:
                events = [*islice(coming, 1), *([waiting[0][0] + settings.max_wait_s] if patient else [])]
                if not events:
                    return found
                now = min(events)
        return found

    def _update(self, day: Day, now: float, ready: int) -> Update:
        settings = self.settings
        grown = ready // (SHARE_OF_BACKLOG * settings.batch)
        turns = min(ready, settings.batch * min(max(grown, 1), settings.batches_per_update))
        tokens = self.tokens(day, day.rates[int(now / HOUR_S) % len(HOURS)], turns)
        return Update(now, turns, ready, self.pace.seconds(tokens), tokens)


def _arrivals(day: Day) -> Iterator[float]:
    """When the turns come that train."""
    share, owed = day.learned / day.turns, 0.0
    for hour, rate in enumerate(day.rates):
        each = rate * share * HOUR_S
        first = 1 - owed
        while first <= each + ROUNDING:
            yield (hour + first / each) * HOUR_S
            first += 1
        owed = each - (first - 1)


def _all_in_time(waiting: Sequence[tuple[float, int]], version: int, settings: LearnerSettings) -> bool:
    """Whether none becomes too old if the oldest go first in the largest updates: each update's first is its
    oldest."""
    firsts = islice(waiting, 0, None, largest_batch(settings))
    return all(
        version + updates - sampled <= settings.max_staleness for updates, (_, sampled) in enumerate(firsts)
    )
