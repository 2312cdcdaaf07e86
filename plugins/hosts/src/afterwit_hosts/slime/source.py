"""`--data-source-path`: a home's next turns as slime's samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from typing import Any

from slime.rollout.data_source import DataSource
from slime.utils.types import Sample

from afterwit.api.settings import home_of
from afterwit.api.stores import Record
from afterwit.api.turns import Finish
from afterwit_hosts.slime.data import LESSON
from afterwit_hosts.slime.lesson import Lesson
from afterwit_hosts.slime.lessons import Lessons


class Turns(DataSource):  # type: ignore[misc]  # slime is untyped
    """The home is the one of AFTERWIT_HOME. Each group is one turn."""

    def __init__(self, args: Any) -> None:
        self._home = home_of(None, os.environ)
        self._lessons: Lessons | None = None
        self._numbers = count()

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        """`num_samples` turns, once they are there: they are held until slime has trained on them."""
        if self._lessons is None:
            self._lessons = Lessons.of_home(self._home, num_samples)
        return [[self._sample(lesson)] for lesson in self._lessons.next()]

    def newest(self, num_samples: int) -> list[list[Sample]]:
        """The newest judged turns, to look at: nothing is held."""
        if self._lessons is None:
            self._lessons = Lessons.of_home(self._home, num_samples)
        return [[_judged(record)] for record in self._lessons.newest(num_samples)]

    def add_samples(self, samples: Sequence[Sequence[Sample]]) -> None:
        """Turns that slime did not train on wait in the store until their lease is over."""

    def save(self, rollout_id: int) -> None:
        """The store is on disk."""

    def load(self, rollout_id: int | None = None) -> None:
        """The store is on disk."""

    def __len__(self) -> int:
        return 0 if self._lessons is None else self._lessons.waiting()

    def _sample(self, lesson: Lesson) -> Sample:
        number, row, behaviour = next(self._numbers), lesson.item.student, lesson.item.behaviour
        return Sample(
            index=number,
            rollout_id=number,
            group_index=number,
            tokens=[*row.prompt, *row.response],
            response_length=len(row.response),
            reward=lesson.advantage or 0.0,
            loss_mask=[int(not forced) for forced in behaviour.forced],
            rollout_log_probs=None if behaviour.logprobs is None else list(behaviour.logprobs),
            status=Sample.Status.COMPLETED,
            train_metadata={LESSON: lesson},
        )


def _judged(record: Record) -> Sample:
    turn = record.sampled_turn
    cut = turn.finish is Finish.LENGTH
    return Sample(
        index=record.seq,
        tokens=[*turn.prompt_ids, *turn.sampled.ids],
        response_length=len(turn.sampled.ids),
        reward=0.0 if record.verdict is None else float(record.verdict.reward),
        status=Sample.Status.TRUNCATED if cut else Sample.Status.COMPLETED,
    )
