"""The gate: what holds an update back, what takes versions back, and the back-off of the next update."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import VersionTaken
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.episodes import (
    Event,
    EventKind,
    back_off,
    confirmed,
    due,
    good_row,
    that_lost_nothing,
)
from afterwit.promotion.suite import (
    Complaint,
    ItemRead,
    PromotionSettings,
    SuiteItem,
    Suspect,
    chosen_items,
    length,
    suite_result,
    suspects,
    times_as_long,
)
from afterwit.store import Store
from afterwit.text import listed
from afterwit.turn import SHARED, Turn
from afterwit.version import SuiteResult, Version

SHORTEST, LONGEST = 0.5, 1.5
"""Answers that shrink or grow by half are held back: no one asked for that, or they would not be approved."""
LEAST_TOKENS = 4096
"""Fewest tokens of approved responses that test an update."""
log = logging.getLogger(__name__)


class Gate:
    """Stands between an update and the version that it would become."""

    def __init__(
        self, store: Store, versions: Versions, settings: PromotionSettings, adapter: str = SHARED
    ) -> None:
        """The gate of one adapter: other adapters' approvals and decisions do not count."""
        self._store, self._settings = store, settings
        self._adapter, self._versions = adapter, versions.of(adapter)

    def items(self, batch: Collection[str], *, work: int, shared: bool) -> list[SuiteItem]:
        """The approved turns that test an update of the turns in `batch`. `work` is the update's own, in
        tokens that are read; `shared`: a beginning that several responses share is read once.

        Responses of versions that were taken back are left out: the present version lacks their skill.
        """
        if not self._settings.enabled:
            return []
        versions = self._versions.history()
        gone = {number for version in versions for number in version.reverts}
        return chosen_items(
            [item for item in self._store.suite(self._adapter) if item.version not in gone],
            self._settings,
            without=batch,
            tokens=self._budget(work),
            turn=len(versions),
            shared=shared,
        )

    def result(self, read: Sequence[tuple[SuiteItem, ItemRead]]) -> SuiteResult | None:
        """The suite's result, from each item with what the version gives it; None if the gate is off."""
        if not self._settings.enabled:
            return None
        kept = [(item, item.kept(each.logprobs)) for item, each in read]
        return replace(suite_result(kept, may_lose=self._settings.may_lose), length=length(read))

    def why_held(self, result: SuiteResult | None, *, turns: int) -> str | None:
        """Why an update of `turns` turns with this result is held back; None: it becomes a version."""
        if result is None:
            return None
        if result.evidence < self._settings.hold_at:
            return self._why_of_length(result, turns=turns)
        lost = ", ".join(f"{gone} of {of} `{name}`" for name, (gone, of) in result.lost.items() if gone)
        return (
            f"an update of {turns} turns was held back: it would have lost {lost} that people had approved"
            f" (evidence {result.evidence:.3g}); its turns are set aside as held_back"
        )

    def _why_of_length(self, result: SuiteResult, *, turns: int) -> str | None:
        """Why an update whose answers are much shorter or longer than before is held back: than those of the
        newest version, or of the confirmed one."""
        safe = confirmed(self._store.events(self._adapter))
        suites = [each.suite for each in self._versions.history() if each.number >= safe and each.suite]
        for before in (*suites[:1], *suites[-1:]):
            times = times_as_long(result, before)
            if times is not None and not SHORTEST < times < LONGEST:
                return (
                    f"an update of {turns} turns was held back: answers as people approved them would be"
                    f" {times:.1f} times as long; its turns are set aside as held_back"
                )
        return None

    def held(self, evidence: float, words: str, *, now: float) -> None:
        """Store that an update was held. Call it in the transaction that ends the update's turns."""
        event = Event(
            kind=EventKind.HOLD,
            at=now,
            version=self._versions.newest(),
            evidence=evidence,
            words=words,
            adapter=self._adapter,
        )
        self._store.decided(event)

    def suspects(self, complaints: Sequence[Complaint], *, work: int) -> list[Suspect]:
        """The approved turns that those who approved them may want otherwise by now, because they complain of
        a response of the same kind in an update of `work` tokens."""
        if not self._settings.enabled or not complaints:
            return []

        def turn_of(id: str) -> Turn | None:
            record = self._store.find(id)
            return None if record is None else record.sampled_turn

        return suspects(self._store.suite(self._adapter), complaints, turn_of, tokens=self._budget(work))

    def withdraw(self, turns: Collection[str]) -> None:
        """Remove these turns from the suite, because their approver has changed their mind."""
        if turns:
            self._store.withdraw(sorted(turns))
            were = "response is" if len(turns) == 1 else "responses are"
            words = "promotion: %d approved %s no longer tested: their source now wants something else"
            log.info(words, len(turns), were)

    def backed_off(
        self, learner: LearnerSettings, objective: ObjectiveSettings, *, step: float = 1.0
    ) -> tuple[LearnerSettings, ObjectiveSettings]:
        """The settings of the next update: with this share of the step size, and of that what holds and
        alarms leave; with the KL that they require."""
        share, pull = back_off(self._store.events(self._adapter)) if self._settings.enabled else (1.0, 0.0)
        if step * share < 1.0:
            learner = replace(learner, lr=step * share * learner.rate)
        return learner, replace(objective, beta=pull) if pull > objective.beta else objective

    def fall_back(self, *, now: float) -> tuple[Version, str] | None:
        """Return to an earlier version if a hold or an alarm requires it: the new version, and why."""
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
        except VersionTaken:  # another process rolled back meanwhile: decide again
            return None
        taken = listed(made.reverts) or "none"
        where = f"version {made.number} has the weights of version {made.restores}"
        return made, f"{where}; taken back: {taken}; {event.words}"

    def keep(self) -> frozenset[int]:
        """Versions whose weights must stay: the confirmed one, those that may be confirmed soon, and the
        newest one that lost nothing."""
        safe = confirmed(self._store.events(self._adapter))
        row = good_row(self._store.episodes(self._adapter, after=safe))
        soon = (episode.version for episode in row[-self._settings.confirm_after :])
        whole = (version.number for version in that_lost_nothing(self._versions.history()))
        return frozenset({safe, *soon, *islice(whole, 1)})

    def _budget(self, work: int) -> int:
        return max(LEAST_TOKENS, int(self._settings.share_of_update * work))
