"""Functions that slime calls in its training processes: the loss of a batch's lessons, then a version."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from afterwit.api.learning import UpdateRefused, copy_configuration, probe_of
from afterwit.api.objective import SampleLoss, loss_at
from afterwit.api.running import versions_of
from afterwit.api.turns import Origin, Version
from afterwit_hosts.slime.lessons import LESSON, Batch, Lesson
from afterwit_hosts.slime.requirements import settings_of
from afterwit_hosts.slime.shards import Shards

_expected: Batch | None = None
"""The batch that this process trains on, which the next weights are made of."""


def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    """`--rollout-data-postprocess-path`: attach each lesson to its tokens, the tensor that the loss receives.

    If it stayed under `prompt`, slime would log it.
    """
    global _expected
    lessons = rollout_data.pop("prompt", [])
    for tokens, lesson in zip(rollout_data.get("tokens", ()) if lessons else (), lessons, strict=True):
        setattr(tokens, LESSON, lesson)
    if lessons:
        _expected = lessons[0].batch


def loss(
    args: Any, batch: Mapping[str, Any], logits: Tensor, sum_of_sample_mean: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """`--custom-loss-function-path`: a micro-batch's loss and the terms to log, as slime takes them.

    `logits` are [1, T, V / tensor parallel]. slime divides by the global batch, and our denominators
    are of the whole batch already: so both are multiplied by it here.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.loss import get_responses

    responses = get_responses(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        apply_temperature=False,  # each turn has its own, by which the objective divides
    )
    whole, terms = logits.new_zeros(()), Counter[str]()
    for tokens, (logits_TW, _) in zip(batch["unconcat_tokens"], responses, strict=True):
        lesson = lesson_of(tokens)
        part = lesson_loss(
            logits_TW, lesson, Shards(mpu.get_tensor_model_parallel_group(), lesson.batch.vocabulary)
        )
        whole = whole + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
    scale = args.global_batch_size
    log = {name: logits.new_tensor(value * scale) for name, value in terms.items()}
    return whole * scale, {"loss": whole.detach() * scale, **log}


def lesson_of(tokens: Tensor) -> Lesson:
    """The lesson of a sample. ValueError if `postprocess` did not run."""
    lesson = getattr(tokens, LESSON, None)
    if not isinstance(lesson, Lesson):
        raise ValueError(
            "a sample has no lesson: slime needs"
            " --rollout-data-postprocess-path afterwit_hosts.slime.training.postprocess"
        )
    return lesson


def lesson_loss(logits_TW: Tensor, lesson: Lesson, shards: Shards) -> SampleLoss:
    """The part of one response in the loss of its batch; these weights are the old policy too."""
    return loss_at(
        lesson.sample(logits_TW),
        lesson.batch.over,
        lesson.batch.objective,
        at=partial(shards.at, logits_TW),
        top_k=partial(shards.top_k, logits_TW),
    )


def commit(args: Any, version_dir: str, engines: Any) -> None:
    """`--custom-update-weight-post-write-path`: write the version that a batch made, in the first process.

    slime calls it in every training process, after each step and once before the first. The manifest's rename
    is the commit; the rollout's process updates the store.
    """
    global _expected
    batch, _expected = _expected, None
    if batch is not None and (not dist.is_initialized() or dist.get_rank() == 0):
        write(batch, Path(version_dir))


def write(batch: Batch, written: Path) -> Version:
    """The version with the weights in a folder that slime `written`, whose manifest is on disk on return.

    Raises UpdateRefused if these give log-probs that are not finite, VersionTaken if another version came
    first: its turns are still waiting then.
    """
    settings = settings_of(batch.home)
    versions = versions_of(batch.home, batch.base, settings.versions)
    version = Version(
        number=versions.next(),
        parent=versions.newest(),
        origin=Origin.UPDATE,
        created=time.time(),
        turns=batch.turns,
        probe=probe_of(written, settings.learner.dtype),
        metrics={"samples": float(len(batch.turns))},
    )
    if not version.probe.is_finite:
        raise UpdateRefused(f"the weights in {written} give log-probs that are not finite")

    def fill(folder: Path) -> None:
        for path in written.glob("*.safetensors*"):
            _linked(path, folder / path.name)
        copy_configuration(folder, batch.base)

    with versions.writing():
        return versions.write(version, fill)


def _linked(path: Path, place: Path) -> None:
    """The same file at two places, or a copy on another disk: slime deletes its own later."""
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)
