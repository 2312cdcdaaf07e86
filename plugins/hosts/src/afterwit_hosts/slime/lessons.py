"""The turns of a home's next update, each with all that its loss reads. Imports no slime."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from transformers import AutoConfig

from afterwit.api.learning import (
    Claims,
    Ids,
    Item,
    TeacherServer,
    TurnLimits,
    Versions,
    build_items,
    item_advantages,
    probe_of,
    served_sample,
)
from afterwit.api.objective import Denominators, Sample, denominators
from afterwit.api.running import policy_server, store_of_model, teacher_server, versions_of, worker_name
from afterwit.api.serving import Renderer, Scored
from afterwit.api.settings import ObjectiveSettings, Settings, model_folder
from afterwit.api.stores import Record, Store
from afterwit.api.turns import EngineError, Origin, Version
from afterwit_hosts.slime.requirements import settings_of

log = logging.getLogger(__name__)

LESSON = "afterwit_lesson"
"""The name of the lesson in a sample's `train_metadata`, and on the tensor of its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Values shared by all lessons of an update."""

    home: Path
    base: Path
    turns: tuple[str, ...]
    objective: ObjectiveSettings
    over: Denominators
    vocabulary: int
    """Ids that the model knows; logits beyond are padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One response that trains."""

    item: Item
    advantage: float | None
    """None: no RL term."""
    scores: tuple[Scored, ...]
    """The teacher's scores after each hint."""
    batch: Batch

    def sample(self, like: Tensor) -> Sample:
        """As the objective sees it, where `like` lies."""
        k = self.batch.objective.ids_kept
        return served_sample(self.item, self.scores, self.advantage, like, k=k)


