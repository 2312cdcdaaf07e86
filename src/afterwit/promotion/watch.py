"""The watch: a judged turn may end an episode, and episodes may raise an alarm or confirm a version.

All of it happens in the transaction that stores the verdict, so that a crash leaves both or neither.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from afterwit.lifecycle import Reason
from afterwit.progress import Request
from afterwit.promotion import messages
from afterwit.promotion.episodes import BadEnd, Episode, Step, closes, episode, without_end
from afterwit.promotion.events import PAUSE_AFTER_ALARMS, Event, EventKind, alarms_in_a_row, confirmed
from afterwit.promotion.gate import pause_learning
from afterwit.promotion.items import Item
from afterwit.promotion.settings import PromotionSettings
from afterwit.store import Record, Store, VersionRecord
from afterwit.turn import Turn
from afterwit.verdict import Flag, Source, Verdict

log = logging.getLogger(__name__)


class WatchOver:
    """Watches the version that serves. Without promotion, episodes are kept and nothing follows from them."""

    def __init__(self, settings: PromotionSettings) -> None:
        self._settings, self._watch = settings, settings.watch

    def judged(self, store: Store, turn: str, *, now: float) -> None:
        """After a verdict was stored, or a turn ended without one, in its transaction.

        How a request ended whose last turn was never judged (it holds a secret, or the judge failed) is only
        known if it ended badly by what else is there. A request with several choices, each of which may be
        rated, ended as well as the best of them.
        """
        line = store.line(turn)
        if not line or line[-1].turn.id != turn or not closes(line[-1].next_state):
            return
        steps = _episode_of(line)
        ended = episode([Step(turn=record.turn, verdict=_known(record)) for record in steps])
        if steps[-1].verdict is None and ended.bad is None:
            return
        others = store.ended_choices(turn)
        if others and ended.bad is not None:
            return
        self._end(store, ended, steps, instead_of=others, now=now)
        store.review(_tool_hints_approved(ended, steps), accept=True, now=now)

    def sweep(self, store: Store, *, now: float) -> int:
        """End the episodes of agents that called a tool and never came back; returns how many."""
        with store.transaction():
            found = store.unended(before=now - self._settings.no_end_s)
            for record in found:
                self._end(store, without_end(record.turn), [record], now=now)
        return len(found)

    def _end(
        self,
        store: Store,
        ended: Episode,
        steps: Sequence[Record],
        *,
        instead_of: Sequence[str] = (),
        now: float,
    ) -> None:
        approved = [
            record.turn
            for record in steps
            if record.turn.id in ended.approved and record.reason is not Reason.HOLDS_SECRET
        ]
        items = [Item.of(turn, since=now) for turn in approved if isinstance(turn, Turn)]
        replaced = [*(record.turn.id for record in steps), *instead_of]
        store.end_episode(ended, items, steps=replaced, now=now)
        if self._settings.enabled:
            self._decide(store, ended.adapter, now=now)

    def _decide(self, store: Store, adapter: str, *, now: float) -> None:
        """Of one adapter: how others' requests end says nothing about it."""
        safe = confirmed(store.events(adapter))
        episodes = store.episodes(adapter, after=safe)
        bound = self._watch.may_end_badly(
            before=store.ended_badly(until=safe, adapter=adapter),
            base=store.ended_badly(until=0, adapter=adapter),
        )
        evidence = self._watch.evidence(episodes, bound=bound)
        if evidence >= self._watch.alarm_at:
            self._alarm(store, adapter, episodes, evidence, safe, now=now)
        elif (first := self._watch.confirms(episodes, bound=bound)) is not None:
            self._confirm(store, adapter, first.version, now=now)

    def _alarm(
        self,
        store: Store,
        adapter: str,
        episodes: Sequence[Episode],
        evidence: float,
        safe: int,
        *,
        now: float,
    ) -> None:
        versions = store.versions(adapter)
        if not _learned_since(safe, versions):
            return
        words = messages.on_alarm(episodes, safe=safe)
        log.warning("promotion: %s", words)
        newest = versions[-1].number
        store.decided(
            Event(
                kind=EventKind.ALARM, at=now, version=newest, evidence=evidence, words=words, adapter=adapter
            )
        )
        alarms = alarms_in_a_row(store.events(adapter))
        if alarms % PAUSE_AFTER_ALARMS == 0:
            pause_learning(store, messages.on_alarms(alarms), adapter, now=now)

    def _confirm(self, store: Store, adapter: str, version: int, *, now: float) -> None:
        if version <= confirmed(store.events(adapter)):
            return
        words = messages.on_confirmed(version, self._watch.confirm_after)
        store.decided(
            Event(kind=EventKind.CONFIRM, at=now, version=version, evidence=0.0, words=words, adapter=adapter)
        )
        suite = next((each.suite for each in store.versions() if each.number == version), None)
        if suite is not None and suite.lost_turns:
            store.retire(suite.lost_turns)


def _known(record: Record) -> Verdict | None:
    """The verdict; of a turn without one, what a person's thumb said of it if it pointed down."""
    feedback = None if record.next_state is None else record.next_state.feedback
    if record.verdict is None and feedback is not None and feedback.reward == -1:
        return Verdict(reward=-1, source=Source.FEEDBACK)
    return record.verdict


def _episode_of(line: Sequence[Record]) -> list[Record]:
    """The last turn of a line with those before it, back to the one that closed the episode before."""
    steps = [line[-1]]
    for record in reversed(line[:-1]):
        if closes(record.next_state):
            break
        steps.insert(0, record)
    return steps


def _tool_hints_approved(ended: Episode, steps: Sequence[Record]) -> list[str]:
    """The steps before a person's approval whose hints come from what tools returned: they may teach now."""
    if steps[-1].turn.id not in ended.approved:
        return []
    return [
        record.turn.id
        for record in steps[:-1]
        if record.turn.id in ended.approved and record.flags == (Flag.TOOL_WORDS,)
    ]


def _learned_since(safe: int, versions: Sequence[VersionRecord]) -> bool:
    """Whether the newest version holds anything that was learned after the safe one."""
    if not versions:
        return False
    newest = versions[-1]
    return newest.number > safe and newest.restores != safe


UNKNOWN = "before kinds were kept"


def requests_of(episodes: Iterable[Episode]) -> list[Request]:
    """The requests that a person's words ended: an agent that never came back heard none."""
    return [
        Request(
            session=each.session,
            source=each.source,
            kind=each.kind or UNKNOWN,
            complaint=each.complaint,
            at=each.at,
        )
        for each in episodes
        if each.bad is not BadEnd.NO_END
    ]
