"""The gate: what holds an update back, what takes versions back, and the brake on the next update."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from afterwit.checkpoints import Versions, roll_back
from afterwit.core.adapters import SHARED
from afterwit.core.errors import TurnNotFound, VersionTaken
from afterwit.core.promotion import (
    Complaint,
    Doubt,
    Event,
    EventKind,
    Item,
    SuiteResult,
    braked,
    confirmed,
    doubts,
    held_in_a_row,
    pace,
)
from afterwit.core.promotion.events import PAUSE_AFTER
from afterwit.core.turn import Turn
from afterwit.core.version import Version
from afterwit.learner.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.stages.promotion import messages
from afterwit.stages.promotion.fall_back import due, places_to_return_to
from afterwit.stages.promotion.settings import PromotionSettings
from afterwit.store import Store

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