class Lessons:
    """A home as slime's rollout reads it: the only learner of the home until it is closed.

    `size` turns make a batch. Afterwit's learner's rules decide which turns train.
    """

    def __init__(
        self,
        size: int,
        *,
        home: Path,
        settings: Settings,
        versions: Versions,
        store: Store,
        opened: ExitStack,
        teacher: TeacherServer | None,
        student: TeacherServer | None,
        rest: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Closes `opened`. `teacher` scores hints, `student` returns the policy's likeliest ids."""
        self._size, self._home, self._settings, self._rest = size, home, settings, rest
        self._versions, self._opened, self._teacher, self._student = versions, opened, teacher, student
        self._renderer = Renderer.load(versions.base)
        self._learner = replace(
            settings.learner,
            batch=size,
            min_batch=size,
            batches_per_update=1,
            turns_per_session_per_update=1,
            lease_s=86_400.0,
        )
        write_base(versions, self._learner.dtype, now=now())
        self._claims = Claims(
            store,
            versions,
            self._learner,
            owner=worker_name("learn"),
            now=now,
            reads_groups=settings.objective.reads_groups,
        )
        self._store = store

    @classmethod
    def of_home(cls, home: Path, size: int) -> Self:
        """SettingError if slime cannot train by the home's settings, AlreadyRunning if it has a learner."""
        settings = settings_of(home)
        folder = model_folder(settings.model, home)
        versions = versions_of(home, folder, settings.versions)
        with ExitStack() as opened:
            store = opened.enter_context(closing(store_of_model(settings, home, folder)))
            opened.enter_context(versions.learning())
            opened.enter_context(store.leading())
            return cls(
                size,
                home=home,
                settings=settings,
                versions=versions,
                store=store,
                opened=opened.pop_all(),
                teacher=teacher_server(settings, folder) if settings.objective.needs_teacher else None,
                student=policy_server(settings, folder),
            )

    def close(self) -> None:
        """Let other learners have the home."""
        self._opened.close()

    def waiting(self) -> int:
        """Judged turns that could train now."""
        return self._claims.choose(drain=False).ready

    def newest(self, count: int) -> list[Record]:
        """The newest judged turns in any state."""
        judged = (record for record in self._store.turns(newest_first=True) if record.verdict is not None)
        return list(islice(judged, count))

    def next(self) -> list[Lesson]:
        """The next batch, once there is one. Its turns are held until a version names them, or a day is over.

        Versions that slime wrote meanwhile are counted first. Turns wait while the teacher does not answer.
        """
        while True:
            self._claims.catch_up()
            try:
                if self._claims.paused() is None and (lessons := self._taken()):
                    return lessons
            except EngineError as error:
                log.warning("slime: the turns wait, because the teacher cannot be asked: %s", error)
            self._rest(self._learner.poll_s)

    def _taken(self) -> list[Lesson]:
        records = self._claims.take(self._claims.choose(drain=False))
        if not records:
            return []
        try:
            items, refused = build_items(
                self._claims.samples(records),
                self._renderer,
                self._settings.judge.placement,
                TurnLimits(
                    max_tokens=self._learner.max_tokens,
                    max_staleness=self._learner.max_staleness,
                    version=self._versions.newest(),
                    chain=self._versions.numbers(),
                ),
                self._settings.objective,
            )
            self._claims.refuse(refused)
            if len(items) < self._size:
                self._give_back(records, [item.turn for item in items])
                return []
            return lessons_of(
                items,
                self._settings,
                home=self._home,
                base=self._versions.base,
                teacher=self._teacher,
                student=self._student,
            )
        except BaseException:
            self._give_back(records, [record.turn.id for record in records])
            raise

    def _give_back(self, records: Sequence[Record], turns: Sequence[str | None]) -> None:
        self._claims.give_back([record for record in records if record.turn.id in turns])


def write_base(versions: Versions, dtype: str, *, now: float) -> None:
    """Write version 0 if it is missing."""
    if versions.get(0) is None:
        probe = probe_of(versions.base, dtype)
        version = Version(number=0, parent=None, origin=Origin.BASE, created=now, probe=probe)
        with versions.writing():
            versions.write(version, lambda folder: None)


def lessons_of(
    items: Sequence[Item],
    settings: Settings,
    *,
    home: Path,
    base: Path,
    teacher: TeacherServer | None,
    student: TeacherServer | None,
) -> list[Lesson]:
    """One lesson for each item, in order. EngineError if a server cannot be asked.

    `teacher` scores hints; `student` returns the policy's likeliest ids, if the objective learns at them.
    """
    objective = settings.objective
    found = item_advantages(items, objective).values
    scores = _scores(items, teacher, student)
    batch = Batch(
        home=home,
        base=base,
        turns=tuple(item.turn for item in items if item.turn is not None),
        objective=objective,
        over=_denominators(items, found, scores, objective),
        vocabulary=AutoConfig.from_pretrained(base).get_text_config().vocab_size,
    )
    return [
        Lesson(item=item, advantage=advantage, scores=said, batch=batch)
        for item, advantage, said in zip(items, found, scores, strict=True)
    ]


def _scores(
    items: Sequence[Item], teacher: TeacherServer | None, student: TeacherServer | None
) -> list[tuple[Scored, ...]]:
    """The teacher's scores after each item's hints, at the student's likeliest ids too if they learn."""
    hinted = [item for item in items if item.teachers]
    if teacher is None or not hinted:
        return [() for _ in items]
    wanted: list[Sequence[Ids]] | None = None
    if student is not None:
        likeliest = student.score([(item.student.prompt, item.student.response) for item in hinted])
        wanted = [said.top_ids for item, said in zip(hinted, likeliest, strict=True) for _ in item.teachers]
    rows = [(row.prompt, row.response) for item in hinted for row in item.teachers]
    scores = iter(teacher.score(rows, wanted))
    return [tuple(next(scores) for _ in item.teachers) for item in items]


def _denominators(
    items: Sequence[Item],
    found: Sequence[float | None],
    scores: Sequence[tuple[Scored, ...]],
    objective: ObjectiveSettings,
) -> Denominators:
    """Counts over the batch, which each rank would otherwise know of its own part alone."""
    like, k = torch.zeros(()), objective.ids_kept
    lone = [
        served_sample(item, said, advantage, like, k=k)
        for item, advantage, said in zip(items, found, scores, strict=True)
    ]
    return denominators(lone, objective)
