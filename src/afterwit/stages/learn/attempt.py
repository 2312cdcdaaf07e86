"""One attempt at a claimed batch: it becomes a version, or its turns go where its failure sends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from afterwit.core.adapters import SHARED
from afterwit.core.errors import RankLost, UpdateRefused, VersionHeld, VersionTaken
from afterwit.core.lifecycle import Reason
from afterwit.core.promotion import Complaint, Standing, SuiteResult
from afterwit.core.version import Version
from afterwit.learner.batch import Item
from afterwit.learner.failures import failure_kind
from afterwit.learner.policy import Policy
from afterwit.learner.schedule import NOTHING, NextBatch
from afterwit.learner.trainer import Trainer
from afterwit.learner.update import Phase, Progress
from afterwit.learner.work import work
from afterwit.stages.learn.blame import ELSEWHERE, blamed, longest
from afterwit.stages.learn.claims import Claims, Stopped
from afterwit.stages.learn.health import LearnHealth
from afterwit.stages.learn.messages import (
    NOTHING_TO_LEARN,
    on_failure,
    on_lag,
    on_refusal,
    on_version,
    sentence,
)
from afterwit.stages.promotion import Gate
from afterwit.stages.promotion.messages import on_held
from afterwit.stages.worker import described, frames
from afterwit.store import Record

log = logging.getLogger(__name__)


class Attempts:
    """Trains batches. Every end of an attempt leaves each of its turns trained, skipped or given back."""

    def __init__(
        self,
        trainer: Trainer,
        claims: Claims,
        health: LearnHealth,
        gate_of: Callable[[str], Gate],
        *,
        now: Callable[[], float],
    ) -> None:
        self._trainer, self._claims, self._health, self._now = trainer, claims, health, now
        self._gate_of = gate_of
        self._settings = trainer.settings

    def attempt(self, records: Sequence[Record], choice: NextBatch, progress: Progress) -> None:
        """Train on a choice's claimed turns. Raises Stopped if told to stop before anything is written."""
        gate = self._gate_of(choice.adapter)
        self._trainer.turn_to(choice.adapter)
        try:
            version = self._train(records, gate, progress)
        except UpdateRefused as error:
            self._claims.end(records, Reason.NOT_FINITE, str(error))
            self._health.report(False, on_refusal(error, turns=len(records)))
        except VersionHeld as error:
            with self._claims.together():
                self._claims.end(records, Reason.HELD_BACK, str(error))
                gate.held(error.evidence, str(error), now=self._now())
            self._health.report(False, str(error))
        except Stopped:
            self._claims.give_back(records)
            raise
        except RankLost:  # as if this process had died: the next learner finds what it held
            raise
        except VersionTaken as error:
            log.info("learn: %s: a rollback came first, and the turns train on top of it", error)
            self._claims.give_back(records)
        except Exception as error:  # a failure of this batch; the stage goes on
            self._failed(records, error)
        else:
            if version is not None:
                self._commit(version, gate, choice, progress)

    def _train(self, records: Sequence[Record], gate: Gate, progress: Progress) -> Version | None:
        """The version that the update made; None if the turns hold nothing to learn."""
        new, refused = self._trainer.build(self._claims.samples(records))
        self._claims.refuse(refused)
        replayed, _ = self._trainer.build(self._claims.replayable(self._trainer.adapter))
        if not new and (self._settings.update_gate or not replayed):
            self._health.report(True, NOTHING_TO_LEARN)
            return None
        return self._updated(records, new, replayed, gate, progress)

    def pass_on(self, records: Sequence[Record], progress: Progress) -> None:
        """Have the shared adapter learn from turns that trained others. Their states stay as they are."""
        gate = self._gate_of(SHARED)
        self._trainer.turn_to(SHARED)
        try:
            replayed, _ = self._trainer.build(self._claims.samples(records))
            version = self._updated(records, [], replayed, gate, progress) if replayed else None
        except (Stopped, RankLost):
            raise
        except VersionTaken as error:
            log.info("learn: %s; the turns go to the version after it", error)
            return
        except VersionHeld as error:
            with self._claims.together():
                gate.held(error.evidence, str(error), now=self._now())
            self._health.report(False, str(error))
            version = None
        except Exception as error:  # a failure of this batch; the stage goes on
            log.warning("learn: the shared adapter's update failed: %s%s", described(error), frames(error))
            self._health.report(False, sentence(error))
            version = None
        if version is None:
            self._claims.pass_over(records)
        else:
            self._commit(version, gate, NOTHING, progress)

    def _updated(
        self,
        records: Sequence[Record],
        new: Sequence[Item],
        replayed: Sequence[Item],
        gate: Gate,
        progress: Progress,
    ) -> Version:
        own, cost = [item.turn for item in new if item.turn is not None], work([*new, *replayed])
        if doubts := gate.doubts(_complaints(records, [*new, *replayed]), work=cost):
            gate.withdraw(self._trainer.contradicted(doubts))

        def examine(policy: Policy) -> SuiteResult | None:
            items = gate.items(own, work=cost, shared=self._trainer.packs(policy))
            found = gate.result(self._trainer.kept(policy, items))
            if found is not None and found.standing is Standing.HELD:
                turns = len(new) or len(replayed)
                raise VersionHeld(on_held(found, turns=turns), evidence=found.evidence)
            return found

        return self._trainer.train(
            new,
            replayed,
            now=self._now(),
            progress=progress,
            objective=gate.objective(self._trainer.objective),
            settings=gate.paced(self._settings),
            examine=examine,
        )

    def _commit(self, version: Version, gate: Gate, choice: NextBatch, progress: Progress) -> None:
        self._claims.commit(version, keep=gate.keep())
        progress(Phase.COMMITTED)
        ok, message = on_version(version, alarm=self._settings.mismatch_alarm)
        if (brake := gate.brake(self._settings, self._trainer.objective)) is not None:
            message = f"{message}; {brake}"
        if choice.lags:
            lag = on_lag(choice, stale=self._claims.went_stale)
            self._health.report(False, f"{message}; {lag}", lasting=not ok)
        else:
            self._health.report(ok, message)

    def _failed(self, records: Sequence[Record], error: Exception) -> None:
        """Report the failure and give the turns back, those to blame with a failed attempt."""
        log.warning("learn: the update failed: %s%s", described(error), frames(error))
        kind = failure_kind(error)
        self._health.report(
            False, on_failure(kind, error, turns=len(records), longest=longest(records).sampled_turn)
        )
        guilty = blamed(records, kind)
        for record in guilty:
            self._claims.blame(record, sentence(error))
        wait_s = self._settings.retry_s if kind in ELSEWHERE else 0.0
        self._claims.give_back([record for record in records if record not in guilty], retry_in_s=wait_s)


def _complaints(records: Sequence[Record], items: Sequence[Item]) -> list[Complaint]:
    """Of an update's claimed turns those that hints teach, with the hint."""
    hints = {item.turn: item.hints[0] for item in items if item.hints}
    return [
        Complaint(turn=record.sampled_turn, hint=hints[record.turn.id])
        for record in records
        if record.turn.id in hints
    ]
