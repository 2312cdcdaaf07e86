"""The gate: what holds an update back, what takes versions back, and the brake on the next update."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from afterwit.adapters import SHARED
from afterwit.checkpoints.rollback import roll_back
from afterwit.checkpoints.versions import Versions
from afterwit.errors import TurnNotFound, VersionTaken
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion import messages
from afterwit.promotion.events import PAUSE_AFTER, Event, EventKind, braked, confirmed, held_in_a_row, pace
from afterwit.promotion.items import Complaint, Doubt, Item, doubts
from afterwit.promotion.settings import PromotionSettings
from afterwit.promotion.suite import Standing, SuiteResult
from afterwit.store import Store
from afterwit.turn import Turn
from afterwit.version import Origin, Version

log = logging.getLogger(__name__)


LEAST_TOKENS = 4096
"""Tokens of approved responses that even the smallest update is asked for."""


class Gate:
    """What stands between an update and the version that it would become."""

    def __init__(
        self, store: Store, versions: Versions, settings: PromotionSettings, adapter: str = SHARED
    ) -> None:
        """The gate of one adapter: what the others did and were told says nothing about it."""
        self._store, self._settings = store, settings
        self._adapter, self._versions = adapter, versions.of(adapter)

    def items(self, batch: Collection[str], *, work: int, shared: bool) -> list[Item]:
        """What an update of these turns is asked for. `work` is the update's own, in tokens that are read;
        `shared`: what several responses begin with is read once.

        What versions said that were taken back is no skill of the present one.
        """
        if not self._settings.enabled:
            return []
        versions = self._versions.history()
        gone = {number for version in versions for number in version.reverts}
        found = [item for item in self._store.suite(self._adapter) if item.version not in gone]
        suite, turn = self._settings.suite, len(versions)
        return suite.chosen(found, without=batch, tokens=self._budget(work), turn=turn, shared=shared)

    def doubts(self, complaints: Sequence[Complaint], *, work: int) -> list[Doubt]:
        """What of the approved turns those who approved them may want otherwise by now, since they complained
        of a response of its kind in an update of `work` tokens."""
        if not self._settings.enabled or not complaints:
            return []
        return doubts(self._store.suite(self._adapter), complaints, self._turn, tokens=self._budget(work))

    def withdraw(self, turns: Collection[str]) -> None:
        """Ask for these turns no longer: a complaint of those who approved them asks for something else."""
        if turns:
            self._store.withdraw(sorted(turns))
            log.info("promotion: %s", messages.on_withdrawn(len(turns)))

    def _turn(self, id: str) -> Turn | None:
        """The turn if its content is still there."""
        try:
            return self._store.turn(id).sampled_turn
        except TurnNotFound:
            return None

    def _budget(self, work: int) -> int:
        return max(LEAST_TOKENS, int(self._settings.share_of_update * work))

    def result(self, kept: Sequence[tuple[Item, bool]]) -> SuiteResult | None:
        """What the answers say; None if the gate is off."""
        return self._settings.suite.result(kept) if self._settings.enabled else None

    def objective(self, settings: ObjectiveSettings) -> ObjectiveSettings:
        """The objective with the brake that holds and alarms pulled."""
        if not self._settings.enabled:
            return settings
        beta = braked(settings.beta, self._store.events(self._adapter))
        return settings if beta == settings.beta else replace(settings, beta=beta)

    def paced(self, settings: LearnerSettings) -> LearnerSettings:
        """The learner's settings with the step size that the brake leaves."""
        share = pace(self._store.events(self._adapter)) if self._settings.enabled else 1.0
        return settings if share == 1.0 else replace(settings, lr=share * settings.rate)

    def brake(self, learner: LearnerSettings, objective: ObjectiveSettings) -> str | None:
        """What the brake does to the next update; None: it is off."""
        settings, braked_objective = self.paced(learner), self.objective(objective)
        if (settings, braked_objective) == (learner, objective):
            return None
        return messages.on_brake(rate=settings.rate, beta=braked_objective.beta)

    def held(self, evidence: float, words: str, *, now: float) -> None:
        """Keep that an update was held, and pause learning after too many in a row.

        Call it in the transaction that ends its turns.
        """
        version = self._versions.newest()
        self._store.decided(
            Event(
                kind=EventKind.HOLD,
                at=now,
                version=version,
                evidence=evidence,
                words=words,
                adapter=self._adapter,
            )
        )
        holds = held_in_a_row(self._store.events(self._adapter))
        if holds % PAUSE_AFTER == 0:
            pause_learning(self._store, messages.on_pause(holds), self._adapter, now=now)

    def fall_back(self, *, now: float) -> tuple[Version, str] | None:
        """Return to an earlier version if a hold or an alarm wants it: the new version, and why."""
        if not self._settings.enabled:
            return None
        events = self._store.events(self._adapter)
        if all(event.kind is EventKind.CONFIRM for event in events):
            return None
        versions = self._versions.history()
        found = due(events, versions, self._versions.has_weights)
        if found is None:
            return None
        target, event = found
        try:
            made = roll_back(self._versions, target, now=now, after=versions[-1].number)
        except VersionTaken:  # somebody else went back meanwhile, and it is decided anew
            return None
        return made, messages.on_fall_back(made, event)

    def keep(self) -> frozenset[int]:
        """Versions whose weights must stay, because a hold or an alarm may return to them, now or soon."""
        events = self._store.events(self._adapter)
        row = self._settings.watch.row(self._store.episodes(self._adapter, after=confirmed(events)))
        soon = frozenset(episode.version for episode in row[-self._settings.confirm_after :])
        return soon | places_to_return_to(events, self._versions.history())


