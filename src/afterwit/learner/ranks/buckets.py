"""The sum of many tensors over all ranks, in few messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET = 1 << 22
"""Numbers that travel together: messages much smaller cost more to start than to send."""


def add_up(tensors: Sequence[Tensor], *, bucket: int = BUCKET) -> None:
    """Every tensor becomes its sum over all ranks, which give the same shapes in the same order."""
    for part in buckets(tensors, bucket):
        if len(part) == 1 and part[0].is_contiguous():
            dist.all_reduce(part[0])
            continue
        flat = torch.cat([tensor.flatten() for tensor in part])
        dist.all_reduce(flat)
        for tensor, total in zip(part, torch.split(flat, [each.numel() for each in part]), strict=True):
            tensor.copy_(total.view_as(tensor))


def buckets(tensors: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """The tensors in order, those of one dtype and device together: at most `most` numbers in a bucket,
    unless one tensor has more."""
    for _, alike in groupby(tensors, key=lambda tensor: (tensor.dtype, tensor.device)):
        part, size = list[Tensor](), 0
        for tensor in alike:
            if part and size + tensor.numel() > most:
                yield part
                part, size = [], 0
            part.append(tensor)
            size += tensor.numel()
        yield part
