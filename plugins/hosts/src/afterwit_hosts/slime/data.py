"""Carries lessons in slime's samples from the rollout to the loss.

Of a sample's own fields slime hands on a fixed list, and of these the loss sees a shorter one. The lesson
travels under `prompt`, which reaches the training processes, and from there on the tensor of the sample's
tokens, which is the very object that the loss is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch import Tensor

from afterwit_hosts.slime import commit
from afterwit_hosts.slime.lesson import Lesson

LESSON = "afterwit_lesson"
"""The name of the lesson in a sample's `train_metadata`, and on the tensor of its tokens."""


def convert_samples_to_train_data(args: Any, samples: Sequence[Any]) -> dict[str, list[Any]]:
    """`--custom-convert-samples-to-train-data-path`: columns of the samples, in groups or flat."""
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


def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    """`--rollout-data-postprocess-path`: each lesson goes onto its tokens: slime would log it."""
    lessons = rollout_data.pop("prompt", [])
    for tokens, lesson in zip(rollout_data.get("tokens", ()) if lessons else (), lessons, strict=True):
        setattr(tokens, LESSON, lesson)
    if lessons:
        commit.expect(lessons[0].batch)


def lesson_of(tokens: Tensor) -> Lesson:
    """The lesson of a sample. ValueError if `postprocess` did not run."""
    lesson = getattr(tokens, LESSON, None)
    if not isinstance(lesson, Lesson):
        raise ValueError(
            "a sample has no lesson: slime needs"
            " --rollout-data-postprocess-path afterwit_hosts.slime.data.postprocess"
        )
    return lesson
