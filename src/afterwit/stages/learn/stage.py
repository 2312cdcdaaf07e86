"""The learn stage's loop: claim a batch, train a version, commit it. In a process of its own, on one thread.

The manifest's rename is the commit. After a crash before it the turns are still JUDGED; after a later crash
`catch_up` finds them trained. Nothing in between is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from afterwit.core.errors import RankLost, VersionsUnavailable
from afterwit.learner.announce import note_of
from afterwit.learner.schedule import NOTHING
from afterwit.learner.trainer import Trainer
from afterwit.learner.update import Phase, Progress
from afterwit.stages.learn.attempt import Attempts
from afterwit.stages.learn.blame import deadly
from afterwit.stages.learn.claims import STAGE, Claims, Stopped
from afterwit.stages.learn.forgetting import Forgetter
from afterwit.stages.learn.health import LearnHealth
from afterwit.stages.learn.messages import of_adapter, on_death, on_drained, on_waiting, sentence
from afterwit.stages.paused import on_person
from afterwit.stages.promotion import Gate, PromotionSettings
from afterwit.stages.worker import described, frames
from afterwit.store import Pause, Store

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
        self._trainer = trainer
        self._settings = trainer.settings
        self._now = now
        self._watch = watch
        self._health = LearnHealth(store, now)
        self._claims = Claims(
            store,
            trainer.versions,
            trainer.settings,
            owner=owner,
            now=now,
            reads_groups=trainer.objective.reads_groups,
        )
        self._store = store
        self._gate_of = partial(Gate, store, trainer.versions, promotion)
        self._attempts = Attempts(trainer, self._claims, self._health, self._gate_of, now=now)
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
        except (Stopped, RankLost):
            raise
        except VersionsUnavailable as error:
            self._health.report(False, f"{error}; turns wait")
            self._last_step_failed = True
            return False
        except Exception as error:  # the loop goes on and tries again
            log.warning("learn: the step failed: %s%s", described(error), frames(error))
            self._health.report(False, sentence(error))
            self._claims.distrust()
            self._last_step_failed = True
            return False
        if self._last_step_failed:
            self._health.forget()
        self._last_step_failed = False
        if not worked:
            self._report_waiting(follow=follow)
        return worked

    def step(self, stop: Callable[[], bool] = lambda: False, *, follow: bool = True) -> bool:
        """One batch, if one is due; whether there was one."""
        self._catch_up()
        if self._fall_back() or self.forget(stop):
            return True
        self._pause = self._claims.paused()
        if self._pause is not None:
            return False
        self._choice = self._claims.choose(drain=not follow)
        records = self._claims.take(self._choice)
        if not records:
            return self._pass_on(stop, drain=not follow)
        progress = self._claims.progress(records, stop, self._watch)
        progress(Phase.CLAIMED)
        self._attempts.attempt(records, self._choice, progress)
        return True

    def _pass_on(self, stop: Callable[[], bool], *, drain: bool) -> bool:
        """What trained somebody's own adapter trains the shared one too, if it is to; whether it did."""
        records = self._claims.to_pass_on(drain=drain)
        if records:
            self._attempts.pass_on(records, self._claims.progress([], stop, self._watch))
        return bool(records)

    def forget(self, stop: Callable[[], bool] = lambda: False) -> list[str]:
        """Forget the sessions that people ordered to forget; a sentence for each.

        Raises Stopped if `stop` returns True before that is done: the next call goes on with it.
        """
        found = self._forgetter.carry_out(self._claims.progress([], stop, self._watch))
        for words in found:
            log.info("learn: %s", words)
        if found:
            self._say_forgetting(found[-1])
        return found

    def _say_forgetting(self, words: str) -> None:
        self._health.waits(words, what="forgetting")

    def begin(self) -> None:
        """Load the model and follow the folder of versions: what comes before `forget` outside of `run`."""
        self._trainer.begin(now=self._now())
        self._catch_up()

    def _fall_back(self) -> bool:
        """Return to an earlier version of an adapter if a hold or an alarm wants it; whether it did."""
        for adapter in dict.fromkeys(event.adapter for event in self._store.events()):
            gate = self._gate_of(adapter)
            if (found := gate.fall_back(now=self._now())) is not None:
                version, words = found
                self._watch(Phase.WRITTEN)
                self._claims.commit(version, keep=gate.keep())
                self._watch(Phase.COMMITTED)
                self._health.report(False, of_adapter(adapter, words), lasting=True)
                return True
        return False

    def _report_waiting(self, *, follow: bool) -> None:
        if self._pause is not None:
            self._health.waits(on_person(self._pause), what=self._pause)
            return
        version = self._trainer.versions.of(None).newest()
        message = on_waiting(self._choice, self._settings, version=version) if follow else on_drained(version)
        self._health.waits(message, what=(self._choice.ready, self._choice.held, self._choice.review))

    def _catch_up(self) -> None:
        """Follow the folder of versions. If the last learner kept dying, end the turn that is to blame."""
        died_in = self._claims.catch_up()
        if (record := deadly(died_in, self._settings.max_attempts)) is not None:
            self._claims.end_abandoned(record)
            self._health.report(False, on_death(turns=len(died_in), longest=record.sampled_turn))
