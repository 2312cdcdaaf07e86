"""The turns of a home's next update. Imports no slime."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Self

from afterwit.api.learning import Claims, TeacherServer, TurnLimits, Versions, build_items
from afterwit.api.running import policy_server, store_of_model, teacher_server, versions_of, worker_name
from afterwit.api.serving import Renderer
from afterwit.api.settings import Settings, model_folder
from afterwit.api.stores import Record, Store
from afterwit.api.turns import EngineError
from afterwit_hosts.slime.commit import write_base
from afterwit_hosts.slime.lesson import Lesson, settings_of
from afterwit_hosts.slime.scoring import lessons_of

log = logging.getLogger(__name__)


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
