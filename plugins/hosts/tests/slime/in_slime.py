"""The work of each of two tensor-parallel processes with slime's own loss function."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from afterwit.engines.port import Ids, Scored
from afterwit.learning.passes import Row
from afterwit.objective.terms import top_k
from afterwit_hosts.slime import training
from afterwit_hosts.slime.lessons import Lesson

KNOWN, VALUES = 457, 466
"""A vocabulary, and its size padded to two equal parts."""


def logits_of(row: Row) -> Tensor:
    """[length, VALUES] in fp32: any logits will do, since the loss is a function of them."""
    generator = torch.Generator().manual_seed(sum(row.response))
    return torch.randn(len(row), VALUES, generator=generator)


class Likeliest:
    """Implements `TeacherServer` for a policy that has these logits."""

    context_length = 512

    def __init__(self, k: int) -> None:
        self._k = k

    def open(self) -> None: ...

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[Scored]:
        return [self._score(Row(prompt=prompt, response=response)) for prompt, response in rows]

    def _score(self, row: Row) -> Scored:
        logits_TV = logits_of(row)[row.first : -1, :KNOWN]
        logprobs_TV, ids_TK = logits_TV.log_softmax(-1), top_k(logits_TV, self._k)
        return Scored(
            version=0,
            logprobs=tuple(logprobs_TV.gather(-1, torch.tensor(row.response)[:, None])[:, 0].tolist()),
            top_ids=tuple(map(tuple, ids_TK.tolist())),
            top_logprobs=tuple(map(tuple, logprobs_TV.gather(-1, ids_TK).tolist())),
        )


def through_slime(checkout: Path, lessons: Sequence[Lesson]) -> tuple[float, list[Tensor], dict[str, float]]:
    """Loss, gradient with respect to each sample's logits [length, VALUES], and what slime logs."""
    sys.path.insert(0, str(checkout))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    from megatron.core import parallel_state as mpu

    mpu.initialize_model_parallel(tensor_model_parallel_size=2)
    from slime.backends.megatron_utils.loss import loss_function

    rows = [lesson.item.student for lesson in lessons]
    tokens = [torch.tensor((*row.prompt, *row.response)) for row in rows]
    rollout = {"tokens": list(tokens), "prompt": list(lessons)}
    training.postprocess(None, 0, rollout)
    assert "prompt" not in rollout
    whole = [logits_of(row).requires_grad_() for row in rows]
    own = torch.cat([each.chunk(2, dim=-1)[mpu.get_tensor_model_parallel_rank()] for each in whole])
    masks = [torch.tensor([not forced for forced in lesson.item.behaviour.forced]) for lesson in lessons]
    batch = {
        "unconcat_tokens": rollout["tokens"],
        "total_lengths": [len(row) for row in rows],
        "response_lengths": [len(row.response) for row in rows],
        "loss_masks": masks,
        "rollout_mask_sums": torch.stack([mask.sum() for mask in masks]),
    }
    args = Namespace(
        loss_type="custom_loss",
        custom_loss_function_path="afterwit_hosts.slime.training.loss",
        calculate_per_token_loss=False,
        recompute_loss_function=False,
        allgather_cp=False,
        rollout_temperature=0.6,  # the plugin does not read it
        global_batch_size=len(lessons),
    )
    loss, _, logged = loss_function(args, batch, 1, len(lessons), own[None])
    loss.backward()
    gradients = [each.grad for each in whole]
    for gradient in gradients:
        dist.all_reduce(gradient)
    values = dict(zip(logged["keys"], (logged["values"][1:] / len(lessons)).tolist(), strict=True))
    dist.barrier()
    return loss.item(), gradients, values  # type: ignore[return-value]  # a backward pass has filled them
