"""The learn stage's loop: claim a batch, train a version, commit it. In a process of its own, on one thread.

The manifest's rename is the commit. After a crash before it the turns are still JUDGED; after a later crash
`catch_up` finds them trained. Nothing in between is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from shutil import disk_usage

import torch

from afterwit.errors import (
    RankLost,
    UpdateRefused,
    VersionHeld,
    VersionsUnavailable,
    VersionTaken,
)
from afterwit.learning.batch import Item
from afterwit.learning.claims import Claims, Stopped
from afterwit.learning.forgetting import Forgetter
from afterwit.learning.health import STAGE, FailureKind, LearnHealth, failure_kind, on_person, sentence
from afterwit.learning.metrics import work
from afterwit.learning.passes import Phase, Progress
from afterwit.learning.policy import Policy
from afterwit.learning.schedule import NOTHING, NextBatch, duration, next_update, note_of
from afterwit.learning.trainer import Trainer
from afterwit.lifecycle import Reason
from afterwit.practice.lessons import step_of
from afterwit.promotion.gate import Gate
from afterwit.promotion.suite import Complaint, PromotionSettings
from afterwit.store import Pause, Record, Store
from afterwit.text import counted
from afterwit.turn import SHARED, Kind
from afterwit.version import SuiteResult, Version
from afterwit.worker import described, frames

MOST_UNHEEDED = 0.5
"""Share of an update's hints, which the teacher does not follow, that is reported."""
LOST = (RankLost, torch.AcceleratorError)
"""Errors that end this process, as if it had died: the next learner finds the turns that it held. After most
of CUDA's own errors every later call of the process fails too."""

log = logging.getLogger(__name__)


