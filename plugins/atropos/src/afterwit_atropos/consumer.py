"""The consumer: asks an Atropos server for batches and trains on each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from afterwit.api.learning import (
    Behaviour,
    FailureKind,
    Item,
    Progress,
    RankLost,
    Row,
    Trainer,
    UpdateRefused,
    VersionTaken,
    failure_kind,
)
from afterwit.api.running import described, frames
from afterwit.api.settings import ObjectiveSettings, Settings
from afterwit.api.turns import TeacherRow, Version
from afterwit_atropos.group import BadGroup, ScoredGroup, ScoredSequence
from afterwit_atropos.server import AtroposServer, BatchLost, NotRegistered, Registration, ServerAway
from afterwit_atropos.settings import AtroposSettings
from afterwit_atropos.wire import read

log = logging.getLogger(__name__)

FOR_EVER = 10**9
"""The number of steps announced to environments if training is unbounded."""

NOTHING_IN_LOSS = "nothing_in_loss"

NO_PROMPT = "no_prompt"
"""The first token is in the loss, and nothing precedes it to predict it from."""

TOO_LONG = "too_long"

STALE = "stale"

NO_SIGNAL = "no_signal"
"""No teacher row, and no signal in the score: it is alone, or equal across its group."""

TOKEN_ADVANTAGES = "token_advantages"
"""The group's own advantages differ from token to token, which no objective here reads."""

AT_SAMPLED = {
    "hybrid": "hybrid_token",
    "hybrid_distill": "hybrid_token",
    "topk_opd": "token_opd",
    "topk_distill": "token_opd",
}
"""The objective that takes the place of another if rows have the sampled id alone."""

AT_TOP_K = {"hybrid": "hybrid_distill"}
"""The same if rows have several ids."""


class Consumer:
    """One trainer of one server. Hold `versions.learning()` while it runs.

    `report` takes the stage's health and a sentence, `committed` every version that is on disk.
    `before_batch` returns the reason to fetch none now, or None. `watch` receives the progress of an update.
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
        before_batch: Callable[[], str | None] = lambda: None,
        watch: Progress = lambda phase: None,
    ) -> None:
        self._server, self._trainer, self._settings = server, trainer, settings
        self._now, self._report, self._committed = now, report, committed
        self._before_batch, self._watch = before_batch, watch
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

        An update that has begun is finished: its batch is nowhere else. After `max_failures` errors
        in a row the last is raised.
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
                if (why := self._before_batch()) is not None:
                    self._report(True, why)
                    rest(self._settings.poll_s)
                    continue
                if not self._registered:
                    self._register(left, again=refused > 1)
                groups, refused = self._server.batch(), 0
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
            log.warning("learn: the server held groups from before it had a trainer; they are dropped")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a sequence."""

    vocabulary: int
    max_tokens: int
    max_staleness: int
    version: int
    """The weights that the update starts from."""
    temperature: float
    """Of log-probs in groups that do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The items of a batch, and the counts of refused ones."""

    items: list[Item]
    objective: ObjectiveSettings
    groups: int
    """Groups of the batch, refused ones included."""
    refused: list[str] = field(default_factory=list)
    """A sentence for each group that could not be read. They quote no conversation."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Sequences of good groups that cannot train, by reason."""


def intake(groups: Sequence[Any], limits: Limits, settings: ObjectiveSettings) -> Intake:
    """The items of a batch, and the objective that its teachers' rows allow."""
    good, refused = list[ScoredGroup](), list[str]()
    for at, data in enumerate(groups):
        try:
            good.append(read(data, vocabulary=limits.vocabulary))
        except BadGroup as error:
            refused.append(f"group {at + 1} of {len(groups)} ({error.refusal.value}): {error}")
    objective = wire_objective(settings, top_k=_top_k(good))
    items, left_out = list[Item](), Counter[str]()
    for group in good:
        for sequence, reward in zip(group.sequences, _rewards(group), strict=True):
            found = _item(sequence, group, reward, limits, objective)
            if isinstance(found, Item):
                items.append(found)
            else:
                left_out[found] += 1
    return Intake(items=items, objective=objective, groups=len(groups), refused=refused, left_out=left_out)


def _top_k(groups: Sequence[ScoredGroup]) -> bool:
    """Whether every group with rows has rows of several ids."""
    widths = [
        max((len(row.ids) for each in group.sequences for row in each.rows or () if row), default=0)
        for group in groups
        if group.distils
    ]
    return bool(widths) and min(widths) > 1