def pause_learning(store: Store, words: str, adapter: str, *, now: float) -> None:
    """Pause learning until a person resumes it: of a person's own adapter that one's alone."""
    store.pause(words, now=now, adapter=None if adapter == SHARED else adapter)


def due(
    events: Sequence[Event], versions: Sequence[Version], has_weights: Callable[[int], bool]
) -> tuple[int, Event] | None:
    """The version to return to now, and the event that wants it; None if there is nothing to take back.

    An alarm is settled by a rollback behind the newest version of its time. A hold wants one only if the
    version that its update began with is itself doubtful: else the next update begins there again.
    """
    decided = [event for event in events if event.kind is not EventKind.CONFIRM]
    if not decided or not versions:
        return None
    event, newest = decided[-1], versions[-1]
    by_number = {version.number: version for version in versions}
    if event.kind is EventKind.HOLD:
        if event.version != newest.number or _standing(newest.number, by_number) is Standing.CLEAN:
            return None
        safe = newest.number - 1
    else:
        later = (version for version in versions if version.number > event.version)
        if any(version.origin is Origin.ROLLBACK for version in later):
            return None
        safe = confirmed(events[: events.index(event)])
    target = _clean_until(safe, by_number, has_weights, confirmed_is=confirmed(events))
    return None if target == newest.number or _same_weights(target, newest) else (target, event)


def places_to_return_to(events: Sequence[Event], versions: Sequence[Version]) -> frozenset[int]:
    """The confirmed version, and the newest clean one."""
    by_number = {version.number: version for version in versions}
    clean = [number for number in by_number if _standing(number, by_number) is Standing.CLEAN]
    return frozenset({confirmed(events), max(clean, default=0)})


def _clean_until(
    last: int, versions: Mapping[int, Version], has_weights: Callable[[int], bool], *, confirmed_is: int
) -> int:
    """The newest version up to `last` that is confirmed or clean and can be loaded; else the base."""
    for number in range(last, 0, -1):
        safe = number == confirmed_is or _standing(number, versions) is Standing.CLEAN
        if number in versions and safe and has_weights(number):
            return number
    return 0


def _standing(number: int, versions: Mapping[int, Version]) -> Standing:
    """Of a rollback that of what it restores. The base and a version that was not asked are clean."""
    version = versions.get(number)
    while version is not None and version.restores is not None:
        version = versions.get(version.restores)
    return Standing.CLEAN if version is None or version.suite is None else version.suite.standing


def _same_weights(target: int, newest: Version) -> bool:
    return newest.restores == target
