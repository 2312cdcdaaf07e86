"""The watch: a judged turn may end an episode, and episodes may raise an alarm or confirm a version.

Both happen in the transaction that stores the verdict, so that a crash leaves all or nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from afterwit.lifecycle import Reason
from afterwit.progress import PersonRequest
from afterwit.promotion.episodes import (
    BadEnd,
    Episode,
    Event,
    EventKind,
    RatedTurn,
    alarms_in_a_row,
    closes,
    confirmed,
    confirming,
    episode,
    may_end_badly,
    watch_evidence,
)
from afterwit.promotion.suite import PromotionSettings, SuiteItem
from afterwit.store import Record, Store
from afterwit.turn import SHARED, Turn
from afterwit.verdict import Flag, Source, Verdict

PAUSE_AFTER_ALARMS = 3
"""Alarms without a confirmation between them, after which learning pauses until a person resumes it."""
FIRST, NEWEST = 200, 5_000
"""Requests by which it is decided whether people complain less."""
TOLD = 12
"""The newest episodes, which an alarm's sentence counts."""
log = logging.getLogger(__name__)


class WatchOver:
    """Watches the version that serves. With promotion disabled, episodes are stored and nothing follows."""

    def __init__(self, settings: PromotionSettings) -> None:
        self._settings = settings

    def judged(self, store: Store, turn: str, *, now: float) -> None:
        """Call it after a verdict was stored, or a turn ended without one, in the same transaction.

        If a request's last turn was never judged (it holds a secret, or the judge failed), the request counts
        only if it ended badly by what else is known. A request with several choices, each of which may be
        rated, ended as well as its best one.
        """
        line = store.line(turn)
        if not line or line[-1].turn.id != turn or not closes(line[-1].next_state):
            return
        before = list(takewhile(lambda record: not closes(record.next_state), reversed(line[:-1])))
        steps = [*reversed(before), line[-1]]
        ended = episode([RatedTurn(record.turn, _known(record)) for record in steps])
        if steps[-1].verdict is None and ended.bad is None:
            return
        others = store.ended_choices(turn)
        if others and ended.bad is not None:
            return
        self._end(store, ended, steps, others, now=now)
        if turn in ended.approved:  # hints that come from tool results alone may teach now
            tool_hints = (record.turn.id for record in steps[:-1] if record.flags == (Flag.TOOL_WORDS,))
            store.review([each for each in tool_hints if each in ended.approved], accept=True, now=now)

    def sweep(self, store: Store, *, now: float) -> int:
        """End the episodes of agents that called a tool and never came back; returns how many."""
        with store.transaction():
            found = store.unended(before=now - self._settings.no_end_s)
            for record in found:
                ended = episode([RatedTurn(record.turn, None)], ended=False)
                self._end(store, ended, [record], (), now=now)
        return len(found)

    def _end(
        self, store: Store, ended: Episode, steps: Sequence[Record], others: Sequence[str], *, now: float
    ) -> None:
        """Store an episode, and decide for its adapter; other adapters' requests do not count.

        A turn that a hint corrects is not tested: a judge may praise what it would have done otherwise.
        """
        items = [
            SuiteItem.of(record.turn, since=now)
            for record in steps
            if record.turn.id in ended.approved and record.reason is not Reason.HOLDS_SECRET
            if isinstance(record.turn, Turn) and not (record.verdict and record.verdict.hints)
        ]
        store.end_episode(ended, items, steps=[*(record.turn.id for record in steps), *others], now=now)
        settings, adapter = self._settings, ended.adapter
        if not settings.enabled:
            return
        safe = confirmed(store.events(adapter))
        episodes = store.episodes(adapter, after=safe)
        bound = may_end_badly(
            settings.may_end_badly,
            before=store.ended_badly(until=safe, adapter=adapter),
            base=store.ended_badly(until=0, adapter=adapter),
            unasked=any(each.unasked for each in episodes),
        )
        evidence = watch_evidence(episodes, bound=bound)
        if evidence >= settings.alarm_at:
            _alarm(store, adapter, episodes, evidence, safe, now=now)
            return
        first = confirming(episodes, after=settings.confirm_after, bound=bound)
        if first is not None and first.version > safe:
            words = (
                f"version {first.version} is confirmed: since it came, {settings.confirm_after} requests"
                " ended well and none badly"
            )
            confirm, version = EventKind.CONFIRM, first.version
            store.decided(
                Event(kind=confirm, at=now, version=version, evidence=0.0, words=words, adapter=adapter)
            )
            suite = next((each.suite for each in store.versions() if each.number == version), None)
            if suite is not None and suite.lost_turns:
                store.retire(suite.lost_turns)


def _alarm(
    store: Store, adapter: str, episodes: Sequence[Episode], evidence: float, safe: int, *, now: float
) -> None:
    """Take back what was learned after the safe version, if the newest one holds any."""
    versions = store.versions(adapter)
    if not versions or versions[-1].number <= safe or versions[-1].restores == safe:
        return
    newest = episodes[-TOLD:]
    ends = Counter(each.bad.words for each in newest if each.bad is not None)
    counted = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    where = f"version {safe}, the last confirmed one" if safe else "the original model"
    words = f"of the last {len(newest)} requests, these ended badly: {counted}; back to {where}"
    log.warning("promotion: %s", words)
    alarm, version = EventKind.ALARM, versions[-1].number
    store.decided(Event(kind=alarm, at=now, version=version, evidence=evidence, words=words, adapter=adapter))
    alarms = alarms_in_a_row(store.events(adapter))
    if alarms % PAUSE_AFTER_ALARMS == 0:
        why = (
            f"{alarms} times in a row more requests ended badly than before, and what had been learned"
            " was taken back: look at `afterwit versions` and `afterwit turns`, lower learner.lr or raise"
            " objective.beta, then `afterwit resume`"
        )
        store.pause(why, now=now, adapter=None if adapter == SHARED else adapter)


def requests_asked(store: Store) -> list[PersonRequest]:
    """The requests of which it is decided whether people complain less: the first and the newest."""
    ended = store.all_episodes(limit=NEWEST)
    if len(ended) == NEWEST:
        known = {each.turn for each in ended}
        first = store.all_episodes(limit=FIRST, newest=False)
        ended = [*(each for each in first if each.turn not in known), *ended]
    return requests_of(ended)


def requests_of(episodes: Iterable[Episode]) -> list[PersonRequest]:
    """The requests that a person's words ended, without those of agents that never came back."""
    return [each for each in episodes if each.bad is not BadEnd.NO_END]


def _known(record: Record) -> Verdict | None:
    """The verdict; of a turn without one, the person's thumb if it points down."""
    feedback = None if record.next_state is None else record.next_state.feedback
    if record.verdict is None and feedback is not None and feedback.reward == -1:
        return Verdict(reward=-1, source=Source.FEEDBACK)
    return record.verdict