class Learn:
    """One learner over one store and one folder of versions.

    `now` is the clock; `watch` is called with every phase of every update.
    """

    def __init__(
        self,
        store: Store,
        trainer: Trainer,
        *,
        owner: str,
        promotion: PromotionSettings,
        now: Callable[[], float] = time.time,
        watch: Progress = lambda phase: None,
    ) -> None:
        self._store, self._trainer, self._settings = store, trainer, trainer.settings
        self._now, self._watch = now, watch
        self.health = LearnHealth(store, now)
        self._claims = Claims(
            store,
            trainer.versions,
            trainer.settings,
            owner=owner,
            now=now,
            reads_groups=trainer.objective.reads_groups,
        )
        self._gate_of = partial(Gate, store, trainer.versions, promotion)
        self._forgetter = Forgetter(
            store, trainer, self._claims, self._gate_of, now=now, say=self._say_forgetting
        )
        self._last_step_failed = False
        self._choice = NOTHING
        self._pause: Pause | None = None
        store.set_note(STAGE, note_of(trainer.settings))

    def run(
        self, stop: Callable[[], bool], *, follow: bool = True, rest: Callable[[float], object] = time.sleep
    ) -> None:
        """Update whenever a batch is due until `stop` returns True; without `follow`, until no batch is left.

        Hold `versions.learning()` meanwhile. Raises SettingError before the first update if the model cannot
        be loaded.
        """
        self._trainer.begin(now=self._now())
        try:
            while not stop():
                if self._step_or_report(stop, follow=follow):
                    continue
                if not follow:
                    return
                rest(self._settings.poll_s)
        except Stopped:
            return

    def _step_or_report(self, stop: Callable[[], bool], *, follow: bool) -> bool:
        """`step`; a failure outside a batch (a locked store, a broken folder) is reported and tried again."""
        try:
            worked = self.step(stop, follow=follow)
        except (Stopped, *LOST):
            raise
        except Exception as error:  # the loop goes on and tries again
            if isinstance(error, VersionsUnavailable):
                self.health.report(False, f"{error}; turns wait")
            else:
                log.warning("learn: the step failed: %s%s", described(error), frames(error))
                self.health.report(False, sentence(error))
                self._claims.distrust()
            self._last_step_failed = True
            return False
        if self._last_step_failed:
            self.health.forget()
        self._last_step_failed = False
        if not worked:
            self._report_waiting(follow=follow)
        return worked

    def step(self, stop: Callable[[], bool] = lambda: False, *, follow: bool = True) -> bool:
        """One batch, if one is due; whether there was one."""
        if self._settled(stop):
            return True
        self._pause = self._claims.paused()
        if self._pause is not None:
            return False
        self._choice = self._claims.choose(drain=not follow)
        if records := self._claims.take(self._choice):
            progress = self._claims.progress(records, stop, self._watch)
            progress(Phase.CLAIMED)
            self._learn(records, progress)
            return True
        if records := self._claims.to_pass_on(drain=not follow):
            self._pass_on(records, self._claims.progress([], stop, self._watch))
            return True
        return False

    def _settled(self, stop: Callable[[], bool]) -> bool:
        """Follow the folder, then fall back or forget if that is due; whether it was."""
        self._catch_up()
        return self._fall_back() or bool(self.forget(stop))

    def settle(self, stop: Callable[[], bool] = lambda: False) -> Pause | None:
        """Do all that comes before an update on a batch from elsewhere; the pause that forbids it, or None.

        Raises Stopped if `stop` returns True meanwhile.
        """
        while self._settled(stop):
            pass
        self._trainer.turn_to(SHARED)
        return self._claims.paused()

    def commit(self, version: Version) -> None:
        """Commit a version that was trained on a batch from elsewhere, and delete weights too old to keep."""
        self._claims.commit(version, keep=self._gate_of(version.adapter).keep())
        self._watch(Phase.COMMITTED)

    def _learn(self, records: Sequence[Record], progress: Progress) -> None:
        """Train on the claimed turns. Every turn ends trained, skipped or given back.

        Raises Stopped if `progress` does so before anything is written.
        """
        gate = self._gate_of(self._choice.adapter)
        self._trainer.turn_to(self._choice.adapter)
        self.health.waits(f"trains on {counted(len(records), 'turn')}", what=Phase.CLAIMED)
        try:
            new, refused = self._trainer.build(self._claims.samples(records))
            self._claims.refuse(refused)
            replayed, _ = self._trainer.build(self._claims.replayable(self._trainer.adapter))
            if not new and (self._settings.update_gate or not replayed):
                self.health.report(True, "no turn of the last batch carried a term: no update")
                return
            version = self._updated(records, new, replayed, gate, progress)
        except UpdateRefused as error:
            self._claims.end(records, Reason.NOT_FINITE, str(error))
            self.health.report(False, f"{error}; set aside as not_finite: {counted(len(records), 'turn')}")
        except VersionHeld as error:
            with self._store.transaction():
                self._claims.end(records, Reason.HELD_BACK, str(error))
                gate.held(error.evidence, str(error), now=self._now())
            self.health.report(False, str(error))
        except Stopped:
            self._claims.give_back(records)
            self.health.waits("stopped in an update: its turns wait", what=Stopped)
            raise
        except LOST:
            raise
        except VersionTaken as error:
            log.info("learn: %s: a rollback came first, and the turns train on top of it", error)
            self._claims.give_back(records)
        except Exception as error:  # a failure of this batch; the stage goes on
            self._failed(records, error)
        else:
            self._commit(version, gate, self._choice, progress)

    def _pass_on(self, records: Sequence[Record], progress: Progress) -> None:
        """Let the shared adapter learn from turns that trained others. Their states stay as they are."""
        gate, version = self._gate_of(SHARED), None
        self._trainer.turn_to(SHARED)
        try:
            replayed, _ = self._trainer.build(self._claims.samples(records))
            if replayed:
                version = self._updated(records, [], replayed, gate, progress)
        except (Stopped, *LOST):
            raise
        except VersionTaken as error:
            log.info("learn: %s; the turns go to the version after it", error)
            return
        except VersionHeld as error:
            with self._store.transaction():
                gate.held(error.evidence, str(error), now=self._now())
            self.health.report(False, str(error))
        except Exception as error:  # a failure of this batch; the stage goes on
            log.warning("learn: the shared adapter's update failed: %s%s", described(error), frames(error))
            self.health.report(False, sentence(error))
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
        """The version of an update that the gate lets pass. VersionHeld if it does not."""
        own, cost = [item.turn for item in new if item.turn is not None], work([*new, *replayed])
        hints = {item.turn: item.hints[0] for item in (*new, *replayed) if any(item.hints)}
        complaints = [
            Complaint(turn=record.sampled_turn, hint=hints[record.turn.id])
            for record in records
            if record.turn.id in hints and record.turn.kind is not Kind.PRACTICE
        ]
        if suspects := gate.suspects(complaints, work=cost):
            gate.withdraw(self._trainer.contradicted(suspects))

        def examine(policy: Policy) -> SuiteResult | None:
            items = gate.items(own, work=cost, shared=self._trainer.packs(policy))
            found = gate.result(self._trainer.read(policy, items))
            why = gate.why_held(found, turns=len(new) or len(replayed))
            if found is not None and why is not None:
                raise VersionHeld(why, evidence=found.evidence)
            return found

        settings, step = self._settings, 1.0
        if records and all(record.turn.kind is Kind.PRACTICE for record in records):
            settings = replace(settings, epochs=settings.practice_epochs)
            step = settings.practice_step * self._step_of(records)
        settings, objective = gate.backed_off(settings, self._trainer.objective, step=step)
        return self._trainer.train(
            new,
            replayed,
            now=self._now(),
            progress=progress,
            objective=objective,
            settings=settings,
            examine=examine,
        )

    def _step_of(self, records: Sequence[Record]) -> float:
        """The share of a whole step for these practised answers: less than 1 if their lessons have little
        left to teach."""
        numbers = {
            number for number, _ in self._store.lessons_on([each.turn.id for each in records]).values()
        }
        return step_of([self._store.lesson(number) for number in numbers])

    def _commit(self, version: Version, gate: Gate, choice: NextBatch, progress: Progress) -> None:
        """Commit the version and report it: with an alarm if engine and learner disagree, and with how far
        learning is slower than turns arrive."""
        self._claims.commit(version, keep=gate.keep())
        progress(Phase.COMMITTED)
        mismatch, alarm = version.metrics.get("mismatch_fresh", 0.0), self._settings.mismatch_alarm
        ok = mismatch <= alarm
        if ok:
            fresh = version.recipe is not None and version.recipe.fresh_optimizer
            turns = counted(len(version.turns) or len(version.replayed), "turn")
            message = _of_adapter(version.adapter, f"wrote version {version.number} from {turns}")
            message += "; its optimiser is new" if fresh else ""
            unheeded = version.metrics.get("unheeded", 0.0)
            if unheeded >= MOST_UNHEEDED:
                message += (
                    f"; {unheeded:.0%} of its hints change nothing for the teacher, so they teach nothing"
                )
        else:
            message = (
                f"version {version.number}: with the same weights, the engine's log-probs are {mismatch:.3g}"
                f" nats from the learner's on average (alarm at {alarm:g}); check that both have"
                " the same model, and learner.dtype the engine's precision"
            )
        settings, objective = gate.backed_off(self._settings, self._trainer.objective)
        if settings != self._settings:
            message += (
                f"; after holds or alarms learner.lr is {settings.rate:.2g} and objective.beta"
                f" {objective.beta:.2g} for now"
            )
        if not choice.lags:
            self.health.report(ok, message)
            return
        left = counted(choice.ready - len(choice.turns), "turn")
        lag = (
            f"learning lags: {left} still wait, the oldest for {duration(choice.oldest_s)};"
            " not all can train before they are too old, so the newest go first;"
            f" {self._claims.went_stale} became too old since the learner started"
        )
        self.health.report(False, f"{message}; {lag}", lasting=not ok)

    def _failed(self, records: Sequence[Record], error: Exception) -> None:
        """Report the failure and give the turns back; a failed attempt counts for those that may cause it."""
        log.warning("learn: the update failed: %s%s", described(error), frames(error))
        kind = failure_kind(error)
        words = sentence(error) if kind is FailureKind.OTHER else str(error)
        if kind is FailureKind.DISK:
            needed, free = self._trainer.written_bytes, disk_usage(self._trainer.versions.root).free
            words += f"; it takes about {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free"
        longest = f"{_longest(records).turn.id} of {_tokens(_longest(records))}"
        self.health.report(
            False, kind.value.format(error=words, turns=counted(len(records), "turn"), longest=longest)
        )
        suspects = poison_turns(records, kind)
        for record in suspects:
            self._claims.count_failure(record, sentence(error))
        wait_s = self._settings.retry_s if kind.elsewhere else 0.0
        self._claims.give_back([record for record in records if record not in suspects], retry_in_s=wait_s)

    def forget(self, stop: Callable[[], bool] = lambda: False) -> list[str]:
        """Forget the sessions that people ordered to forget; a sentence for each.

        Raises Stopped if `stop` returns True before that is done: the next call goes on with it.
        """
        orders = [order for order in self._store.forget_orders() if order.error is None]
        if not orders:
            return []
        found = self._forgetter.carry_out(orders, self._claims.progress([], stop, self._watch))
        for words in found:
            log.info("learn: %s", words)
        self._say_forgetting(found[-1])
        return found

    def _say_forgetting(self, words: str) -> None:
        self.health.waits(words, what="forgetting")

    def begin(self) -> None:
        """Load the model and follow the folder of versions; call it before `forget` outside of `run`."""
        self._trainer.begin(now=self._now())
        self._catch_up()

    def _fall_back(self) -> bool:
        """Return to an earlier version of an adapter after a hold or an alarm; whether it did."""
        for adapter in dict.fromkeys(event.adapter for event in self._store.events()):
            gate = self._gate_of(adapter)
            if (found := gate.fall_back(now=self._now())) is not None:
                version, words = found
                self._watch(Phase.WRITTEN)
                self._claims.commit(version, keep=gate.keep())
                self._watch(Phase.COMMITTED)
                self.health.report(False, _of_adapter(adapter, words), lasting=True)
                return True
        return False

    def _report_waiting(self, *, follow: bool) -> None:
        if self._pause is not None:
            self.health.waits(on_person(self._pause), what=self._pause)
            return
        choice, version = self._choice, self._trainer.versions.of(None).newest()
        waits = next_update(choice, self._settings) if follow else "no judged turn is left"
        what = (choice.ready, choice.held, choice.review)
        self.health.waits(f"version {version}; {waits}", what=what)

    def _catch_up(self) -> None:
        """Follow the folder of versions. If the last learner kept dying, end the poison turn."""
        died_in = self._claims.catch_up()
        if (record := deadly(died_in, self._settings.max_attempts)) is not None:
            self._claims.end_abandoned(record)
            self.health.report(
                False,
                f"the learner died again and again in an update of {len(died_in)} turns (out of memory?);"
                f" the longest, {record.turn.id} of {_tokens(record)} tokens, is set aside as learner_failed;"
                " lower learner.micro_batch_tokens or learner.max_tokens",
            )


def _of_adapter(adapter: str, words: str) -> str:
    return words if adapter == SHARED else f"{adapter}: {words}"


def poison_turns(records: Sequence[Record], kind: FailureKind) -> list[Record]:
    """The turns that may make the update fail: none if the cause is elsewhere, the longest for a lack of
    memory, else all."""
    if kind.elsewhere:
        return []
    return [_longest(records)] if kind is FailureKind.MEMORY else list(records)


def deadly(records: Sequence[Record], max_attempts: int) -> Record | None:
    """The turn to give up after a learner died in their update: the longest that was tried often enough."""
    tried = [record for record in records if record.attempts >= max_attempts]
    return _longest(tried) if tried else None


def _longest(records: Sequence[Record]) -> Record:
    return max(records, key=_tokens)


def _tokens(record: Record) -> int:
    turn = record.sampled_turn
    return len(turn.prompt_ids) + len(turn.sampled.ids)
