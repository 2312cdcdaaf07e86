"""Functions that slime calls in its rollout's process. They give it a home's next turns as samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain, count
from typing import Any

from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.data_source import DataSource
from slime.utils.types import Sample

from afterwit.api.settings import home_of
from afterwit.api.stores import Record
from afterwit.api.turns import Finish
from afterwit_hosts.slime.lessons import LESSON, Lesson, Lessons
from afterwit_hosts.slime.requirements import require_flags


def generate_rollout(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """`--rollout-function-path`: a batch of the data source, unchanged, since people have talked to the model
    already; to evaluate, the rewards of the turns that were judged last.

    SettingError if an argument of slime's does not fit: nothing has been trained then.
    """
    require_flags(args)
    size = getattr(args, "rollout_batch_size", 1)
    if not evaluation:
        return RolloutFnTrainOutput(samples=data_source.get_samples(size))
    groups = getattr(data_source, "newest", data_source.get_samples)(size)
    samples = [sample for group in groups for sample in group]
    judged = {
        "rewards": [sample.reward for sample in samples],
        "truncated": [sample.status is Sample.Status.TRUNCATED for sample in samples],
        "samples": samples,
    }
    return RolloutFnEvalOutput(data={"judged": judged})


class Turns(DataSource):  # type: ignore[misc]  # slime is untyped
    """`--data-source-path`: turns of the home that AFTERWIT_HOME names. Each group is one turn."""

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


def convert_samples_to_train_data(args: Any, samples: Sequence[Any]) -> dict[str, list[Any]]:
    """`--custom-convert-samples-to-train-data-path`: columns of the samples, in groups or flat.

    Of a sample's own fields slime hands on a fixed list. The lesson travels under `prompt`, which reaches the
    training processes.
    """
    flat = list(chain.from_iterable(samples)) if samples and isinstance(samples[0], list) else list(samples)
    masks = [sample.loss_mask or [1] * sample.response_length for sample in flat]
    rewards = [sample.reward for sample in flat]
    columns = {
        "tokens": [sample.tokens for sample in flat],
        "response_lengths": [sample.response_length for sample in flat],
        "rewards": rewards,
        "raw_reward": rewards,
        "truncated": [int(sample.status is type(sample).Status.TRUNCATED) for sample in flat],
        "sample_indices": [sample.index for sample in flat],
        "rollout_ids": [sample.index if sample.rollout_id is None else sample.rollout_id for sample in flat],
        "loss_masks": masks,
        "rollout_mask_sums": [sum(mask) for mask in masks],
    }
    lessons = [(sample.train_metadata or {}).get(LESSON) for sample in flat]
    return columns | ({"prompt": lessons} if any(lessons) else {})
