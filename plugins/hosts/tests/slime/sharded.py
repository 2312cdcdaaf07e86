"""The work of each of several processes that share a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from afterwit.learning.passes import response_logits
from afterwit_hosts.slime.lessons import Lesson
from afterwit_hosts.slime.shards import Shards
from afterwit_hosts.slime.training import lesson_loss
from tests.learning.updates import frozen

SIZE, TAU = 23, 0.7


def a_row(seed: int) -> Tensor:
    """Logits [6, 23] in float64, with many equals, and one id ruled out."""
    logits_TV = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits_TV[::2] = logits_TV[::2].round()
    logits_TV[0, 3] = -torch.inf
    return logits_TV


def own_columns(logits_TV: Tensor, ranks: int) -> Tensor:
    """This process's columns of a vocabulary padded as by Megatron; the padding's logits must not be read."""
    width = -(-logits_TV.shape[-1] // ranks) + 3
    padded_TV = pad(logits_TV, (0, ranks * width - logits_TV.shape[-1]), value=50.0)
    return padded_TV[:, dist.get_rank() * width :][:, :width]


def joined(work: Callable[[], object]) -> object:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        return work()
    finally:
        dist.destroy_process_group()


def read(ranks: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each row: log-probs at ids, top-K, and the gradient with respect to all logits."""
    found = []
    for seed in range(4):
        logits_TV = a_row(seed).requires_grad_()
        shards = Shards(dist.group.WORLD, SIZE)
        own_TW = own_columns(logits_TV, ranks)
        ids_TJ = shards.top_k(own_TW, 9)
        at_TJ = shards.at(own_TW, ids_TJ, TAU)
        (at_TJ[:, :4] ** 2).sum().backward()
        assert logits_TV.grad is not None
        dist.all_reduce(logits_TV.grad)  # each process has its own columns
        assert torch.equal(shards.at(own_TW, ids_TJ[:, 0], TAU), at_TJ[:, 0])
        found.append((at_TJ.detach(), ids_TJ, logits_TV.grad))
    return found


def gradients(ranks: int, student: Path, lessons: Sequence[Lesson]) -> tuple[dict[str, Tensor], float]:
    """Of the whole batch, with respect to the weights, and the loss."""
    model = frozen(student).requires_grad_()
    logits = response_logits(model, [lesson.item.student for lesson in lessons])
    shards = Shards(dist.group.WORLD, logits[0].shape[-1])
    parts = [
        lesson_loss(own_columns(logits_TV, ranks), lesson, shards).loss
        for logits_TV, lesson in zip(logits, lessons, strict=True)
    ]
    torch.stack(parts).sum().backward()
    found = {name: own.grad for name, own in model.named_parameters() if own.grad is not None}
    for gradient in found.values():
        dist.all_reduce(gradient)
    return found, float(torch.stack(parts).sum())
