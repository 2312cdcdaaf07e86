"""The learner's day: which batches it takes, how many updates that makes, and how many tokens run.

The batches are those of `learner/schedule.py`, in balance: turns come at a constant rate for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from afterwit.apps.planning.day.traffic import HOUR_S, Day
from afterwit.core.teaching import largest_share
from afterwit.learner.schedule import SHARE_OF_BACKLOG, largest_batch
from afterwit.learner.settings import LearnerSettings

TRAINED = 3
"""Work of a token that is trained on, in tokens that are only read: as `learner/work.py` counts."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """An hour of the learner, in balance."""

    batch: float
    """Turns of an update."""
    updates: float
    seconds: float
    """Of one update."""
    ready: float
    """Turns that wait when an update begins."""
    learned: float
    """Share of its turns that train; the others become too old."""
    tokens: Tokens
    """Of one update."""


def sessions_in(day: Day, rate: float, batch: float, settings: LearnerSettings) -> float:
    """Of how many sessions an update's turns are, if each session's are as likely.

    Each session is a source of its own; an update takes no more than a share from one.
    """
    there = day.at_once(rate)
    drawn = there * (1 - (1 - 1 / there) ** batch) if there > 1 else 1.0
    size, sources = max(1, round(batch)), max(1, round(there))
    least = batch / largest_share(size, sources=sources, share=settings.source_share)
    return min(batch, max(drawn, least))


def tokens_of(day: Day, batch: float, sessions: float, *, at_end: bool, reads_own: bool) -> Tokens:
    """Tokens of an update that packs: what rows share runs once, in the policy and in the teacher.

    `at_end`: hints stand behind the prompt (`judge.placement = "end"`), else behind the last message of a
    person, and what follows it runs again. `reads_own`: the reference reads the turns themselves too.
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
        """Of an update while so many turns come a second."""
        sessions = sessions_in(day, rate, batch, self.settings)
        return tokens_of(day, batch, sessions, at_end=self.at_end, reads_own=self.reads_own)

    def hour(self, day: Day, rate: float) -> Hour:
        """An hour in which so many turns come a second.

        A batch grows as soon as the turns that come while it trains are more than it. The queue is then what
        `learner/schedule.py` grows it by: `SHARE_OF_BACKLOG` times its turns.
        """
        settings, share = self.settings, day.learned / day.turns
        coming = rate * share
        while_going_on = max(rate, 1 / day.pause_s) * share
        least, largest = settings.batch, largest_batch(settings)
        batch = float(self._small(while_going_on))
        seconds = self.pace.seconds(self.tokens(day, rate, batch))
        while coming * seconds > batch and batch < largest:
            batch = min(batch + 0.25, largest)
            seconds = self.pace.seconds(self.tokens(day, rate, batch))
        learned = min(1.0, batch / (coming * seconds)) if coming else 1.0
        ready = SHARE_OF_BACKLOG * batch if batch > least else batch + coming * seconds / 2
        return Hour(
            batch=batch,
            updates=HOUR_S * coming * learned / batch,
            seconds=seconds,
            ready=ready,
            learned=learned,
            tokens=self.tokens(day, rate, batch),
        )

    def _small(self, coming: float) -> float:
        """Turns of an update that nothing hurries: what comes while the oldest waits."""
        settings = self.settings
        return min(max(1 + coming * settings.max_wait_s, settings.min_batch), settings.batch)

    def hours(self, day: Day) -> tuple[Hour, ...]:
        return tuple(self.hour(day, rate) for rate in day.rates)
