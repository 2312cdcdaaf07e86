"""`--custom-loss-function-path`: the objective on logits whose vocabulary is shared out (tensor parallel)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from afterwit.api.objective import SampleLoss, loss_at
from afterwit_hosts.slime.data import lesson_of
from afterwit_hosts.slime.lesson import Lesson
from afterwit_hosts.slime.shards import Shards


def loss(
    args: Any, batch: Mapping[str, Any], logits: Tensor, sum_of_sample_mean: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """A micro-batch's loss and the terms to log, as slime takes them.

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


def lesson_loss(logits_TW: Tensor, lesson: Lesson, shards: Shards) -> SampleLoss:
    """The part of one response in the loss of its batch; these weights are the old policy too."""
    return loss_at(
        lesson.sample(logits_TW),
        lesson.batch.over,
        lesson.batch.objective,
        at=partial(shards.at, logits_TW),
        top_k=partial(shards.top_k, logits_TW),
    )
