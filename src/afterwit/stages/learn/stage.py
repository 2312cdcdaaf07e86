"""The learn stage: claim a batch, train a version, commit it. Runs in a process of its own, on one thread.

The manifest's rename is the commit. Before it a crash leaves the turns JUDGED, after it `reconcile` finds
them trained; nothing in between is kept.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from afterwit.core.errors import AfterwitError, UpdateRefused, VersionTaken
from afterwit.core.lifecycle import Reason
from afterwit.core.sample import Sample
from afterwit.core.version import Version
from afterwit.learner.batch import Item, Refused
from afterwit.learner.failures import FailureKind, failure_kind
from afterwit.learner.schedule import in_sight, next_batch, retry_in
from afterwit.learner.trainer import Trainer
from afterwit.learner.update.phase import Phase, Progress
from afterwit.stages.learn.messages import on_death, on_failure, on_version, sentence, tokens
from afterwit.stages.worker import described, frames
from afterwit.store import Record, Store

STAGE: Final = "learn"
WAITING = "waiting for judged turns"
DIED = "the learner died in the turn's update"
log = logging.getLogger(__name__)


class Stopped(Exception):
    """The stage was told to stop in the middle of an update, which is given up."""


class Learn:
    """One learner over one store and one folder of versions.

    `now` is the clock, `watch` is told of every phase of every update.
    """

    def __init__(
        self,
        store: Store,
        trainer: Trainer,
        *,
        owner: str,
        now: Callable[[], float] = time.time,
        watch: Progress = lambda phase: None,
    ) -> None:
        self._store = store
        self._trainer = trainer
        self._settings = trainer.settings
        self._versions = trainer.versions
        self._owner = owner
        self._now = now
        self._watch = watch
        self._known = -1
        self._ill = False
        self._standing: tuple[bool, str] | None = None

    def run(
        self, stop: Callable[[], bool], *, follow: bool = True, rest: Callable[[float], object] = time.sleep
    ) -> None:
        """Update whenever a batch is due, until `stop` says so; without `follow`, until no batch is left.

        Raises SettingError before the first update where it cannot start: another learner, no model.
        """
        with self._versions.learning():
            self._trainer.begin(now=self._now())
            self._say(True, WAITING)
            try:
                while not stop():
                    if self._guarded(stop, follow=follow):
                        continue
                    if not follow:
                        return
                    rest(self._settings.poll_s)
            except Stopped:
                return

    def _guarded(self, stop: Callable[[], bool], *, follow: bool) -> bool:
        """`step`, but a failure outside a batch (a locked store, a broken folder) only becomes the status."""
        try:
            worked = self.step(stop, follow=follow)
        except Stopped:
            raise
        except Exception as error:  # the loop outlives it and tries again
            log.warning("learn: the step failed: %s%s", described(error), frames(error))
            self._say(False, sentence(error))
            self._ill, self._known = True, -1  # what it left half done, such as a lease, is put right first
            return False
        if self._ill and not worked:
            self._say(True, WAITING)
        self._ill = False
        return worked

    def step(self, stop: Callable[[], bool] = lambda: False, *, follow: bool = True) -> bool:
        """One batch, if one is due; whether there was one."""
        self._catch_up()
        records = self._claim(self._settings.max_wait_s if follow else 0.0)
        if not records:
            return False
        progress = self._progress([record.turn.id for record in records], stop)
        progress(Phase.CLAIMED)
        self._attempt(records, progress)
        return True

    def _claim(self, patience_s: float) -> list[Record]:
        """The turns of the update that is due, held; none where none is."""
        now, settings = self._now(), self._settings
        chosen = next_batch(
            settings,
            self._store.waiting(now=now, limit=in_sight(settings)),
            now=now,
            version=self._versions.newest(),
            patience_s=patience_s,
        )
        if not chosen:
            return []
        return self._store.claim(
            STAGE, owner=self._owner, limit=len(chosen), lease_s=settings.lease_s, now=now, only=chosen
        )

    def _catch_up(self) -> None:
        """Commit what others, or an earlier life of this learner, wrote into the folder of versions."""
        newest = self._versions.newest()
        if newest == self._known:
            return
        first = self._known < 0 and not self._ill
        found = self._store.reconcile(self._versions.all(), now=self._now(), error=DIED if first else None)
        self._known = newest
        if first:
            self._outlive(found.freed)

    def _outlive(self, turns: Sequence[str]) -> None:
        """Go on after a learner that died in an update of these turns: what kills it again and again is taken
        to be the longest."""
        tried = [record for turn in turns if self._spent(record := self._store.turn(turn))]
        if tried:
            longest = max(tried, key=lambda record: tokens(record.turn)).turn
            self._store.skip([longest.id], Reason.LEARNER_FAILED, now=self._now(), error=DIED)
            self._say(False, on_death(turns=len(turns), longest=longest))

    def _spent(self, record: Record) -> bool:
        return record.attempts >= self._settings.max_attempts

    def _attempt(self, records: Sequence[Record], progress: Progress) -> None:
        """Train on the claimed turns; every end of it leaves each of them trained, skipped or released."""
        turns = [record.turn.id for record in records]
        try:
            version = self._train(records, progress)
        except UpdateRefused as error:
            self._store.skip(turns, Reason.NOT_FINITE, now=self._now(), owner=self._owner, error=str(error))
            self._say(False, f"{error}; {len(turns)} turns are set aside as not_finite")
        except Stopped:
            self._release(turns)
            raise
        except VersionTaken as error:
            log.info("learn: %s; the batch goes to the version after it", error)
            self._release(turns)
        except Exception as error:  # a failure of this batch, not of the stage
            self._failed(records, error)
        else:
            if version is not None:
                self._commit(version, progress)

    def _train(self, records: Sequence[Record], progress: Progress) -> Version | None:
        """The version that the turns' update made; None where they hold nothing to learn."""
        samples = [_sample(record) for record in records]
        new, refused = self._trainer.build(samples)
        self._skip(refused)
        replayed = self._replayed()
        if not new and (self._settings.update_gate or not replayed):
            self._say(True, "no turn of the last batch carried a term: no update")
            return None
        return self._trainer.train(new, replayed, now=self._now(), progress=progress)

    def _commit(self, version: Version, progress: Progress) -> None:
        self._store.commit_version(version, now=self._now())
        self._known = version.number
        progress(Phase.COMMITTED)
        self._versions.prune(self._settings.keep_versions)
        self._say(*on_version(version, alarm=self._settings.mismatch_alarm))

    def _skip(self, refused: Sequence[Refused]) -> None:
        turns = defaultdict(list)
        for each in refused:
            turns[each.reason].append(each.turn)
        for reason, ended in turns.items():
            self._store.skip(ended, reason, now=self._now(), owner=self._owner)

    def _replayed(self) -> list[Item]:
        """Turns that trained before, as they are learned from now; what no longer fits stays out."""
        newest = self._versions.newest()
        oldest = newest - self._settings.max_staleness
        if self._settings.replay == 0:
            return []
        found = self._store.trained_with_hints(
            limit=self._settings.replay, min_version=oldest, seed=newest + 1
        )
        return self._trainer.build([_sample(record) for record in found])[0]

    def _failed(self, records: Sequence[Record], error: Exception) -> None:
        """Say what went wrong and give the turns back. A full disk is no turn's fault; a lack of memory is
        the longest's, and the others go on without it."""
        log.warning("learn: the update failed: %s%s", described(error), frames(error))
        kind, blamed = failure_kind(error), list(records)
        longest = max(records, key=lambda record: tokens(record.turn))
        if kind is FailureKind.MEMORY:
            blamed = [longest]
        self._say(False, on_failure(kind, error, turns=len(records), longest=longest.turn))
        if kind is FailureKind.DISK:
            self._release([record.turn.id for record in records], retry_in_s=self._settings.retry_s)
            return
        for record in blamed:
            self._blame(record, sentence(error))
        self._release([record.turn.id for record in records if record not in blamed])

    def _blame(self, record: Record, error: str) -> None:
        if record.attempts + 1 >= self._settings.max_attempts:
            turns, now = [record.turn.id], self._now()
            self._store.skip(turns, Reason.LEARNER_FAILED, now=now, owner=self._owner, error=error)
        else:
            self._release([record.turn.id], retry_in_s=retry_in(self._settings, record.attempts), error=error)

    def _release(self, turns: Sequence[str], *, retry_in_s: float = 0.0, error: str | None = None) -> None:
        self._store.release(turns, owner=self._owner, now=self._now(), retry_in_s=retry_in_s, error=error)

    def _progress(self, turns: Sequence[str], stop: Callable[[], bool]) -> Progress:
        """Keeps the lease alive, and gives up before anything is written when told to stop."""
        renewed = self._now()

        def progress(phase: Phase) -> None:
            nonlocal renewed
            self._watch(phase)
            if phase in (Phase.SCORING, Phase.STEPPED) and stop():
                raise Stopped
            if phase is Phase.SCORING and self._now() - renewed > self._settings.lease_s / 4:
                renewed = self._now()
                self._store.extend(turns, owner=self._owner, lease_s=self._settings.lease_s, now=renewed)

        return progress

    def _say(self, ok: bool, words: str) -> None:
        if self._standing == (ok, words):
            return
        log.log(logging.INFO if ok else logging.WARNING, "learn: %s", words)
        try:
            self._store.set_status(STAGE, ok, words, now=self._now())
        except AfterwitError as error:  # a full disk takes no status either: the log has it
            log.warning("learn: its status cannot be stored: %s", error)
        else:
            self._standing = (ok, words)


def _sample(record: Record) -> Sample:
    if record.verdict is None:
        raise ValueError(f"turn {record.turn.id} is {record.state} without a verdict")
    return Sample(turn=record.turn, verdict=record.verdict, rl=record.rl, opd=record.opd)
