"""The consumer: asks an Atropos server for batches and trains on each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from afterwit.core.errors import RankLost, UpdateRefused, VersionTaken
from afterwit.core.version import Version
from afterwit.learner.failures import FailureKind, failure_kind
from afterwit.learner.trainer import Trainer
from afterwit.learner.update import Phase, Progress
from afterwit.stages.atropos.intake import Intake, Limits, intake
from afterwit.stages.atropos.server import (
    AtroposServer,
    BatchLost,
    NotRegistered,
    Registration,
    ServerAway,
)
from afterwit.stages.atropos.settings import AtroposSettings
from afterwit.stages.worker import described, frames

log = logging.getLogger(__name__)
FOR_EVER = 10**9
"""Steps that environments are told of if there is no end."""


def _unwatched(phase: Phase) -> None:
    """Nobody watches."""


class Consumer:
    """One trainer of one server. Hold `versions.learning()` while it runs.

    `report` takes the stage's health and a sentence, `committed` every version that is on disk.
    `paused` says why no batch is asked for now; None: one may be. `watch` is told how far an update has come.
    """

    def __init__(
        self,
        server: AtroposServer,
        trainer: Trainer,
        settings: AtroposSettings,
        *,
        now: Callable[[], float],
        report: Callable[[bool, str], object],
        committed: Callable[[Version], object] = lambda version: None,
        paused: Callable[[], str | None] = lambda: None,
        watch: Progress = _unwatched,
    ) -> None:
        self._server, self._trainer, self._settings = server, trainer, settings
        self._now, self._report, self._committed = now, report, committed
        self._paused, self._watch = paused, watch
        self._registered = False
        self._failures = 0

    def run(
        self,
        stop: Callable[[], bool],
        *,
        steps: int | None = None,
        rest: Callable[[float], object],
    ) -> int:
        """Train on batches until `stop` returns True, or for `steps` updates; returns how many there were.

        An update that has begun is finished: its batch is nowhere else. What fails again and again is raised.
        """
        self._trainer.begin(now=self._now())
        done = 0
        while not stop() and (steps is None or done < steps):
            groups = self._next(stop, rest, left=None if steps is None else steps - done)
            if groups is not None and self._train(groups):
                done += 1
        return done

    def _next(
        self, stop: Callable[[], bool], rest: Callable[[float], object], *, left: int | None
    ) -> list[Any] | None:
        """The next batch, as soon as there is one; None if `stop` came first."""
        pause, refused = self._settings.poll_s, 0
        while not stop():
            try:
                if (why := self._paused()) is not None:
                    self._report(True, why)
                    rest(self._settings.poll_s)
                    continue
                if not self._registered:
                    self._register(left, again=refused > 1)
                groups = self._server.batch()
                if groups:
                    return groups
                self._report(True, self._waits())
            except NotRegistered:
                self._registered, refused = False, refused + 1
                if refused <= 2:
                    continue
                self._report(False, f"the server at {self._settings.url} takes no registration")
            except BatchLost as error:
                self._report(False, f"a batch is lost: {error}")
                rest(self._settings.poll_s)
                continue
            except ServerAway as error:
                self._report(False, f"waiting for the server: {error}")
            rest(pause)
            pause = min(2 * pause, self._settings.longest_poll_s)
        return None

    def _register(self, left: int | None, *, again: bool) -> None:
        """Register. A server that was sent groups before any trainer came takes none until it is reset."""
        if again:
            log.warning("learn: the server held groups of before it had a trainer; it is told to forget them")
            self._server.reset()
        version = self._trainer.versions.newest()
        self._server.register(
            Registration(
                batch_size=self._trainer.settings.batch,
                max_token_len=self._trainer.context,
                starting_step=version,
                checkpoint_dir=str(self._trainer.versions.root),
                num_steps=FOR_EVER if left is None else version + left,
            )
        )
        self._registered = True
        self._report(True, f"registered with {self._settings.url} at version {version}")

    def _waits(self) -> str:
        queue, version = self._server.waiting(), self._trainer.versions.newest()
        if not queue:
            return f"version {version}; no environment has sent a group yet"
        held = f"{queue} {'group' if queue == 1 else 'groups'}"
        batch = self._trainer.settings.batch
        return (
            f"version {version}; the server holds {held}, which make no batch of exactly {batch} sequences"
            " (learner.batch) yet"
        )

    def _train(self, groups: list[Any]) -> bool:
        """Whether the batch became a version."""
        try:
            found = self._intake(groups)
            try:
                return self._update(found)
            except VersionTaken as error:  # a rollback came first: the batch goes to the version after it
                log.info("learn: %s", error)
                return self._update(self._intake(groups))
        except UpdateRefused as error:
            self._report(False, f"the batch is given up: {error}")
        except RankLost:
            raise
        except Exception as error:  # of this batch; the next one may do
            self._failed(error)
        return False

    def _intake(self, groups: list[Any]) -> Intake:
        trainer = self._trainer
        limits = Limits(
            vocabulary=trainer.policy().model.config.get_text_config().vocab_size,
            max_tokens=trainer.context,
            max_staleness=trainer.settings.max_staleness,
            version=trainer.versions.newest(),
            temperature=self._settings.temperature,
        )
        return intake(groups, limits, trainer.objective)

    def _update(self, found: Intake) -> bool:
        for sentence in found.refused:
            log.warning("learn: refused: %s", sentence)
        counts = _counts(found)
        if not found.items:
            self._report(False, f"the batch taught nothing: {counts}")
            return False
        version = self._trainer.train(
            found.items,
            (),
            now=self._now(),
            progress=self._watch,
            objective=found.objective,
            metrics={
                "groups": float(found.groups),
                "groups_refused": float(len(found.refused)),
                "sequences_left_out": float(found.left_out.total()),
            },
        )
        self._failures = 0
        self._committed(version)
        self._trainer.versions.prune(self._trainer.settings.keep_versions)
        loss = version.metrics["loss"]
        self._report(not found.refused, f"wrote version {version.number}, loss {loss:.4g}: {counts}")
        return True

    def _failed(self, error: Exception) -> None:
        log.warning("learn: the update failed: %s%s", described(error), frames(error))
        self._failures += 1
        memory = "; too little memory" if failure_kind(error) is FailureKind.MEMORY else ""
        self._report(False, f"the update failed, and its batch is lost: {described(error)}{memory}")
        if self._failures >= self._settings.max_failures:
            raise error


def _counts(found: Intake) -> str:
    left = ", ".join(f"{reason} {count}" for reason, count in found.left_out.most_common())
    return (
        f"{len(found.items)} sequences of {found.groups} groups"
        + (f"; {len(found.refused)} groups refused" if found.refused else "")
        + (f"; sequences left out: {left}" if left else "")
    )