RewardInGroup = tuple[float, tuple[float, ...]]
"""A sequence's score, and those of its group; or its own advantage, which stays alone in its group."""


def _rewards(group: ScoredGroup) -> list[RewardInGroup | str | None]:
    """For each sequence what its RL term reads; None: the scores say nothing; or why it cannot be read."""
    if group.sequences[0].advantages is not None:
        return [_own_advantage(sequence) for sequence in group.sequences]
    scores = tuple(sequence.score for sequence in group.sequences)
    if len(set(scores)) < 2:
        return [None] * len(scores)
    return [(score, scores) for score in scores]


def _own_advantage(sequence: ScoredSequence) -> RewardInGroup | str | None:
    found = {value for value, inside in zip(sequence.advantages or (), sequence.mask, strict=True) if inside}
    if len(found) > 1:
        return TOKEN_ADVANTAGES
    value = found.pop() if found else 0.0
    return (value, ()) if value else None


def _item(
    sequence: ScoredSequence,
    group: ScoredGroup,
    reward: RewardInGroup | str | None,
    limits: Limits,
    objective: ObjectiveSettings,
) -> Item | str:
    """The sequence as an item, or why it is left out."""
    if not any(sequence.mask):
        return NOTHING_IN_LOSS
    if sequence.mask[0]:
        return NO_PROMPT
    begin = sequence.mask.index(True)
    end = len(sequence.mask) - sequence.mask[::-1].index(True)
    staleness = _staleness(sequence, limits.version)
    if end > limits.max_tokens:
        return TOO_LONG
    if staleness > limits.max_staleness:
        return STALE
    if isinstance(reward, str):
        return reward
    rows = _rows(sequence, begin, end) if objective.has_opd else None
    value, scores = reward if reward is not None and objective.has_rl else (None, ())
    if rows is None and value is None:
        return NO_SIGNAL
    return Item(
        turn=None,
        behaviour=Behaviour(
            forced=tuple(not inside for inside in sequence.mask[begin:end]),
            logprobs=_behaviour(sequence, begin, end),
            temperature=limits.temperature if group.notes is None else group.notes.tau,
        ),
        student=Row(prompt=sequence.tokens[:begin], response=sequence.tokens[begin:end]),
        teachers=(),
        hints=(),
        teacher_rows=rows,
        reward=value,
        group=scores,
        staleness=staleness,
    )


def _rows(sequence: ScoredSequence, begin: int, end: int) -> tuple[TeacherRow | None, ...] | None:
    """The rows of the response: each is *for* its token, so nothing is shifted. None if there is none."""
    rows = (sequence.rows or ())[begin:end]
    return rows if any(row is not None for row in rows) else None


def _behaviour(sequence: ScoredSequence, begin: int, end: int) -> tuple[float, ...] | None:
    """The policy's log-probs; 0 at tokens outside the loss."""
    if sequence.logprobs is None:
        return None
    return tuple(0.0 if value is None else value for value in sequence.logprobs[begin:end])


def _staleness(sequence: ScoredSequence, version: int) -> int:
    """Versions since the oldest token according to its environment; 0 if unknown."""
    turns = () if sequence.notes is None else sequence.notes.turns
    return max(0, version - min((turn.version for turn in turns), default=version))


def wire_objective(settings: ObjectiveSettings, *, top_k: bool) -> ObjectiveSettings:
    """The objective on rows of several ids (`top_k`), or of the sampled one.

    The teacher did not score the student's likeliest ids, so top-K OPD uses the teacher's.
    """
    names = AT_TOP_K if top_k else AT_SAMPLED
    return replace(settings, objective=names.get(settings.objective, settings.objective), subset="teacher")


class AtroposBatches:
    """`afterwit train --from atropos`."""

    defaults: Mapping[str, Any] = {"objective": {"baseline": "group"}}
    """Scores may have any scale: they compare within a group."""

    def run(
        self,
        settings: Settings,
        trainer: Trainer,
        *,
        steps: int | None,
        stop: Callable[[], bool],
        rest: Callable[[float], object],
        report: Callable[[bool, str], object],
        committed: Callable[[Version], object],
        before_batch: Callable[[], str | None],
    ) -> None:
        """Train on the server's batches."""
        atropos = settings.section(AtroposSettings)
        server = AtroposServer(url=atropos.url, timeout_s=atropos.timeout_s)
        Consumer(
            server,
            trainer,
            atropos,
            now=time.time,
            report=report,
            committed=committed,
            before_batch=before_batch,
        ).run(stop, steps=steps, rest=rest)


BATCHES = AtroposBatches()
